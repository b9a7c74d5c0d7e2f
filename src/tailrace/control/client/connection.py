"""Requests to a server of the control plane, and its errors as ours."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from tailrace.errors import ConfigError, TailraceError, TransientControlError, from_json

_F = TypeVar("_F", bound=Callable[..., Any])
#: Where the server and the token are, if no option says so.
SERVER = "TAILRACE_SERVER"
TOKEN = "TAILRACE_TOKEN"  # noqa: S105 - a name
_PREFIX = "/api/v1"
#: How long an answer may take, seconds: a check of a file starts a Spark.
_ANSWER_S = 180.0
#: Most bytes of an answer.
_MOST = 64 << 20


@dataclass(frozen=True)
class ApiClient:
    """A client of the API; each request has a connection of its own.

    Args:
        url: the server, `https://HOST:PORT`.
        token: the token.
        ca: a PEM file of authorities that the server's certificate is checked by; None: the machine's.
        answer_s: how long an answer may take, seconds.
    """

    url: str
    token: str = field(repr=False)
    ca: str | None = None
    answer_s: float = _ANSWER_S

    def get(self, path: str, **query: Any) -> Any:
        """What a GET answers; parameters that are None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        return self.send("GET", path + (f"?{urlencode(given)}" if given else ""))

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request.

        Args:
            method: of HTTP.
            path: below `/api/v1`.
            body: JSON values; None: there is none.
            headers: further headers.

        Returns:
            The answer's JSON values; None: there are none.

        Raises:
            TailraceError: the server refuses it.
            TransientControlError: the server does not answer.
        """
        connection = self._connection()
        content = None if body is None else json.dumps(body).encode()
        sent = {"authorization": f"Bearer {self.token}", "accept": "application/json", **(headers or {})}
        if content is not None:
            sent["content-type"] = "application/json"
        try:
            connection.request(method, _base(self.url) + _PREFIX + path, content, sent)
            answer = connection.getresponse()
            text = answer.read(_MOST)
        except (OSError, http.client.HTTPException) as error:
            raise TransientControlError(
                f"server `{self.url}` does not answer",
                f"{type(error).__name__}: {error}",
                f"see that `tailrace serve` runs there, and that {SERVER} or --server is right",
                code="TR-8443",
            ) from None
        finally:
            connection.close()
        if 200 <= answer.status < 300:
            return json.loads(text) if text else None
        raise _error(answer.status, text, self.url)

    def subscriptions(self, **query: Any) -> Iterator[dict[str, Any]]:
        """All subscriptions, in the order of their names."""
        after = ""
        while True:
            page = self.get("/subscriptions", after=after, limit=500, **query)
            yield from page["items"]
            if page["next"] is None:
                return
            after = page["next"]

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca)
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.answer_s, context=context
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.answer_s)


def of_subscription(name: str, *rest: str) -> str:
    """The path of a subscription, and of what is below it."""
    return "/".join(["/subscriptions", quote(name, safe=""), *rest])


def client(server: str | None, token_file: Path | None, ca: Path | None) -> ApiClient:
    """The client that options and variables describe.

    Raises:
        ConfigError: server or token is missing, or wrong.
    """
    url = (server or os.environ.get(SERVER) or "").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
        raise ConfigError(
            "the server of the control plane is not named" if not url else "the server's address is wrong",
            "needed: http://HOST:PORT or https://HOST:PORT",
            f"export {SERVER}=https://HOST:PORT, or give --server",
            code="TR-8442",
        )
    return ApiClient(url, _token(token_file), None if ca is None else str(ca))


def client_options(command: _F) -> _F:
    """Add the options of a client to a command; it gets `server`, `token_file` and `ca`."""
    for decorate in (
        click.option(
            "--ca",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            envvar="TAILRACE_CA",
            help="PEM file of the authorities that the server's certificate is checked by.",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help=f"File with the token; default: {TOKEN}.",
        ),
        click.option(
            "--server",
            metavar="URL",
            help=f"Server of the control plane; default: {SERVER}. NAME is then a subscription's.",
        ),
    ):
        command = decorate(command)
    return command


def _token(file: Path | None) -> str:
    if file is None:
        found = os.environ.get(TOKEN, "")
    else:
        try:
            found = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"token file `{file}` cannot be read", reason, code="TR-8442") from None
    found = found.strip()
    if not found.startswith("tr_") or not found.isascii() or not found.isprintable():
        raise ConfigError(
            "the token is missing" if not found else "the token is wrong",
            "needed: `tr_` and 43 characters",
            f"export {TOKEN}=tr_..., or give --token-file",
            code="TR-8442",
        )
    return found


def _base(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _error(status: int, text: bytes, url: str) -> TailraceError:
    """The error that a server has answered."""
    try:
        problem = json.loads(text)
        kind = "ConfigError" if status in (400, 422) else "ControlError"
        parts = [problem["title"], problem.get("detail"), problem.get("hint"), problem.get("code"), None]
        return from_json(json.dumps([kind, *parts]))
    except (ValueError, TypeError, KeyError):
        return TransientControlError(
            f"server `{url}` does not answer as the control plane does",
            f"found status {status}",
            "see that its address is that of `tailrace serve`",
            code="TR-8443",
        )
