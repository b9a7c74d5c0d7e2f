"""Requests to a webhook: bounded in size and time, signed, repeated while the server is busy or away."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tailrace.config.message_sinks import WebhookSettings
from tailrace.config.secret import Secret, resolve_all
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.sinks.bounded_http import HttpAnswer, send
from tailrace.sinks.webhook.bodies import key_of, signature

#: Pauses before the second and every further attempt.
PAUSES_S = (0.5, 2.0, 5.0, 15.0)
#: The longest pause that a server may ask for by `Retry-After`.
_LONGEST_PAUSE_S = 60.0
#: Statuses below 500 that say that the request may succeed later: time-out, too early, too many.
_LATER = frozenset({408, 425, 429})
_MOST_ANSWER_BYTES = 1 << 20


@dataclass
class Endpoint:
    """A webhook; copied to tasks.

    Args:
        url: its address, which may contain a secret.
        headers: headers of each request, resolved.
        secret: signs requests; None: they are not signed.
        ca_file: authorities that sign its certificate, None for the system's.
        timeout_s: time limit of one attempt.
        sleep: waits between attempts.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secret: Secret | None
    ca_file: str | None
    timeout_s: float
    sleep: Callable[[float], None] = time.sleep
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, settings: WebhookSettings) -> Endpoint:
        """The endpoint of a sink's settings.

        Raises:
            ConfigError: a variable or file does not exist, or the secret is none.
        """
        secret = None if settings.secret is None else settings.secret.resolved()
        if secret is not None:
            try:
                key_of(secret.resolve())
            except ValueError as error:
                raise ConfigError(
                    "`sink.secret` is wrong", str(error), "copy it from the receiver", code="TR-1010"
                ) from None
        headers = resolve_all(settings.headers, "sink.headers")
        return cls(settings.url, headers, secret, settings.tls_ca, settings.timeout)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}

    @property
    def place(self) -> str:
        """The address without what may be secret: scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def post(self, id_: str, body: bytes) -> None:
        """Send a body until it is taken.

        Args:
            id_: identifies it: the same for all attempts.
            body: JSON.

        Raises:
            TransientSinkError: the server does not take it at present.
            SinkError: the server refuses it.
        """
        problem = ""
        for pause in (*PAUSES_S, None):
            asked_s = 0.0
            try:
                answer = send(
                    self.url,
                    body,
                    self._headers(id_, body),
                    tls=self._tls,
                    timeout_s=self.timeout_s,
                    most_bytes=_MOST_ANSWER_BYTES,
                )
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, ssl.SSLCertVerificationError):
                    raise SinkError(
                        f"the certificate of the webhook at `{self.place}` is not trusted",
                        reason.verify_message,
                        "set `sink.tls-ca` to the certificate of its authority",
                        code="TR-7824",
                    ) from error
                problem = str(reason) or type(reason).__name__
            else:
                if 200 <= answer.status < 300:
                    return
                self._require_later(answer)
                problem, asked_s = f"HTTP {answer.status}", answer.retry_after_s or 0.0
            if pause is not None:
                self.sleep(max(pause, min(asked_s, _LONGEST_PAUSE_S)))
        raise TransientSinkError(
            f"the webhook at `{self.place}` takes no messages",
            problem,
            "check that its server runs, and that it answers within `sink.timeout` seconds",
            code="TR-7821",
        )

    def _require_later(self, answer: HttpAnswer) -> None:
        """Raise unless the request may succeed later."""
        if answer.location is not None:
            raise SinkError(
                f"the webhook at `{self.place}` redirects to another address",
                f"HTTP {answer.status} to {answer.location}, where nothing is sent",
                "set `sink.url` to the address that answers without a redirect",
                code="TR-7823",
            )
        if answer.status not in _LATER and answer.status < 500:
            raise SinkError(
                f"the webhook at `{self.place}` refuses messages",
                f"HTTP {answer.status}",
                "see its log; check `sink.url`, `sink.headers` and `sink.secret`",
                code="TR-7822",
            )

    def _headers(self, id_: str, body: bytes) -> dict[str, str]:
        at_s = int(time.time())
        headers = {
            "Content-Type": "application/json",
            **self.headers,
            "webhook-id": id_,
            "webhook-timestamp": str(at_s),
        }
        if self.secret is not None:
            headers["webhook-signature"] = signature(key_of(self.secret.resolve()), id_, at_s, body)
        return headers

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise ConfigError(
                    "the certificates for the webhook cannot be read", str(error), code="TR-1102"
                ) from error
        return self._context
