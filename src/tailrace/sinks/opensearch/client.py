"""Requests to a cluster: bounded in size and time, repeated while the cluster is overloaded or away.

Every request that the sink sends may be repeated: documents carry versions, the other ones set what they set.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.secret import Secret
from tailrace.config.sinks import OpenSearchSettings
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.printable import shortened
from tailrace.sinks.bounded_http import AnswerTooLargeError, HttpAnswer, send

#: Time limit of one attempt at a request.
TIMEOUT_S = 60
#: Most bytes of an answer: a document has 100 MB at most, by the nodes' `http.max_content_length`.
_MOST_BYTES = 128 << 20
#: Pauses before the second and every further attempt.
PAUSES_S = (0.2, 1, 3, 10)
#: Most characters of the cluster's reason in an error.
_REASON_CHARACTERS = 600


@dataclass(frozen=True)
class ClusterAnswer:
    """A cluster's answer.

    Args:
        status: the HTTP status.
        body: the parsed body.
    """

    status: int
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The type of its error, empty if it is none."""
        error = self.body.get("error")
        return str(error.get("type", "")) if isinstance(error, dict) else ""

    @property
    def reason(self) -> str:
        """The reason of its error."""
        error = self.body.get("error")
        return error_reason(error) if isinstance(error, dict) else shortened(str(self.body))


@dataclass
class OpenSearchClient:
    """A connection to a cluster; copied to tasks.

    Args:
        urls: the nodes' addresses.
        user: user for basic authentication, None for none.
        password: the user's password.
        ca_file: authorities that sign the nodes' certificates, None for the system's.
        api_key: sent instead of a user, None for none.
        sleep: waits between attempts.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    api_key: Secret | None = None
    sleep: Callable[[float], None] = time.sleep
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, settings: OpenSearchSettings) -> OpenSearchClient:
        """A client for a sink's settings.

        Raises:
            ConfigError: the variable or file of a secret does not exist.
        """
        password, key = (s and s.resolved() for s in (settings.password, settings.api_key))
        return cls(settings.urls, settings.user, password, settings.tls_ca, key)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        accepted: tuple[int, ...] = (),
        before: Callable[[], None] = lambda: None,
    ) -> ClusterAnswer:
        """Send a request until it is answered.

        Args:
            method: GET, PUT, POST or DELETE.
            path: the path and query.
            body: JSON, or the bytes to send.
            accepted: statuses from 400 on that are answers to the caller's question.
            before: called before each attempt; what it raises ends them.

        Raises:
            TransientSinkError: no node answers.
            SinkError: the cluster refuses the request.
            AnswerTooLargeError: the answer is too large.
        """
        data = json.dumps(body).encode() if isinstance(body, Mapping) else body
        problem = ""
        for pause in (*PAUSES_S, None):
            for url in self.urls:
                before()
                try:
                    answer = self._send(method, url + path, data)
                except AnswerTooLargeError:
                    raise
                except (OSError, http.client.HTTPException) as error:
                    reason = getattr(error, "reason", error)
                    if isinstance(reason, ssl.SSLCertVerificationError):
                        raise _untrusted(url, reason) from error
                    problem = f"{url}: {reason}"
                    continue
                parsed = _parsed(url, answer)
                if answer.status < 400 or answer.status in accepted:
                    return parsed
                if answer.status != 429 and answer.status < 500:
                    raise _refused(method, path, parsed)
                problem = f"{url}: HTTP {answer.status}, {parsed.reason}"
            if pause is not None:
                self.sleep(pause)
        raise unavailable(problem)

    def _send(self, method: str, url: str, data: bytes | None) -> HttpAnswer:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.user is not None:
            password = self.password.resolve() if self.password else ""
            token = base64.b64encode(f"{self.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        elif self.api_key is not None:
            headers["Authorization"] = f"ApiKey {self.api_key.resolve()}"
        return send(
            url, data, headers, tls=self._tls, timeout_s=TIMEOUT_S, method=method, most_bytes=_MOST_BYTES
        )

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise ConfigError(
                    "the certificates for OpenSearch cannot be read", str(error), code="TR-1102"
                ) from error
        return self._context


def error_reason(error: Mapping[str, Any]) -> str:
    """The reason in an error of the cluster, with what caused it."""
    reasons = []
    at: Any = error
    while isinstance(at, dict):
        if at.get("reason"):
            reasons.append(" ".join(str(at["reason"]).split()))
        at = at.get("caused_by")
    text = ": ".join(dict.fromkeys(reasons)) or "no reason given"
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]}..."


def unavailable(problem: str) -> TransientSinkError:
    """The error for a cluster that does not answer, or is overloaded."""
    return TransientSinkError(
        "OpenSearch does not answer",
        problem,
        "check that the cluster runs, and that `url` has its addresses",
        code="TR-7301",
    )


def _parsed(url: str, answer: HttpAnswer) -> ClusterAnswer:
    if answer.location is not None:
        raise SinkError(
            "OpenSearch redirects to another address",
            f"HTTP {answer.status} from {url} to {answer.location}, where nothing is sent",
            "set `url` to the address that answers without a redirect",
            code="TR-7304",
        )
    try:
        body: Any = json.loads(answer.body) if answer.body else {}
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"error": {"reason": shortened(answer.body.decode(errors="replace"))}}
        if answer.status < 400:
            raise SinkError(
                "OpenSearch refuses a request",
                f"the answer from {url} is no JSON object: {body['error']['reason']}",
                "check that `url` is the address of an OpenSearch node",
                code="TR-7303",
            )
    return ClusterAnswer(answer.status, body)


def _refused(method: str, path: str, answer: ClusterAnswer) -> SinkError:
    where = f"{method} {path.partition('?')[0]}"
    if answer.status in (401, 403):
        return SinkError(
            "OpenSearch rejects the client",
            f"HTTP {answer.status} to {where}: {answer.reason}",
            "check `user` and `password`, or `api-key`, the user's rights, and whether the cluster's indices"
            " are blocked",
            code="TR-7302",
        )
    return SinkError(
        "OpenSearch refuses a request",
        f"HTTP {answer.status} to {where}: {answer.reason}",
        "remove the cause",
        code="TR-7303",
    )


def _untrusted(url: str, reason: ssl.SSLCertVerificationError) -> SinkError:
    return SinkError(
        f"the certificate of OpenSearch at `{url}` is not trusted",
        reason.verify_message,
        "set `tls-ca` to the certificate of its authority",
        code="TR-7305",
    )
