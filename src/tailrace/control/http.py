"""The address at which a server answers: the API and the page, over HTTP or HTTPS."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from tailrace.config.hosts import is_loopback
from tailrace.control.front import Front
from tailrace.errors import ConfigError

#: How long open answers (live parts of pages) may go on after the server was asked to end, seconds.
_END_S = 3


class HttpServer:
    """Serves an application in a thread; a context manager.

    Args:
        app: the application.
        address: `HOST:PORT`; port 0: a free one.
        certificate: file of the certificate, PEM; None: plain HTTP, on a loopback address only.
        key: file of its key.
        plain: whether plain HTTP is allowed on other addresses: a proxy in front of it has the certificate.
        front: names by which it is reached, and proxies.

    Raises:
        ConfigError: the address is wrong or taken, or a certificate is missing.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        certificate: Path | None = None,
        key: Path | None = None,
        *,
        plain: bool = False,
        front: Front | None = None,
    ) -> None:
        host, port = _parsed(address)
        if (certificate is None) != (key is None):
            raise ConfigError("certificate and key belong together", "give both", code="TR-8428")
        if certificate is None and not plain and not is_loopback(host):
            raise ConfigError(
                f"`--listen {address}` needs a certificate",
                "tokens would cross the network in clear text",
                "give --tls-cert and --tls-key; or --plain-http, if a proxy in front of it speaks TLS",
                code="TR-8428",
            )
        for path in (certificate, key):
            if path is not None and not path.is_file():
                raise ConfigError(f"file `{path}` does not exist", code="TR-8428")
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_keyfile=None if key is None else str(key),
        )
        try:
            config.load()  # fails here, not in the thread
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"certificate `{certificate}` or key `{key}` cannot be used",
                str(error),
                "needed: PEM files that belong together, the key without a password",
                code="TR-8428",
            ) from None
        # after the certificate was found to be one: its names are allowed
        config.loaded_app = (front or Front()).before(config.loaded_app, host, certificate)
        self._socket = _bound(host, port, address)
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if certificate is None else "https"
        #: Where it answers.
        self.url = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise ConfigError(
            "`--listen` is wrong",
            f"found `{address}`",
            "needed: HOST:PORT, e.g. 127.0.0.1:8770",
            code="TR-8427",
        )
    return host, int(port)


def _bound(host: str, port: int, address: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise ConfigError(
            f"`{address}` cannot be listened on",
            error.strerror or str(error),
            "take another port, or stop what uses it",
            code="TR-8427",
        ) from None
