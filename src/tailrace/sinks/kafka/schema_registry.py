"""A client of Confluent's schema registry REST interface: registers schemas and returns their ids.

Confluent's own registry has this interface, and Apicurio's, Redpanda's and Karapace. The driver uses it once
for each schema of a table: registering a known schema returns the same id again, so a replayed batch gets the
same ids. Tasks receive the ids and never call the registry.

Why not `confluent_kafka.schema_registry` (as of 2.16): it reads answers of any size into memory, has no time
limit by default and never one for a request as a whole, and leaves redirects to its HTTP library. Its bearer
tokens need a Confluent Cloud logical cluster, it makes all attempts at one URL before it tries the next, and
it accepts a password in the URL. It needs five more packages (an HTTP client, authlib, attrs, cachetools,
certifi), and trusts certifi's certificates instead of the system's. This client bounds the size and the whole
time of an answer and follows no redirect (`bounded_http`): credentials go only to the configured addresses.

Source: Confluent Schema Registry API reference (v1).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.formats.base import SchemaText
from tailrace.formats.encodings.schema_diff import changes
from tailrace.printable import shortened
from tailrace.sinks.bounded_http import send

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 30
#: Pauses before the second and every further attempt.
_PAUSES_S = (0.2, 1, 3)
#: Most characters of the registry's message in an error.
_MESSAGE_CHARACTERS = 600
#: Confluent's error codes: the subject does not exist, or has no such schema.
_UNKNOWN = (40401, 40403)


@dataclass(frozen=True)
class RegistryAccess:
    """The address and the credentials of a registry.

    Args:
        url: its address, or several separated by commas: `schema-registry-url`.
        user: the user for basic authentication, None for none.
        password: the user's password.
        token: a bearer token, instead of user and password.
        ca_file: certificates to trust instead of the system's, PEM.
        certificate_file: the client's certificate and, without `key_file`, its key, PEM.
        key_file: the client's key.
        register: whether to register unknown schemas (`schema-registry-register`).
    """

    url: str
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    register: bool = True


@dataclass
class SchemaRegistry:
    """A registry; caches the ids.

    Args:
        access: its address and credentials.
        sleep: waits between attempts.
    """

    access: RegistryAccess
    sleep: Callable[[float], None] = time.sleep
    _ids: dict[str, int] = field(default_factory=dict, init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)

    def ids(self, schemas: Iterable[SchemaText]) -> dict[str, int]:
        """The ids of schemas, by `SchemaText.reference`; new schemas are registered.

        Raises:
            SinkError: the registry rejects a schema or the client.
            TransientSinkError: the registry does not answer, or is unavailable.
            ConfigError: a secret or certificate cannot be read.
        """
        found = {}
        for schema in schemas:
            if schema.reference not in self._ids:
                self._ids[schema.reference] = self._id(schema)
            found[schema.reference] = self._ids[schema.reference]
        return found

    def connect(self) -> None:
        """Check that the registry answers and accepts the client.

        Raises:
            SinkError: it rejects the client.
            TransientSinkError: it does not answer, or is unavailable.
            ConfigError: a secret or certificate cannot be read.
        """
        status, answer = self._request("/config", None)
        if status in (401, 403):
            raise SinkError(
                "the schema registry rejects the client",
                f"HTTP {status}: {_message(answer)}",
                "check `schema-registry-user` and `schema-registry-password`, or `schema-registry-token`",
                code="TR-7509",
            )

    def _id(self, schema: SchemaText) -> int:
        subject = urllib.parse.quote(schema.subject, safe="")
        path = f"/subjects/{subject}/versions" if self.access.register else f"/subjects/{subject}"
        body = {"schema": schema.text}
        if schema.type != "AVRO":
            body["schemaType"] = schema.type
        status, answer = self._request(path, json.dumps(body).encode())
        if status == 200 and isinstance(answer.get("id"), int):
            return int(answer["id"])
        raise self._refused(schema, status, answer)

    def _request(self, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        """Status and body of the first answer from one of the addresses."""
        problem = ""
        for pause in (*_PAUSES_S, None):
            for url in self._urls():
                try:
                    status, answer = self._send(url + path, body)
                except (OSError, http.client.HTTPException) as error:
                    reason = getattr(error, "reason", error)
                    if isinstance(reason, ssl.SSLCertVerificationError):
                        raise _untrusted(url, reason) from error
                    problem = f"{url}: {reason}"
                    continue
                if status != 429 and status < 500:
                    return status, answer
                problem = f"{url}: HTTP {status}, {_message(answer)}"
            if pause is not None:
                self.sleep(pause)
        raise TransientSinkError(
            "the schema registry does not answer",
            problem,
            "check that it runs, and that `schema-registry-url` is its address",
            code="TR-7501",
        )

    def _send(self, url: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": _CONTENT_TYPE, "Accept": f"{_CONTENT_TYPE}, application/json"}
        authorization = self._authorization()
        if authorization:
            headers["Authorization"] = authorization
        answer = send(url, body, headers, tls=self._tls, timeout_s=_TIMEOUT_S)
        if answer.location is not None:
            raise SinkError(
                "the schema registry redirects to another address",
                f"HTTP {answer.status} from {url} to {answer.location}, where nothing is sent",
                "set `schema-registry-url` to the address that answers without a redirect",
                code="TR-7502",
            )
        return answer.status, _parsed(answer.body)

    def _urls(self) -> list[str]:
        urls = [url.strip().rstrip("/") for url in self.access.url.split(",") if url.strip()]
        for url in urls:
            if "@" in url:
                raise ConfigError(
                    "the address of the schema registry holds a user or password",
                    "an address is printed in messages and logs",
                    "set user and password by their own settings",
                    code="TR-1013",
                )
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"`{url}` is not the address of a schema registry",
                    "expected an address that begins with http:// or https://",
                    "set `schema-registry-url`, e.g. http://localhost:8081",
                    code="TR-1010",
                )
        return urls

    def _authorization(self) -> str | None:
        access = self.access
        if access.token is not None:
            return f"Bearer {access.token.resolve()}"
        if access.user is None:
            return None
        password = access.password.resolve() if access.password else ""
        return "Basic " + base64.b64encode(f"{access.user}:{password}".encode()).decode()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            access = self.access
            try:
                context = ssl.create_default_context(cafile=access.ca_file)
                if access.certificate_file:
                    context.load_cert_chain(access.certificate_file, access.key_file)
            except OSError as error:  # ssl.SSLError is one
                raise ConfigError(
                    "the certificates for the schema registry cannot be read", str(error), code="TR-1102"
                ) from error
            self._context = context
        return self._context

    def _changes(self, schema: SchemaText) -> str:
        """The differences between `schema` and the last schema of its subject."""
        subject = urllib.parse.quote(schema.subject, safe="")
        status, answer = self._request(f"/subjects/{subject}/versions/latest", None)
        if status != 200:
            return "the registry does not show the earlier schema"
        return f"what changed: {changes(answer['schema'], schema.text, schema.type) or 'no field'}"

    def _refused(self, schema: SchemaText, status: int, answer: dict[str, Any]) -> SinkError:
        subject, message = schema.subject, _message(answer)
        where = f"{self._urls()[0]}/config/{urllib.parse.quote(subject, safe='')}"
        match status:
            case 409:
                return SinkError(
                    f"the schema registry refuses the new schema of subject `{subject}`: not compatible",
                    f"{self._changes(schema)}; it says: {message}",
                    "change the table so that readers of the old schema can go on, or allow the change: "
                    f"curl -X PUT -H 'Content-Type: application/json' -d '{{\"compatibility\": \"NONE\"}}' "
                    f"{where}",
                    code="TR-7503",
                )
            case 401 | 403:
                return SinkError(
                    f"the schema registry does not allow writing subject `{subject}`",
                    f"HTTP {status}: {message}",
                    "check user and password or token, and that they may write subjects",
                    code="TR-7504",
                )
            case 404 if not self.access.register and answer.get("error_code") in _UNKNOWN:
                return SinkError(
                    f"the schema registry does not know the schema of subject `{subject}`",
                    "`schema-registry-register` is false, so it must have been registered before",
                    "register it, or set `schema-registry-register: true`",
                    code="TR-7505",
                )
            case 404:
                return SinkError(
                    "the schema registry has no Confluent-compatible interface at this address",
                    f"HTTP 404 for subject `{subject}`: {message}",
                    "give its base path in `schema-registry-url` (Apicurio: .../apis/ccompat/v7)",
                    code="TR-7506",
                )
        return SinkError(
            f"the schema registry refuses the schema of subject `{subject}`",
            f"HTTP {status}: {message}",
            "see the registry's log",
            code="TR-7507",
        )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {"message": shortened(body.decode(errors="replace"))}
    return value if isinstance(value, dict) else {"message": str(value)}


def _message(answer: dict[str, Any]) -> str:
    text = " ".join(str(answer.get("message", "nothing")).split())
    return text if len(text) <= _MESSAGE_CHARACTERS else f"{text[:_MESSAGE_CHARACTERS]}..."


def _untrusted(url: str, reason: ssl.SSLCertVerificationError) -> SinkError:
    return SinkError(
        f"the certificate of the schema registry `{url}` is not trusted",
        reason.verify_message,
        "set `schema-registry-ca` to the certificate of its authority",
        code="TR-7508",
    )
