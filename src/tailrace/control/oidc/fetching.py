"""Requests to a provider: with TLS, no redirects, and bounded in time and size.

A provider that hangs, sends a byte now and then, or never stops, must not keep a thread of the server.
"""

from __future__ import annotations

import json
import time
from typing import Any

import requests
from authlib.integrations.requests_client import OAuth2Session
from urllib3.exceptions import HTTPError

from tailrace.control.oidc.settings import OidcSettings
from tailrace.errors import TransientControlError

#: How long connecting, and waiting for a part of an answer, may take, seconds.
_PART_S = 5.0
#: How long a whole answer may take, seconds.
_WHOLE_S = 10.0
#: Most bytes of an answer: documents have some kB.
_MOST = 1 << 20


class ProviderSession(OAuth2Session):  # type: ignore[misc]
    """A client of the provider.

    Args:
        settings: which provider.
        authentication: how the client names itself to it, as OAuth calls it.
        redirect: where it sends the browser back to.
    """

    def __init__(
        self, settings: OidcSettings, authentication: str = "none", redirect: str | None = None
    ) -> None:
        secret = settings.client_secret
        super().__init__(
            settings.client_id,
            None if secret is None else secret.resolve("`client-secret` of `--oidc`"),
            token_endpoint_auth_method=authentication,
            redirect_uri=redirect,
            scope=" ".join(settings.scopes),
            code_challenge_method="S256",
        )
        if settings.ca is not None:
            self.verify = str(settings.ca)

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> requests.Response:
        """A request as Authlib and `document` make it, with the bounds of this module."""
        until_s = time.monotonic() + _WHOLE_S
        kwargs |= {"timeout": _PART_S, "stream": True, "allow_redirects": False}
        kwargs["headers"] = {**(kwargs.get("headers") or {}), "Accept-Encoding": "identity"}
        try:
            response: requests.Response = super().request(method, url, *args, **kwargs)
            with response:
                response._content = _content(response, until_s)  # noqa: SLF001 - what `content` returns
        except requests.RequestException as error:
            raise unusable(_why(error)) from None
        except (OSError, HTTPError) as error:  # while it was read
            raise unusable(type(error).__name__) from None
        return response

    def document(self, url: str) -> dict[str, Any]:
        """A JSON object of the provider.

        Raises:
            TransientControlError: it cannot be had.
        """
        response = self.request("GET", url, withhold_token=True, headers={"Accept": "application/json"})
        if response.status_code != requests.codes.ok:
            raise unusable(f"status {response.status_code}")
        try:
            found = json.loads(response.content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise unusable("an answer that is no JSON object")
        return found


def unusable(found: str) -> TransientControlError:
    """The error of a provider that cannot be used now."""
    return TransientControlError(
        "the provider for signing in cannot be used",
        f"found {found}",
        "see that this server reaches it, and `issuer` and `ca` of --oidc; tokens of this control plane work",
        code="TR-8473",
    )


def _content(response: requests.Response, until_s: float) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise unusable("an answer that is compressed")
    content = bytearray()
    while True:
        # what one `recv` has: a part that trickles in would not be seen otherwise
        part = response.raw.read1(_MOST)
        if not part:
            return bytes(content)
        content += part
        if len(content) > _MOST:
            raise unusable("an answer that is too large")
        if time.monotonic() > until_s:
            raise unusable("an answer that takes too long")


def _why(error: requests.RequestException) -> str:
    """The kind of an error alone: its text may have the address, and that a code."""
    if isinstance(error, requests.exceptions.SSLError):
        return "a certificate that is not trusted"
    return "no answer" if isinstance(error, requests.ConnectionError | requests.Timeout) else "a wrong answer"
