"""Signing in with a token or through a provider, and out.

The session's cookie holds the token itself: a token that is revoked or ends takes its sessions with it, every
server on the database knows every session, and there is no further secret to keep. Who signs in through a
provider gets a session of `control.sessions`. Scripts cannot read the cookie, and browsers send it with
requests of our own pages alone: not when the provider sends them back, so that the page after that leads on.
"""

from __future__ import annotations

import math
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from fastapi.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from tailrace.control.oidc.sign_on import CALLBACK, SIGN_IN, SignOn
from tailrace.control.pages.protection import form_token_of, require_own_form
from tailrace.control.pages.site import (
    SESSION_S,
    PageRoute,
    Site,
    cookie,
    cookie_name,
    is_private,
    show,
    status_of,
    to,
)
from tailrace.control.sessions import is_session
from tailrace.errors import ControlError, TailraceError, TransientControlError

#: The cookie of a form that is sent before there is a session.
_BEFORE = "-before"
#: The cookie of somebody whom the provider is about to send back.
_UNDER_WAY = "-under-way"
_HELP = "A server prints a token when it first starts. For more of them: tailrace token create"


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get(SIGN_IN)
    def sign_in_page(request: Request, next: str = "/", out: bool = False) -> Response:  # noqa: A002
        return _form(site, request, _inside(next), is_out=out)

    @router.post(SIGN_IN)
    def sign_in(
        request: Request,
        token: Annotated[str, Form(max_length=10_000)],
        form_token: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = "/",  # noqa: A002
    ) -> Response:
        before = cookie(request, _BEFORE) or ""
        address = _address(request)
        token = token.strip()
        try:
            require_own_form(request, before, form_token)
            _require_few(site.control.attempts.wait_s(address))
            if site.known(token) is None:
                site.control.attempts.wrong(address)
                raise ControlError(
                    "the token is not known",
                    "it is wrong, or has ended",
                    "check that all of it was copied; see the tokens: tailrace token list",
                    code="TR-8462",
                )
        except TailraceError as error:
            return _form(site, request, _inside(next), error)
        response = to(request, _inside(next))
        _set(request, response, cookie_name(request), token, SESSION_S)
        _forget(response, _BEFORE)
        return response

    @router.get("/sign-in/oidc")
    def to_provider(request: Request, next: str = "/") -> Response:  # noqa: A002
        sign_on = _sign_on(site)
        secret = sign_on.new_secret()
        try:
            _require_few(site.control.attempts.wait_s(_address(request)))
            response = RedirectResponse(sign_on.start(secret), 303)
        except TailraceError as error:
            return _form(site, request, _inside(next), error)
        # sent along when the provider sends the browser back, which `strict` would not be
        value = f"{secret}.{urlsafe_b64encode(_inside(next).encode()).decode()}"
        _set(request, response, cookie_name(request, _UNDER_WAY), value, 600, same_site="lax")
        return response

    @router.get(CALLBACK)
    def from_provider(request: Request) -> Response:
        sign_on = _sign_on(site)
        secret, _, given = (cookie(request, _UNDER_WAY) or "").partition(".")
        next_ = _inside(_decoded(given))
        address = _address(request)
        try:
            _require_few(site.control.attempts.wait_s(address))
            if not secret:
                raise _not_under_way()
            person = sign_on.finish(secret, request.query_params)
        except TailraceError as error:
            if not isinstance(error, TransientControlError):
                site.control.attempts.wrong(address)
            response = _form(site, request, next_, error)
        else:
            response = show(request, None, "signed_in.html", next=next_, name=person.name)
            age_s = int(sign_on.settings.session_hours * 3600)
            _set(request, response, cookie_name(request), site.control.sign_in(person), age_s)
            _forget(response, _BEFORE)
        _forget(response, _UNDER_WAY)
        return response

    @router.post("/sign-out")
    def sign_out(request: Request, form_token: Annotated[str, Form()] = "") -> Response:
        secret = site.acting(request, form_token).secret
        site.control.sign_out(secret)
        # not to the provider at once: forms of our pages lead nowhere else (`form-action`)
        response = to(request, f"{SIGN_IN}?out=1" if is_session(secret) else SIGN_IN)
        response.headers["clear-site-data"] = '"cache", "storage"'
        _forget(response)
        return response

    return router


def _form(
    site: Site,
    request: Request,
    next_: str,
    problem: TailraceError | None = None,
    *,
    is_out: bool = False,
) -> Response:
    secret = cookie(request, _BEFORE) or secrets.token_urlsafe(32)
    response = show(
        request,
        None,
        "sign_in.html",
        form_token=form_token_of(secret),
        next=next_,
        problem=problem,
        help=_HELP,
        provider=None if site.control.sign_on is None else site.control.sign_on.settings.name,
        sign_out=_sign_out(site) if is_out else None,
    )
    if problem is not None:
        response.status_code = status_of(problem)
    _set(request, response, cookie_name(request, _BEFORE), secret, 3600)
    return response


def _sign_out(site: Site) -> str | None:
    """Where the provider has people sign out; None: it does not say so, or not now."""
    try:
        return None if site.control.sign_on is None else site.control.sign_on.sign_out()
    except TransientControlError:
        return None


def _require_few(wait_s: float) -> None:
    if wait_s > 0:
        raise ControlError(
            "too many wrong tokens",
            "found several from this address within a minute",
            f"try again in {math.ceil(wait_s)} s",
            code="TR-8461",
        )


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _sign_on(site: Site) -> SignOn:
    if site.control.sign_on is None:
        raise HTTPException(404, "there is no provider to sign in with")
    return site.control.sign_on


def _not_under_way() -> ControlError:
    return ControlError(
        "nobody is about to sign in here",
        "it took too long, or cookies are blocked",
        "sign in again",
        code="TR-8474",
    )


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(text).decode()
    except ValueError:
        return "/"


def _set(
    request: Request,
    response: Response,
    name: str,
    value: str,
    age_s: int,
    *,
    same_site: Literal["strict", "lax"] = "strict",
) -> None:
    response.set_cookie(
        name,
        value,
        max_age=age_s,
        httponly=True,
        samesite=same_site,
        secure=is_private(request),
    )


def _forget(response: Response, what: str = "") -> None:
    for prefix in ("", "__Host-"):
        response.set_cookie(
            f"{prefix}tailrace{what}", "", max_age=0, httponly=True, samesite="strict", secure=bool(prefix)
        )


def _inside(path: str) -> str:
    """`path` if it is one of ours. Browsers read two slashes, of either kind, as another host."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
