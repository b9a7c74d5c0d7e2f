"""What guards every request: a limit of its size; and every response: headers that browsers obey."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.control.api import problems

#: Most bytes of a request's body: a pipeline file as JSON, its characters escaped.
MOST_BODY = 8 << 20
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class ApiProtection:
    """Middleware of ASGI.

    Args:
        app: what it guards.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY:
            await _too_large(scope, receive, send)
            return
        got = 0
        is_refused = False

        async def limited() -> Message:
            nonlocal got, is_refused
            message = await receive()
            got += len(message.get("body", b""))
            if got > MOST_BODY:  # sent in chunks
                is_refused = True
                return {"type": "http.disconnect"}
            return message

        async def guarded(message: Message) -> None:
            if is_refused:
                return
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, limited, guarded)
        except ClientDisconnect:
            if not is_refused:
                raise
        if is_refused:
            await _too_large(scope, receive, send)


async def _too_large(scope: Scope, receive: Receive, send: Send) -> None:
    error = problems.wrong_request("the request is too large", f"needed: at most {MOST_BODY} bytes")
    await problems.response(413, error, _HEADERS)(scope, receive, send)
