"""HTTP requests without redirects, with a time limit and a size limit.

Redirects are not followed: a request, and above all its credentials, is meant for the address in the settings
only. The time limit covers a request as a whole, so a server that sends a byte now and then cannot extend it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

#: Most bytes of an answer.
MOST_BYTES = 16 << 20


class AnswerTooLargeError(http.client.HTTPException):
    """The answer has more bytes than are read."""


@dataclass(frozen=True)
class HttpAnswer:
    """A server's answer.

    Args:
        status: the HTTP status.
        body: the whole body.
        location: the target of a redirect: scheme, host and port; None if it is not a redirect.
        retry_after_s: how long the server wants not to be asked again, seconds; None: it does not say.
    """

    status: int
    body: bytes
    location: str | None = None
    retry_after_s: float | None = None


def send(
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    tls: Callable[[], ssl.SSLContext],
    timeout_s: float,
    method: str | None = None,
    most_bytes: int = MOST_BYTES,
) -> HttpAnswer:
    """Send a request: POST `body` to `url`, or GET without one, unless `method` says otherwise.

    Args:
        url: http or https.
        body: the body to post.
        headers: the request's headers.
        tls: makes the TLS context for https.
        timeout_s: time limit for connecting, and for the request as a whole, seconds.
        method: the request's method.
        most_bytes: most bytes of the answer.

    Raises:
        OSError, http.client.HTTPException: there is no answer, or it is not HTTP, too large or too slow.
    """
    deadline = _Deadline(timeout_s)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), _Http(deadline)]
    if url.startswith("https:"):
        handlers.append(_Https(deadline, tls()))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 - the caller checks the scheme
    try:
        with deadline:
            answer = _answer(opener, request, timeout_s, most_bytes)
    except (OSError, http.client.HTTPException):
        if not deadline.is_over:
            raise
    if deadline.is_over:  # a truncated answer may look complete
        raise TimeoutError(f"no whole answer within {timeout_s:g} s")
    return answer


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout_s: float, most_bytes: int
) -> HttpAnswer:
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return HttpAnswer(answer.status, _read(answer, most_bytes))
    except urllib.error.HTTPError as error:
        with error:
            location = error.headers.get("Location") if 300 <= error.code < 400 else None
            asked = error.headers.get("Retry-After", "").strip()  # a date is not obeyed
            pause_s = float(asked) if asked.isdecimal() and len(asked) < 10 else None
            return HttpAnswer(error.code, _read(error, most_bytes), location and _origin(location), pause_s)


def _read(answer: Any, most_bytes: int) -> bytes:
    body: bytes = answer.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise AnswerTooLargeError(f"the answer has more than {most_bytes >> 20} MiB")
    return body


def _origin(location: str) -> str:
    """Scheme, host and port of `location`; the rest may contain secrets or control characters."""
    try:
        parts = urlsplit(location)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    if parts.scheme not in ("http", "https") or not (parts.hostname or "").isascii():
        return "another path of it"
    return f"{parts.scheme}://{parts.hostname}{port}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: its answer is returned."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> None:
        """Leave the redirect to the caller."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Deadline:
    """Shuts down the connections opened within the block when its time is over."""

    def __init__(self, timeout_s: float) -> None:
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        #: Whether the time is over.
        self.is_over = False

    def connect(self, *address: Any) -> socket.socket:
        """`socket.create_connection`."""
        sock = socket.create_connection(*address)
        with self._lock:
            # TLS takes over the socket: keep a duplicate
            self._sockets.append(sock.dup())
        if self.is_over:
            self._end()
        return sock

    def _end(self) -> None:
        self.is_over = True
        with self._lock:
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for sock in self._sockets:
                sock.close()
            self._sockets = []


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection with the deadline."""
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **settings: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(host, **settings)
        connection._create_connection = self._deadline.connect  # type: ignore[attr-defined]  # noqa: SLF001
        return connection


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._deadline, self._tls_context = deadline, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection with the deadline."""
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **settings: Any) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(host, context=self._tls_context, **settings)
        connection._create_connection = self._deadline.connect  # type: ignore[attr-defined]  # noqa: SLF001
        return connection
