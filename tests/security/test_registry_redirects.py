"""A broken schema registry: it redirects elsewhere, answers without end, or too late."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.formats.base import SchemaText
from tailrace.sinks import bounded_http
from tailrace.sinks.kafka import schema_registry
from tailrace.sinks.kafka.schema_registry import RegistryAccess, SchemaRegistry

SCHEMA = SchemaText("shop.orders-value", "AVRO", '{"type":"record","fields":[]}')
PW = "hunter2"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server on a free port with one answer for every connection, and the requests that it received."""
    requests: list[bytes] = []
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            if not ended.is_set():
                requests.append(head)
                answer(connection)

    def accept() -> None:
        with suppress(OSError):
            while not ended.is_set():
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield port, requests
        finally:
            ended.set()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"\r\n\r\n")
            acceptor.join()
            for thread in threads:
                thread.join()


def redirect(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


def client(url: str) -> SchemaRegistry:
    access = RegistryAccess(url, user="me", password=Secret(PW))
    return SchemaRegistry(access, sleep=lambda _: None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("same_host", [True, False])
def test_credentials_do_not_follow_a_redirect(status: int, same_host: bool) -> None:
    def answer(connection: socket.socket) -> None:
        host = "127.0.0.1" if same_host else "localhost"
        connection.sendall(redirect(status, f"http://{host}:{other}/x?{PW}"))

    with server(lambda _: None) as (other, elsewhere):
        with server(answer) as (port, asked), pytest.raises(SinkError, match="redirects") as error:
            client(f"http://127.0.0.1:{port}").ids([SCHEMA])
        assert elsewhere == []
    assert len(asked) == 1
    assert f":{other}, where nothing is sent" in (error.value.detail or "")
    assert PW not in str(error.value)


def test_redirect_with_an_odd_address_is_refused_without_showing_it() -> None:
    for location in ("file:///etc/shadow", "http://[", f"http://u:{PW}@h/", "//h", "\x1b]0;x"):
        head = redirect(302, location)
        with (
            server(lambda connection, head=head: connection.sendall(head)) as (port, _),  # type: ignore[misc]
            pytest.raises(SinkError, match="redirects") as error,
        ):
            client(f"http://127.0.0.1:{port}").ids([SCHEMA])
        assert PW not in str(error.value)
        assert "\x1b" not in str(error.value)


def test_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "MOST_BYTES", 1 << 20)

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with server(answer) as (port, _), pytest.raises(TransientSinkError, match="does not answer") as error:
        client(f"http://127.0.0.1:{port}").ids([SCHEMA])
    assert "more than" in (error.value.detail or "")


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\n"]
)
def test_answer_in_single_bytes_ends_at_the_deadline(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_TIMEOUT_S", 0.3)

    def answer(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(b"x")
            threading.Event().wait(0.02)

    begun = time.monotonic()
    with server(answer) as (port, _), pytest.raises(TransientSinkError, match="does not answer") as error:
        client(f"http://127.0.0.1:{port}").ids([SCHEMA])
    assert "no whole answer within 0.3 s" in (error.value.detail or "")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("url", [f"http://me:{PW}@127.0.0.1:1", f"http://127.0.0.1:1, https://me:{PW}@h"])
def test_address_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="holds a user or password") as error:
        client(url).ids([SCHEMA])
    assert PW not in str(error.value)
