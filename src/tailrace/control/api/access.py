"""Who asks, and whether the scope of the token is enough."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tailrace.control.api.problems import RefusedRequest
from tailrace.control.operations import Control
from tailrace.control.tokens import Scope, Token
from tailrace.errors import ControlError

_BEARER = HTTPBearer(auto_error=False, description="A token: `tr_...`, or an access token of the provider")


class Needs:
    """A dependency of a route: a token with a scope.

    Args:
        scope: that it needs.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(
        self,
        request: Request,
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> Token:
        """Who asks.

        Raises:
            RefusedRequest: nobody who is known, or who may.
        """
        control = control_of(request)
        if given is None:
            raise RefusedRequest(401, _unknown("a token is needed", "send it: Authorization: Bearer tr_..."))
        address = "" if request.client is None else request.client.host
        wait_s = control.attempts.wait_s(address)
        if wait_s > 0:
            error = ControlError(
                "too many wrong tokens came from this address", f"wait {wait_s:.0f} s", code="TR-8439"
            )
            raise RefusedRequest(429, error, {"retry-after": str(max(1, round(wait_s)))})
        try:
            found = control.authenticate(given.credentials)
        except ControlError as problem:
            if problem.code != "TR-8474":
                raise  # the provider does not answer, or whom it knows may do nothing here
            control.attempts.wrong(address)
            raise RefusedRequest(401, problem) from None
        if found is None:
            control.attempts.wrong(address)
            raise RefusedRequest(401, _unknown("the token is not known, or has ended", "use another one"))
        if not found.scope.allows(self.scope):
            error = ControlError(
                f"token `{found.name}` may not do this",
                f"it has scope `{found.scope}`, needed: `{self.scope}`",
                "use a token with that scope",
                code="TR-8438",
            )
            raise RefusedRequest(403, error)
        return found


def _unknown(what: str, hint: str) -> ControlError:
    return ControlError(what, None, hint, code="TR-8437")


def control_of(request: Request) -> Control:
    """The control plane of the application."""
    return cast("Control", request.app.state.control)


Reader = Annotated[Token, Depends(Needs(Scope.READ))]
Operator = Annotated[Token, Depends(Needs(Scope.OPERATE))]
Admin = Annotated[Token, Depends(Needs(Scope.ADMIN))]
Controlled = Annotated[Control, Depends(control_of)]
