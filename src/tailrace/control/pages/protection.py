"""What keeps other sites, and other people's text, from using a signed-in browser.

* Headers: nothing is loaded from elsewhere, no script or style is inline, no other site may frame a page.
* Every form carries a token that is made from the session's secret: another site cannot know it. A request
  that changes something is refused without it, and also if the browser says that another site sent it.

Wrong tokens are counted by `tokens.Attempts`, together with those of the API.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import MutableHeaders

from tailrace.errors import ControlError

_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With `no-referrer`, browsers would leave the origin out of forms as well.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def protect(headers: MutableHeaders) -> None:
    """Add the headers of every page; what a response says itself about caching stays."""
    for name, value in _HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", "no-store")


def form_token_of(secret: str) -> str:
    """The token of the forms of a session.

    Args:
        secret: what the session's cookie holds.
    """
    return hmac.new(secret.encode(), b"tailrace form token", "sha256").hexdigest()


def require_own_form(request: Request, secret: str, given: str) -> None:
    """Refuse a form that does not come from a page of ours.

    Args:
        request: the request.
        secret: what the session's cookie holds.
        given: the token in the form.

    Raises:
        ControlError: it is from another site, or of an earlier session.
    """
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if foreign or site not in ("same-origin", "none"):
        raise ControlError(
            "the form comes from another site",
            "found another origin than that of this server",
            "open the page again here. Behind a proxy: let it pass on the header `Host`",
            code="TR-8460",
        )
    if not hmac.compare_digest(form_token_of(secret).encode(), given.encode()):
        raise ControlError(
            "the form is of another session",
            "somebody has signed in or out since it was opened, or cookies are blocked",
            "go back, load the page again and send the form once more",
            code="TR-8460",
        )
