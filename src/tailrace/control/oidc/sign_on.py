"""Signing in with a browser through the provider, and access tokens of programs.

    browser -> us         a secret in a cookie of ours; `state`, `nonce` and the verifier of PKCE are made of
                          it, so that no server has to remember who is about to sign in
    us -> provider        `state`, `nonce` and the challenge
    provider -> us        a code, and `state`: it must be of the cookie's secret
    us <-> provider       the code and the verifier, for an ID token: it must have the `nonce`

Who signs out here still is signed in at the provider, which would sign them in again without a question: the
page then leads to where the provider has people sign out (OpenID Connect RP-Initiated Logout 1.0).

A code alone is worth nothing: who has stolen one lacks the verifier, and who plants one lacks the state.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from authlib.common.errors import AuthlibBaseError

from tailrace.control.oidc.fetching import ProviderSession, unusable
from tailrace.control.oidc.identity import Person, of_access_token, of_id_token
from tailrace.control.oidc.provider import Provider, refused
from tailrace.control.oidc.settings import OidcSettings
from tailrace.errors import ControlError

#: Where people sign in, and where the provider sends browsers back to, below the address that browsers use.
SIGN_IN = "/sign-in"
CALLBACK = f"{SIGN_IN}/oidc/callback"
_ERROR = re.compile(r"[a-z_]{1,40}")


class SignOn:
    """What a server does with a provider.

    Args:
        settings: which provider.
        url: the address that browsers use.
        provider: it; None: that of the settings.
    """

    def __init__(self, settings: OidcSettings, url: str, provider: Provider | None = None) -> None:
        self.settings = settings
        self.redirect = url.rstrip("/") + CALLBACK
        self._after = url.rstrip("/") + SIGN_IN
        self._provider = provider or Provider(settings)

    @property
    def takes_access_tokens(self) -> bool:
        """Whether the API takes tokens of the provider."""
        return self.settings.api_audience is not None

    def new_secret(self) -> str:
        """A secret for the cookie of somebody who is about to sign in."""
        return secrets.token_urlsafe(32)

    def start(self, secret: str) -> str:
        """Where to send the browser.

        Args:
            secret: in its cookie.

        Raises:
            TransientControlError: the provider cannot be asked.
        """
        described = self._provider.described()
        with self._session("none") as session:
            url, _ = session.create_authorization_url(
                described.authorization,
                _of(secret, "state"),
                _of(secret, "verifier"),
                nonce=_of(secret, "nonce"),
            )
        return str(url)

    def sign_out(self) -> str | None:
        """Where somebody who has signed out here signs out at the provider; None: it has no such address.

        Raises:
            TransientControlError: the provider cannot be asked.
        """
        address = self._provider.described().sign_out
        if address is None:
            return None
        query = {"client_id": self.settings.client_id, "post_logout_redirect_uri": self._after}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    def finish(self, secret: str, answer: Mapping[str, str]) -> Person:
        """Who has signed in.

        Args:
            secret: in the browser's cookie.
            answer: the parameters with which the provider sent it back.

        Raises:
            ControlError: it is another browser's sign-in, it is refused, or they may do nothing here.
            TransientControlError: the provider does not answer.
        """
        if not hmac.compare_digest(_of(secret, "state").encode(), answer.get("state", "").encode()):
            raise refused("`state` is not that of this browser")
        described = self._provider.described()
        issuer = answer.get("iss")
        if issuer != self.settings.issuer and (issuer is not None or described.names_itself):
            raise refused("another provider has sent the browser back")
        if "code" not in answer:
            raise _not_signed_in(answer.get("error", ""))
        authentication = described.authentication if self.settings.client_secret is not None else "none"
        with self._session(authentication) as session:
            try:
                tokens = session.fetch_token(
                    described.token, code=answer["code"], code_verifier=_of(secret, "verifier")
                )
            except AuthlibBaseError as error:
                raise _not_signed_in(str(error.error)) from None
            except (ValueError, OSError):  # what `requests` raises for a status, too
                raise unusable("a wrong answer to a code") from None
        token, access = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(token, str):
            raise refused("there is no ID token: is `openid` among the scopes?")
        header, claims = self._provider.verified(token)
        return of_id_token(
            self.settings, header, claims, _of(secret, "nonce"), access if isinstance(access, str) else None
        )

    def of_access_token(self, token: str) -> Person:
        """Whom an access token names.

        Raises:
            ControlError: the API does not take it, or they may do nothing here.
            TransientControlError: the provider does not answer.
        """
        return of_access_token(self.settings, *self._provider.verified(token))

    def _session(self, authentication: str) -> ProviderSession:
        return ProviderSession(self.settings, authentication, self.redirect)


def _of(secret: str, what: str) -> str:
    """A value that belongs to a secret, and does not tell it; 43 characters, as a verifier must have."""
    digest = hmac.digest(secret.encode(), f"tailrace sign-in {what}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _not_signed_in(error: str) -> ControlError:
    found = f"`{error}`" if _ERROR.fullmatch(error) else "an error without a name"
    return ControlError(
        "the provider has not signed you in",
        f"found {found}",
        "try again; if it stays so: `client-id`, `client-secret` of --oidc, and at the provider the redirect "
        "address https://HOST" + CALLBACK,
        code="TR-8474",
    )
