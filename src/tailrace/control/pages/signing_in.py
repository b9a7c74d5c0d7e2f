"""Signing in with a token, and out.

The session's cookie holds the token itself: a token that is revoked or ends takes its sessions with it, every
server on the database knows every session, and there is no further secret to keep. Scripts cannot read the
cookie, and browsers send it with requests of our own pages alone.
"""

from __future__ import annotations

import math
import secrets
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

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
from tailrace.errors import ControlError, TailraceError

#: The cookie of a form that is sent before there is a session.
_BEFORE = "-before"
_HELP = "A server prints a token when it first starts. For more of them: tailrace token create"


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/sign-in")
    def sign_in_page(request: Request, next: str = "/") -> Response:  # noqa: A002 - as the address has it
        return _form(request, _inside(next))

    @router.post("/sign-in")
    def sign_in(
        request: Request,
        token: Annotated[str, Form(max_length=10_000)],
        form_token: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = "/",  # noqa: A002
    ) -> Response:
        before = cookie(request, _BEFORE) or ""
        address = request.client.host if request.client else ""
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
            return _form(request, _inside(next), error)
        response = to(request, _inside(next))
        _set(request, response, cookie_name(request), token, SESSION_S)
        _forget(response, _BEFORE)
        return response

    @router.post("/sign-out")
    def sign_out(request: Request, form_token: Annotated[str, Form()] = "") -> Response:
        site.acting(request, form_token)
        response = to(request, "/sign-in")
        response.headers["clear-site-data"] = '"cache", "storage"'
        _forget(response)
        return response

    return router


def _form(request: Request, next_: str, problem: TailraceError | None = None) -> Response:
    secret = cookie(request, _BEFORE) or secrets.token_urlsafe(32)
    response = show(
        request,
        None,
        "sign_in.html",
        form_token=form_token_of(secret),
        next=next_,
        problem=problem,
        help=_HELP,
    )
    if problem is not None:
        response.status_code = status_of(problem)
    _set(request, response, cookie_name(request, _BEFORE), secret, 3600)
    return response


def _require_few(wait_s: float) -> None:
    if wait_s > 0:
        raise ControlError(
            "too many wrong tokens",
            "found several from this address within a minute",
            f"try again in {math.ceil(wait_s)} s",
            code="TR-8461",
        )


def _set(request: Request, response: Response, name: str, value: str, age_s: int) -> None:
    response.set_cookie(
        name,
        value,
        max_age=age_s,
        httponly=True,
        samesite="strict",
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
