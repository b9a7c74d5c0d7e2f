"""In front of a server: the names by which clients reach it, and the proxies that it believes.

A page of another site can have its own name stand for this server's address (DNS rebinding): the browser then
takes both for one site. Such a request carries the other site's name in `Host`, and is refused. Allowed are:

    addresses, `localhost`          no name stands for anything else in them
    the host of --listen            and the machine's own name
    the names of the certificate    and those of --public-url and --public-host

`/healthz` and `/readyz` are answered under any name: they say nothing.

A proxy hides its clients: all of them would share one limit of wrong tokens. `X-Forwarded-For` and
`X-Forwarded-Proto` are believed if the connection comes from a proxy of --trusted-proxy, else never.
"""

from __future__ import annotations

import ipaddress
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tailrace.config.hosts import is_name, matches
from tailrace.control.api import problems
from tailrace.errors import ConfigError, ControlError

#: Paths that are answered under any name.
_OPEN = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True)
class Front:
    """What is in front of a server.

    Args:
        url: the address that browsers use, `https://HOST[:PORT]`; None: the one that it listens on.
        names: further names by which it is reached; patterns as in `config.hosts`.
        proxies: addresses and networks of proxies.

    Raises:
        ConfigError: one of them is wrong.
    """

    url: str | None = None
    names: Sequence[str] = ()
    proxies: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.url is not None and not _is_origin(self.url):
            raise _wrong("--public-url", self.url, "https://HOST or https://HOST:PORT")
        for name in self.names:
            if name != "*" and not is_name(name.removeprefix("*.")):
                raise _wrong("--public-host", name, "NAME, *.DOMAIN or *, without a port")
        for proxy in self.proxies:
            if not _is_network(proxy):
                raise _wrong("--trusted-proxy", proxy, "an address or a network, e.g. 10.0.0.7 or 10.0.0.0/8")

    def before(self, app: ASGIApp, host: str, certificate: Path | None) -> ASGIApp:
        """An application behind what checks names and believes proxies.

        Args:
            app: the application.
            host: on which it listens.
            certificate: file of its certificate; None: it has none.
        """
        names = ["localhost", host, platform.node(), *self.names]
        if certificate is not None:
            names += _names_of(certificate)
        public = None if self.url is None else urlsplit(self.url)
        private = None
        if public is not None:
            names.append(public.hostname or "")
            private = public.hostname if public.scheme == "https" else None
        checked = NameCheck(app, [name for name in names if name], private)
        if not self.proxies:
            return checked
        return ProxyHeadersMiddleware(checked, list(self.proxies))  # type: ignore[arg-type,return-value]


class NameCheck:
    """Middleware of ASGI that refuses requests under other names.

    Args:
        app: what it guards.
        names: patterns of names.
        private: the name that browsers use with TLS, wherever that ends; None: there is none.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str], private: str | None = None) -> None:
        self._app = app
        self._names = tuple(names)
        self._private = private

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        host = _given(scope)
        if scope["type"] == "http" and scope["path"] not in _OPEN and not self._is_ours(host):
            error = ControlError(
                "this server is not reached under that name",
                "found another name in the header `Host`",
                "the server's administrator allows names: tailrace serve --public-url https://HOST, or "
                "--public-host HOST",
                code="TR-8471",
            )
            await problems.response(421, error, {"cache-control": "no-store"})(scope, receive, send)
            return
        if host is not None and host == self._private and scope["scheme"] == "http":
            scope["scheme"] = "https"  # cookies are to be `Secure`
        await self._app(scope, receive, send)

    def _is_ours(self, host: str | None) -> bool:
        return host is not None and (_is_address(host) or any(matches(host, name) for name in self._names))


def _given(scope: Scope) -> str | None:
    """The host of the one header `Host` of a request."""
    given = [value for name, value in scope.get("headers", ()) if name == b"host"]
    return _host(given[0].decode("latin-1")) if len(given) == 1 else None


def _host(text: str) -> str | None:
    """The host of `HOST[:PORT]`; None: it is none."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        return inside if bracket and _is_address(inside) and _is_port(rest) else None
    name, colon, port = text.partition(":")
    if not is_name(name) or not _is_port(colon + port):
        return None
    return name.rstrip(".").lower()


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and (text[1:].isdecimal() or text == ":"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    rest = (parts.path.rstrip("/"), parts.query, parts.fragment)
    return (
        parts.scheme in ("http", "https")
        and host is not None
        and is_name(host)
        and "@" not in parts.netloc
        and not any(rest)
    )


def _names_of(certificate: Path) -> list[str]:
    """The names of a certificate's host; uvicorn has read the file already."""
    found = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _wrong(option: str, found: str, needed: str) -> ConfigError:
    return ConfigError(f"`{option}` is wrong", f"found `{found}`", f"needed: {needed}", code="TR-8478")
