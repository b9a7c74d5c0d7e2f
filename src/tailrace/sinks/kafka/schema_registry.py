"""The registry that gives schemas their ids, by Confluent's REST interface.

Confluent's own speaks it, and Apicurio's, Redpanda's and Karapace. Used on the driver, once for each shape of
a table: registering a schema that is there already gives its id again, so a batch that is replayed gets the
same ids. Tasks are given ids and never talk to the registry.

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
#: Pauses between attempts; their number is that of further attempts.
_PAUSES_S = (0.2, 1, 3)
#: Most characters of the registry's own words in an error.
_SAID = 600
#: Confluent's code of an answer: the subject has no such schema, or is not there.
_UNKNOWN = (40401, 40403)


@dataclass(frozen=True)
class RegistryAccess:
    """Where a registry is and how to get in.

    Args:
        url: its address, or several with commas between them: `schema-registry-url`.
        user: user for basic authentication, None for none.
        password: the user's password.
        token: bearer token, instead of user and password.
        ca_file: certificates to trust instead of the system's, PEM.
        certificate_file: our certificate and, if `key_file` is not given, its key, PEM.
        key_file: our key.
        register: whether schemas that the registry does not know are registered (`schema-registry-register`).
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
    """A registry; ids that it gave are remembered.

    Args:
        access: where it is.
        sleep: how to wait between attempts.
    """

    access: RegistryAccess
    sleep: Callable[[float], None] = time.sleep
    _ids: dict[str, int] = field(default_factory=dict, init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)

    def ids(self, schemas: Iterable[SchemaText]) -> dict[str, int]:
        """The ids of some schemas, by `SchemaText.reference`; they are registered if they are new.

        Raises:
            SinkError: the registry refuses a schema or us.
            TransientSinkError: it does not answer, or says that it cannot now.
            ConfigError: a secret or certificate cannot be read.
        """
        found = {}
        for schema in schemas:
            if schema.reference not in self._ids:
                self._ids[schema.reference] = self._id(schema)
            found[schema.reference] = self._ids[schema.reference]
        return found

    def _id(self, schema: SchemaText) -> int:
        subject = urllib.parse.quote(schema.subject, safe="")
        path = f"/subjects/{subject}/versions" if self.access.register else f"/subjects/{subject}"
        body = {"schema": schema.text}
        if schema.type != "AVRO":
            body["schemaType"] = schema.type
        status, answer = self._ask(path, json.dumps(body).encode())
        if status == 200 and isinstance(answer.get("id"), int):
            return int(answer["id"])
        raise self._refused(schema, status, answer)

    def _ask(self, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        """The status and the body of the answer of the first registry that gives one."""
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
            "see whether it runs and whether `schema-registry-url` names it",
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
                "set `schema-registry-url` to the address that answers by itself",
            )
        return answer.status, _parsed(answer.body)

    def _urls(self) -> list[str]:
        urls = [url.strip().rstrip("/") for url in self.access.url.split(",") if url.strip()]
        for url in urls:
            if "@" in url:
                raise ConfigError(
                    "the address of the schema registry holds a user or password",
                    "an address is printed in messages and logs",
                    "give user and password by their own settings",
                )
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"`{url}` is no address of a schema registry",
                    "expected an address that begins with http:// or https://",
                    "set `schema-registry-url`, e.g. http://localhost:8081",
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
                    "the certificates for the schema registry cannot be read", str(error)
                ) from error
            self._context = context
        return self._context

    def _changes(self, schema: SchemaText) -> str:
        """What makes `schema` another than the last of its subject."""
        subject = urllib.parse.quote(schema.subject, safe="")
        status, answer = self._ask(f"/subjects/{subject}/versions/latest", None)
        if status != 200:
            return "the registry does not show the schema of before"
        return f"what changed: {changes(answer['schema'], schema.text, schema.type) or 'no field'}"

    def _refused(self, schema: SchemaText, status: int, answer: dict[str, Any]) -> SinkError:
        subject, said = schema.subject, _message(answer)
        where = f"{self._urls()[0]}/config/{urllib.parse.quote(subject, safe='')}"
        match status:
            case 409:
                return SinkError(
                    f"the schema registry refuses the new schema of subject `{subject}`: not compatible",
                    f"{self._changes(schema)}; it says: {said}",
                    "change the table so that readers of the old schema can go on, or allow the change: "
                    f"curl -X PUT -H 'Content-Type: application/json' -d '{{\"compatibility\": \"NONE\"}}' "
                    f"{where}",
                )
            case 401 | 403:
                return SinkError(
                    f"the schema registry does not let us write subject `{subject}`",
                    f"HTTP {status}: {said}",
                    "check user and password or token, and that they may write subjects",
                )
            case 404 if not self.access.register and answer.get("error_code") in _UNKNOWN:
                return SinkError(
                    f"the schema registry does not know the schema of subject `{subject}`",
                    "`schema-registry-register` is false, so it must have been registered before",
                    "register it, or set `schema-registry-register: true`",
                )
            case 404:
                return SinkError(
                    "the schema registry has no Confluent-compatible interface at this address",
                    f"HTTP 404 for subject `{subject}`: {said}",
                    "give its base path in `schema-registry-url` (Apicurio: .../apis/ccompat/v7)",
                )
        return SinkError(
            f"the schema registry refuses the schema of subject `{subject}`",
            f"HTTP {status}: {said}",
            "see the registry's log",
        )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {"message": shortened(body.decode(errors="replace"))}
    return value if isinstance(value, dict) else {"message": str(value)}


def _message(answer: dict[str, Any]) -> str:
    text = " ".join(str(answer.get("message", "nothing")).split())
    return text if len(text) <= _SAID else f"{text[:_SAID]}..."


def _untrusted(url: str, reason: ssl.SSLCertVerificationError) -> SinkError:
    return SinkError(
        f"the certificate of the schema registry `{url}` is not trusted",
        reason.verify_message,
        "name the certificate of its authority by `schema-registry-ca`",
    )
