"""A provider: what it says of itself, its keys, and whether it has signed a token.

    discovery   read at first use, again after an hour
    keys        likewise; earlier for a token that names an unknown key, but not again and again
    signature   asymmetric algorithms alone: with HS256, whoever knows a public key could sign

Keys that a token brings along (`jwk`, `jku`, `x5u`) are not looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key
from joserfc.jws import JWSRegistry

from tailrace.control.oidc.fetching import ProviderSession, unusable
from tailrace.control.oidc.settings import OidcSettings, is_safe_url
from tailrace.errors import ControlError

PublicKey = RSAKey | ECKey | OKPKey
#: What a signature may be made with: kind of key, and its curve.
_ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
_LEAST_RSA_BITS = 2048
#: How long what was fetched is good for, seconds.
_GOOD_S = 3600.0
#: The least time between two fetches of keys, seconds.
_AGAIN_S = 20.0
#: Most characters of a token, and most keys.
_MOST_TOKEN = 32_000
_MOST_KEYS = 100


@dataclass(frozen=True)
class ProviderDescription:
    """What a provider says of itself.

    Args:
        authorization: where it has people sign in.
        token: where it exchanges a code for tokens.
        keys: where its keys are.
        authentication: how clients with a secret name themselves.
        names_itself: whether it says who it is when it sends somebody back.
        sign_out: where it has people sign out; None: it names no such address.
    """

    authorization: str
    token: str
    keys: str
    authentication: str
    names_itself: bool
    sign_out: str | None


class Provider:
    """A provider.

    Args:
        settings: which one.
        clock: monotonic seconds.
    """

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._described: tuple[ProviderDescription, float] | None = None
        self._keys: tuple[list[PublicKey], float] | None = None

    def described(self) -> ProviderDescription:
        """What it says of itself.

        Raises:
            TransientControlError: it cannot be asked, or says what cannot be right.
        """
        with self._lock:
            return self._description()

    def verified(self, token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Header and claims of a token that it has signed; the claims are not looked at.

        Raises:
            ControlError: it has not.
            TransientControlError: its keys cannot be had.
        """
        if len(token) > _MOST_TOKEN:
            raise refused("it is too long")
        registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
        registry.max_header_length = registry.max_payload_length = _MOST_TOKEN
        try:
            found = jwt.decode(token, lambda signed: self._key(signed.headers()), registry=registry)
        except JoseError as error:
            raise refused(f"its signature or form is wrong ({type(error).__name__})") from None
        except (ValueError, TypeError, RecursionError):  # bytes that are neither base64 nor JSON
            raise refused("its form is wrong") from None
        return found.header, found.claims

    def _description(self) -> ProviderDescription:
        if self._described is None or self._clock() - self._described[1] >= _GOOD_S:
            issuer = self.settings.issuer
            found = self._document(get_well_known_url(issuer, external=True))
            if found.get("issuer") != issuer:
                raise unusable("another issuer than `issuer` names")
            self._described = _described(found), self._clock()
        return self._described[0]

    def _key(self, header: Mapping[str, Any]) -> PublicKey:
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise refused("its algorithm is not allowed")
        if not isinstance(kid, str | None):
            raise refused("the name of its key is no text")
        with self._lock:
            found = self._matching(algorithm, kid, _GOOD_S)
            if not found:
                found = self._matching(algorithm, kid, _AGAIN_S)  # it may have a new key
        if len(found) != 1:
            raise refused("no key of the provider is the one that it names")
        return found[0]

    def _matching(self, algorithm: str, kid: str | None, age_s: float) -> list[PublicKey]:
        if self._keys is None or self._clock() - self._keys[1] >= age_s:
            listed = self._document(self._description().keys).get("keys")
            if not isinstance(listed, list):
                raise unusable("no list of keys")
            self._keys = (
                [key for key in map(_public_key, listed[:_MOST_KEYS]) if key is not None],
                self._clock(),
            )
        return [key for key in self._keys[0] if _fits(key, algorithm) and kid in (None, key.kid)]

    def _document(self, url: str) -> dict[str, Any]:
        with ProviderSession(self.settings) as session:
            found: dict[str, Any] = session.document(url)
            return found


def refused(why: str) -> ControlError:
    """The error of a token that is not the provider's, not for us, or not any more."""
    return ControlError(
        "the provider's token is refused",
        why,
        "sign in again, or get a new token; see `issuer`, `client-id` and `api-audience` of --oidc",
        code="TR-8474",
    )


def _described(found: Mapping[str, Any]) -> ProviderDescription:
    authorization, token, keys = (
        str(found.get(name)) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    )
    if not all(map(is_safe_url, (authorization, token, keys))):
        raise unusable("an address without TLS in what it says of itself")
    methods = found.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise unusable("no PKCE with S256")
    # the default is OAuth's
    ways = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    way = "client_secret_post" if "client_secret_basic" not in ways else "client_secret_basic"
    names_itself = found.get("authorization_response_iss_parameter_supported") is True
    sign_out = found.get("end_session_endpoint")
    return ProviderDescription(
        *(authorization, token, keys, way, names_itself), sign_out if is_safe_url(sign_out) else None
    )


def _public_key(given: object) -> PublicKey | None:
    """A key that may have signed; None: it is for something else, or weak, or none."""
    if not isinstance(given, dict) or given.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if given.get("use", "sig") != "sig" or "d" in given:
        return None
    try:
        key = import_key(given)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAKey):
        return key if key.raw_value.key_size >= _LEAST_RSA_BITS else None
    return key if isinstance(key, ECKey | OKPKey) else None


def _fits(key: PublicKey, algorithm: str) -> bool:
    kind, curve = _ALGORITHMS[algorithm]
    is_kind = key.key_type == kind and (curve is None or key.get("crv") == curve)
    return is_kind and key.alg in (None, algorithm)
