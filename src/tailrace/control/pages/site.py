"""What all pages share: who looks at them, the route class that shows errors as pages, live parts."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import anyio
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from tailrace.control.operations import Control
from tailrace.control.pages.protection import form_token_of, protect, require_own_form
from tailrace.control.pages.rendering import fragment, page
from tailrace.control.pages.samples import Sampler
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError, ControlError, StateError, TailraceError, TransientControlError

#: Seconds between two looks for a live part.
LIVE_S = 2.0
#: In how many steps a stream sleeps: it looks at each whether the server stops.
LIVE_STEPS = 8
#: How long a session lasts, seconds.
SESSION_S = 12 * 3600
#: What `.status_code` an error has, by its code; 409 for other refusals, 400 for other errors.
_STATUS = {
    "TR-8412": 404,
    "TR-8460": 403,
    "TR-8461": 429,
    "TR-8462": 403,
    "TR-8464": 403,
    "TR-8474": 403,
    "TR-8475": 403,
}


@dataclass(frozen=True)
class Viewer:
    """Somebody who is signed in.

    Args:
        name: the token's, or the provider's.
        scope: what it may do.
        secret: what the session's cookie holds.
    """

    name: str
    scope: Scope
    secret: str

    @property
    def form_token(self) -> str:
        """The token of the session's forms."""
        return form_token_of(self.secret)

    @property
    def may_operate(self) -> bool:
        """Whether to show what pauses, resumes and retries."""
        return self.scope.allows(Scope.OPERATE)

    @property
    def may_change(self) -> bool:
        """Whether to show what creates, changes, cancels and removes."""
        return self.scope.allows(Scope.ADMIN)

    def __repr__(self) -> str:
        return f"Viewer({self.name!r}, {self.scope!r})"


class SignInNeeded(Exception):  # noqa: N818 - not an error of anybody
    """Nobody is signed in, or not any more."""


class PageRoute(APIRoute):
    """A route whose errors are pages, and whose responses have the headers of `protection`."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """The handler of FastAPI, with ours around it."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            try:
                response: Response = await handle(request)
            except SignInNeeded:
                response = _to_sign_in(request)
            except (RequestValidationError, HTTPException) as error:
                response = _problem(request, _wrong_request(error), getattr(error, "status_code", 400))
            except TailraceError as error:
                response = _problem(request, error, status_of(error))
            protect(response.headers)
            return response

        return handle_page


class Site:
    """What the pages work with.

    Args:
        control: the operations of the control plane.
        stopping: ends live parts once it is set.
    """

    def __init__(self, control: Control, stopping: threading.Event) -> None:
        self.control = control
        self.stopping = stopping
        self.database = control.database
        self.sampler = Sampler(control.database)

    def known(self, token: str) -> Viewer | None:
        """Whom a token or a session names; None: nobody."""
        found = self.control.signed_in(token)
        return None if found is None else Viewer(found.name, found.scope, token)

    def viewer(self, request: Request) -> Viewer:
        """Who looks at the page.

        Raises:
            SignInNeeded: nobody who is known.
        """
        secret = cookie(request)
        found = None if secret is None else self.known(secret)
        if found is None:
            raise SignInNeeded
        request.state.viewer = found
        return found

    def acting(self, request: Request, form_token: str, needed: Scope = Scope.READ) -> Viewer:
        """Who sent a form of ours.

        Args:
            request: the request.
            form_token: the token in the form.
            needed: what the sender must be allowed to do.

        Raises:
            SignInNeeded: nobody who is known.
            ControlError: it is not a form of ours, or the sender's token does not allow it.
        """
        found = self.viewer(request)
        require_own_form(request, found.secret, form_token)
        require(found, needed)
        return found


def require(viewer: Viewer, needed: Scope) -> None:
    """Refuse what a viewer's token does not allow.

    Raises:
        ControlError: it does not.
    """
    if not viewer.scope.allows(needed):
        raise ControlError(
            "the token does not allow that",
            f"token `{viewer.name}` has scope `{viewer.scope}`, needed: `{needed}`",
            "sign in with another token",
            code="TR-8464",
        )


def is_private(request: Request) -> bool:
    """Whether the browser speaks TLS, to this server or to a proxy in front of it.

    A proxy hides that, except in the origin of forms.
    """
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def cookie_name(request: Request, what: str = "") -> str:
    """The name of a new cookie: with TLS, browsers take one of this name from no other host and path."""
    return f"{'__Host-' if is_private(request) else ''}tailrace{what}"


def cookie(request: Request, what: str = "") -> str | None:
    """What a cookie of ours holds; None: there is none."""
    found = request.cookies.get(f"__Host-tailrace{what}")
    if found is None and request.url.scheme != "https":  # TLS, if any, ends at a proxy
        found = request.cookies.get(f"tailrace{what}")
    return found


def status_of(error: TailraceError) -> int:
    """The status of a response that shows an error."""
    if isinstance(error, TransientControlError):
        return 503
    return _STATUS.get(error.code or "", 409 if isinstance(error, ControlError | StateError) else 400)


def live(site: Site, request: Request, parts: Callable[[], Mapping[str, str]]) -> EventSourceResponse:
    """Parts of a page, each sent when it has changed.

    Args:
        site: the pages.
        request: the request; the stream ends with it.
        parts: makes all of them, by name; called in a thread. If it cannot, the part `trouble` says why.
    """

    async def changes() -> AsyncIterator[ServerSentEvent]:
        shown: dict[str, str] = {}
        while not (site.stopping.is_set() or await request.is_disconnected()):
            try:
                found = dict(await run_in_threadpool(parts))
            except SignInNeeded:
                return  # the browser tries again, and gets 401
            except TailraceError as error:  # the database does not answer, or somebody has removed it
                found = {"trouble": _trouble(request, error)}
            else:
                found["trouble"] = _trouble(request, None)
            for name, text in found.items():
                if shown.get(name) != text:
                    shown[name] = text
                    yield ServerSentEvent(text, event=name)
            for _ in range(LIVE_STEPS):
                if not site.stopping.is_set():
                    await anyio.sleep(LIVE_S / LIVE_STEPS)

    return EventSourceResponse(changes(), headers={"cache-control": "no-store"})


def _trouble(request: Request, error: TailraceError | None) -> str:
    return fragment(request, "trouble.html", {"viewer": None, "error": error})


def show(request: Request, viewer: Viewer | None, template: str, **values: Any) -> Response:
    """A page as a response."""
    return page(request, template, {"viewer": viewer, **values})


def part(request: Request, viewer: Viewer, template: str, **values: Any) -> str:
    """A part of a page as text."""
    return fragment(request, template, {"viewer": viewer, **values})


def to(request: Request, path: str) -> RedirectResponse:
    """A response that sends the browser to another page, by GET."""
    return RedirectResponse(request.scope.get("root_path", "") + path, 303)


def _to_sign_in(request: Request) -> Response:
    is_part = request.url.path.startswith("/live/") or "hx-request" in request.headers
    if is_part or request.headers.get("accept", "").startswith("application/json"):
        return Response(status_code=401)
    response = to(request, "/sign-in")
    if request.method == "GET" and request.url.path != "/":
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        response = to(request, "/sign-in?" + urlencode({"next": asked}))
    return response


def _problem(request: Request, error: TailraceError, status: int) -> Response:
    heading = "Not found" if status == 404 else "This did not work"
    viewer = getattr(request.state, "viewer", None)
    values = {"viewer": viewer, "form_token": "", "heading": heading, "problem": error}
    return page(request, "problem.html", values, status)


def _wrong_request(error: RequestValidationError | HTTPException) -> TailraceError:
    if isinstance(error, HTTPException):
        return ConfigError("the request is wrong", str(error.detail), code="TR-8463")
    fields = ", ".join(f"`{found['loc'][-1]}`" for found in error.errors())
    return ConfigError("the request is wrong", f"found a wrong value of {fields}", code="TR-8463")
