"""Who a token of the provider names, and what they may do here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oauth2.claims import JWTClaims
from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError

from tailrace.control.metadata.tables import MOST_NAME
from tailrace.control.oidc.provider import refused
from tailrace.control.oidc.settings import OidcSettings
from tailrace.control.tokens import Scope
from tailrace.errors import ControlError

#: What begins the name of somebody who signs in through the provider; no token is called so.
PREFIX = "oidc:"
#: How far the provider's clock may differ, seconds.
_LEEWAY_S = 30
#: Claims whose text is a list of words.
_WORDS = ("scope", "scp")
#: Claims that ID tokens have, and access tokens do not.
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash")
_ACCESS_TYPES = ("jwt", "at+jwt", "application/at+jwt")


@dataclass(frozen=True)
class Person:
    """Somebody, or a program, whom the provider knows.

    Args:
        name: for the audit.
        subject: how the provider knows them, for good.
        scope: what they may do here.
    """

    name: str
    subject: str
    scope: Scope


def of_id_token(
    settings: OidcSettings,
    header: Mapping[str, Any],
    claims: Mapping[str, Any],
    nonce: str,
    access: str | None,
) -> Person:
    """Whom an ID token names.

    Args:
        settings: of the provider, who has signed it.
        header: of the token.
        claims: likewise.
        nonce: what it must repeat.
        access: the access token that came with it.

    Raises:
        ControlError: it is not for this sign-in, or they may not do anything here.
    """
    params = {"nonce": nonce, "client_id": settings.client_id, "access_token": access}
    token = CodeIDToken(dict(claims), dict(header), _options(settings.issuer, settings.client_id), params)
    _require_valid(token)
    return _person(settings, claims)


def of_access_token(settings: OidcSettings, header: Mapping[str, Any], claims: Mapping[str, Any]) -> Person:
    """Whom an access token names, which the API takes.

    Raises:
        ControlError: it is not for this API, is no access token, or they may not do anything here.
    """
    if settings.api_audience is None:
        raise refused("`api-audience` of --oidc is not set: the API takes no tokens of the provider")
    kind = header.get("typ")
    is_access = kind is None or (isinstance(kind, str) and kind.lower() in _ACCESS_TYPES)
    if (
        not is_access
        or claims.get("typ") in ("ID", "Refresh")
        or any(name in claims for name in _OF_ID_TOKENS)
    ):
        raise refused("it is no access token")
    _require_valid(JWTClaims(dict(claims), dict(header), _options(settings.issuer, settings.api_audience)))
    return _person(settings, claims)


def _options(issuer: str, audience: str) -> dict[str, Any]:
    return {
        "iss": {"essential": True, "value": issuer},
        "aud": {"essential": True, "value": audience},
        "sub": {"essential": True},
        "exp": {"essential": True},
        "iat": {"essential": True},
    }


def _require_valid(token: JWTClaims) -> None:
    try:
        token.validate(leeway=_LEEWAY_S)
    except JoseError as error:
        claim = getattr(error, "claim", None)
        what = f"claim `{claim}`" if isinstance(claim, str) and claim.isidentifier() else "a claim"
        raise refused(f"{what} is wrong ({type(error).__name__})") from None
    except (ValueError, TypeError, OverflowError):
        raise refused("a claim has a wrong form") from None


def _person(settings: OidcSettings, claims: Mapping[str, Any]) -> Person:
    subject = str(claims["sub"])
    name = _name(settings, claims)
    held = [scope for scope, grant in settings.grants.items() if _holds(claims, grant)]
    if not held:
        overflow = isinstance(claims.get("_claim_names"), dict)
        raise ControlError(
            f"{name} may not do anything here",
            "the provider leaves groups out of the token, they are too many"
            if overflow
            else "no claim of the token has a value that `read`, `operate` or `admin` of --oidc names",
            "have the provider send roles in place of groups"
            if overflow
            else "become a member of a group that may, or have the provider send the claim",
            code="TR-8475",
        )
    return Person(name, subject, max(held, key=list(Scope).index))


def _name(settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    found = claims.get(settings.who)
    if settings.who == "email" and claims.get("email_verified") is not True:
        found = None  # anybody could have written it
    text = found if isinstance(found, str) and found and found.isprintable() else str(claims["sub"])
    if not text.isprintable() or len(PREFIX + text) > MOST_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        text = "".join(c for c in text if c.isprintable())[:64] + "~" + digest
    return PREFIX + text


def _holds(claims: Mapping[str, Any], grant: Mapping[str, frozenset[str]]) -> bool:
    for claim, values in grant.items():
        if claim == "email" and claims.get("email_verified") is not True:
            continue
        found = _values(claims, claim)
        if found & values or (found and "*" in values):
            return True
    return False


def _values(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """The texts of a claim; `realm_access.roles` is a claim in another one, unless one is called so."""
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        value = value.split() if claim in _WORDS else [value]
    return (
        frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
    )
