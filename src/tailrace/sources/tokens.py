"""What a user logs in with: the password, or a token that a cloud issues for this process.

    aws-rds-iam    a signed request, made here from the credentials of the process (botocore)
    azure-entra    an access token of Microsoft Entra for Azure's databases (azure-identity)
    gcp-iam        an access token of Google for Cloud SQL (google-auth)

The libraries find the identity of the machine, the container or the environment, as their clouds document it,
and keep credentials and tokens until shortly before they expire. Here they are asked anew for each
connection, in each process: the options of tasks hold no token. A token is a password in clear text, so
`config.options` demands TLS with a verified server.

Their messages name endpoints and variables, and are shown; their answers are not.
"""

from __future__ import annotations

import functools
import re
import threading
from typing import Any

from tailrace.config.options import AWS_RDS_IAM, PASSWORD, SourceOptions
from tailrace.errors import ConfigError, SourceError, TailraceError, TransientSourceError
from tailrace.extras import of_authentication, require
from tailrace.printable import shortened

#: How long a token of AWS may be used to log in; the service allows no more.
_AWS_SECONDS = 900
_AWS_HOST = re.compile(r"\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.rds\.amazonaws\.com(?:\.cn)?$")
#: What Azure's tokens are for, by the ends of hosts: its public cloud, and others.
_AZURE_SCOPES = {
    ".database.chinacloudapi.cn": "https://ossrdbms-aad.database.chinacloudapi.cn/.default",
    ".database.usgovcloudapi.net": "https://ossrdbms-aad.database.usgovcloudapi.net/.default",
    "": "https://ossrdbms-aad.database.windows.net/.default",
}
_GCP_SCOPE = "https://www.googleapis.com/auth/sqlservice.login"
#: How a user for tokens is made, by authentication and whether it is PostgreSQL.
_USERS = {
    (AWS_RDS_IAM, False): "CREATE USER <user> IDENTIFIED WITH AWSAuthenticationPlugin AS 'RDS'; and the role "
    "needs rds-db:connect for it",
    (AWS_RDS_IAM, True): "GRANT rds_iam TO <user>; and the role needs rds-db:connect for it",
    ("azure-entra", False): "CREATE AADUSER '<user>'",
    ("azure-entra", True): "SELECT pgaadauth_create_principal('<user>', false, false)",
    **dict.fromkeys(
        (("gcp-iam", False), ("gcp-iam", True)),
        "gcloud sql users create <user> --type=cloud_iam_service_account; and the account needs the role "
        "Cloud SQL Instance User",
    ),
}
#: Characters of a library's message that are shown.
_LONGEST = 300
#: Libraries keep what they have found in objects that one thread uses at a time.
_lock = threading.Lock()


def login_secret(options: SourceOptions, doing: str) -> str:
    """The password, resolved now, or a token that is valid now.

    Args:
        options: the user, the server, and how the user logs in.
        doing: what is being done, for errors.

    Raises:
        ConfigError: the password cannot be read, an extra is missing, or the region is unknown.
        SourceError: this process has no identity in the cloud, or may not use it.
        TransientSourceError: the cloud does not answer.
    """
    if options.authentication == PASSWORD:
        return options.password.resolve()
    require(of_authentication(options.authentication), f"`authentication: {options.authentication}`")
    issue = {AWS_RDS_IAM: _aws, "azure-entra": _azure, "gcp-iam": _gcp}[options.authentication]
    with _lock:
        return issue(options, doing)


def explained(error: TailraceError, options: SourceOptions) -> TailraceError:
    """`error` of a log-in; if the server refused a token, with the hint how the user is made for tokens."""
    if error.code != "TR-3101" or options.authentication == PASSWORD:
        return error
    made = _USERS[options.authentication, options.dialect == "postgresql"]
    hint = f"the database's user must be one for tokens of this process's identity: {made}"
    return SourceError(error.message, error.detail, hint, code="TR-3101")


def _no_token(
    doing: str,
    error: Exception | str,
    text: str | None = None,
    *,
    retryable: bool = False,
    hint: str = "check that this machine reaches the cloud's endpoints; it is tried again",
) -> SourceError:
    """The error to raise for a library's `error`; `text`: what to show of it, default its first line."""
    name = error if isinstance(error, str) else type(error).__name__
    text = shortened((str(error) if text is None else text).strip().partition("\n")[0], _LONGEST)
    if retryable:
        return TransientSourceError(
            f"{doing} failed: the cloud issues no token now", f"{name}: {text}", hint, code="TR-3122"
        )
    return SourceError(
        f"{doing} failed: there is no token for the log-in", f"{name}: {text}", hint, code="TR-3121"
    )


# ---- AWS ----

_AWS_HINT = (
    "give this process a role (of the instance, the task or the service account) or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, and the role the right rds-db:connect for the database's user; executors need "
    "the same"
)


@functools.cache
def _aws_session() -> Any:
    from botocore.session import get_session  # noqa: PLC0415 - an extra

    return get_session()


def _aws(options: SourceOptions, doing: str) -> str:
    from botocore import auth, awsrequest, exceptions  # noqa: PLC0415

    session = _aws_session()
    try:
        region = _aws_region(options, session)
        credentials = session.get_credentials()  # kept by the session, and refreshed by themselves
        if credentials is None:
            raise exceptions.NoCredentialsError
        keys = credentials.get_frozen_credentials()
    except exceptions.ClientError as error:  # whoever exchanges tokens for credentials refuses
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        raise _no_token(doing, "ClientError", code, hint=_AWS_HINT) from None
    except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
        raise _no_token(doing, error, retryable=True) from None
    except exceptions.BotoCoreError as error:
        raise _no_token(doing, error, hint=_AWS_HINT) from None
    parameters = {"Action": "connect", "DBUser": options.user}
    request = awsrequest.AWSRequest("GET", f"https://{options.host}:{options.port}/", params=parameters)
    auth.SigV4QueryAuth(keys, "rds-db", region, expires=_AWS_SECONDS).add_auth(request)
    return str(request.url).removeprefix("https://")


def _aws_region(options: SourceOptions, session: Any) -> str:
    named = _AWS_HOST.search(options.host)
    region = options.aws_region or (named and named[1]) or session.get_config_variable("region")
    if not region:
        raise ConfigError(
            "`authentication: aws-rds-iam` needs the region of the server",
            f"its host `{options.host}` names none, and neither do AWS_DEFAULT_REGION and the configuration",
            "set `awsRegion`",
            code="TR-3123",
        )
    return str(region)


# ---- Azure ----


@functools.cache
def _azure_credential() -> Any:
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an extra

    return DefaultAzureCredential()


def _azure(options: SourceOptions, doing: str) -> str:
    from azure.core.exceptions import AzureError, ClientAuthenticationError  # noqa: PLC0415

    scope = next(scope for end, scope in _AZURE_SCOPES.items() if options.host.endswith(end))
    try:
        return str(_azure_credential().get_token(scope).token)
    except ClientAuthenticationError as error:
        hint = (
            "give this process a managed identity or a workload identity, or AZURE_TENANT_ID, "
            "AZURE_CLIENT_ID and a secret or certificate; create the database's user for that identity; "
            "executors need the same"
        )
        raise _no_token(doing, error, hint=hint) from None
    except AzureError as error:
        raise _no_token(doing, error, retryable=True) from None


# ---- Google ----


@functools.cache
def _gcp_credentials() -> Any:
    import google.auth  # noqa: PLC0415 - an extra

    return google.auth.default(scopes=[_GCP_SCOPE])[0]


def _gcp(options: SourceOptions, doing: str) -> str:  # noqa: ARG001 - the token is for every server
    from google.auth import exceptions  # noqa: PLC0415
    from google.auth.transport.requests import Request  # noqa: PLC0415

    try:
        credentials = _gcp_credentials()
        if not credentials.valid:
            credentials.refresh(Request())
    except exceptions.GoogleAuthError as error:
        hint = (
            "give this process a service account (of the instance or of Kubernetes), or "
            "GOOGLE_APPLICATION_CREDENTIALS, and the account the role Cloud SQL Instance User; executors "
            "need the same"
        )
        raise _no_token(doing, error, retryable=error.retryable, hint=hint) from None
    return str(credentials.token)
