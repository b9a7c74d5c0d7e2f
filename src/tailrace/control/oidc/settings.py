"""The file of `tailrace serve --oidc`: which provider, and who may do what.

issuer: https://login.example/realms/main
client-id: tailrace
client-secret: ${env:TAILRACE_OIDC_SECRET}    left out: a public client
read: {groups: [staff]}                       claims and their values, by scope; '*': any value
admin: {groups: [data-platform]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tailrace.config.document import read_document
from tailrace.config.hosts import is_loopback
from tailrace.config.secret import Secret
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError

_KEYS = frozenset(
    {
        *("issuer", "client-id", "client-secret", "name", "scopes", "who", "session-hours", "api-audience"),
        *("ca", *Scope),
    }
)
#: Values of a claim that grant a scope, by claim.
Grant = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class OidcSettings:
    """A provider, and who may do what.

    Args:
        issuer: its address, exactly as its tokens name it.
        client_id: how it knows this control plane.
        client_secret: the secret that goes with it; None: a public client.
        grants: which values of which claims grant a scope.
        name: what the page calls it.
        scopes: what is asked of it.
        who: the claim that the audit names people by.
        session_hours: how long somebody is signed in.
        api_audience: the audience of access tokens that the API takes; None: it takes none.
        ca: file of authorities that its certificate is checked by; None: the machine's.
    """

    issuer: str
    client_id: str
    client_secret: Secret | None
    grants: Mapping[Scope, Grant] = field(default_factory=dict)
    name: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    who: str = "email"
    session_hours: float = 8.0
    api_audience: str | None = None
    ca: Path | None = None


def read_settings(file: Path) -> OidcSettings:
    """The settings in a file.

    Raises:
        ConfigError: it cannot be read, or a setting is wrong.
    """
    try:
        given = read_document(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise _wrong(f"file `{file}`", str(getattr(error, "strerror", None) or "no UTF-8")) from None
    if not isinstance(given, dict) or not given:
        raise _wrong(f"file `{file}`", "no settings", "issuer, client-id, and read, operate or admin")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise _wrong(f"`{unknown[0][:40]}`", "an unknown setting", ", ".join(sorted(_KEYS)))
    grants = {scope: _grant(scope, given[scope]) for scope in Scope if given.get(scope) is not None}
    if not grants:
        raise _wrong("the settings", "nobody who may do anything", "read, operate or admin")
    more: dict[str, Any] = {}
    for key in ("name", "who", "api-audience"):
        if key in given:
            more[key.replace("-", "_")] = _text(given, key)
    if "scopes" in given:
        more["scopes"] = tuple(dict.fromkeys(("openid", *_texts("scopes", given["scopes"]))))
    if "session-hours" in given:
        more["session_hours"] = _hours(given["session-hours"])
    if "ca" in given:
        more["ca"] = _existing(file.parent / _text(given, "ca"))
    return OidcSettings(
        _issuer(_text(given, "issuer")), _text(given, "client-id"), _secret(given), grants, **more
    )


def is_safe_url(url: object) -> bool:
    """Whether secrets may be sent to an address: with TLS, or to this machine."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def _issuer(text: str) -> str:
    if not is_safe_url(text) or "?" in text:
        raise _wrong("`issuer`", "an address that is not safe", "https://HOST/..., as its tokens name it")
    return text


def _secret(given: Mapping[str, Any]) -> Secret | None:
    if given.get("client-secret") is None:
        return None
    try:
        secret = Secret(_text(given, "client-secret"))
    except ValueError:
        secret = None
    if secret is None or not secret.is_reference:
        raise _wrong("`client-secret`", "something else than a reference", "${env:NAME} or ${file:PATH}")
    return secret


def _grant(scope: Scope, given: object) -> Grant:
    if not isinstance(given, dict) or not given:
        raise _wrong(f"`{scope}`", "no claims", "CLAIM: [VALUE, ...], e.g. groups: [staff]")
    return {str(claim): frozenset(_texts(f"{scope}.{claim}", values)) for claim, values in given.items()}


def _hours(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 24 * 30:
        raise _wrong("`session-hours`", "another value", "more than 0, 720 at most")
    return math.ceil(given * 3600) / 3600


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise _wrong("`ca`", f"no file `{path}`")
    return path


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _wrong(f"`{key}`", "nothing" if value is None else "something else than a text", "a text")
    return value


def _texts(where: str, given: object) -> list[str]:
    values = given if isinstance(given, list) else [given]
    if not values or not all(isinstance(value, str) and value for value in values):
        raise _wrong(f"`{where}`", "something else than texts", "[VALUE, ...]")
    return [str(value) for value in values]


def _wrong(what: str, found: str, needed: str | None = None) -> ConfigError:
    hint = None if needed is None else f"needed: {needed}"
    return ConfigError(f"{what} of `--oidc` is wrong", f"found {found}", hint, code="TR-8472")
