"""Connections to what is no Oracle database: python-oracledb itself, and what becomes of its errors."""

from __future__ import annotations

import gc
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import oracledb
import pytest

from tailrace.errors import SchemaMismatchError, SourceError, TailraceError, TransientSourceError
from tailrace.sources import registry
from tailrace.sources.oracle import connection
from tests.contract.test_oracle import options
from tests.support.oracle import ora

#: python-oracledb leaves its socket to the garbage collector when logging in fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_sockets_left() -> Iterator[None]:
    """Collect them before another module's test is blamed for them."""
    yield
    for thread in threading.enumerate():
        if thread.name == "tailrace-oracle-login":
            thread.join(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port of this machine whose connections are served by `serve`, and closed then."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with closing(client):
                    serve(client)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def failure(port: int, **given: object) -> TailraceError:
    with pytest.raises(TailraceError) as raised:
        connection.connect(options(url=f"oracle://127.0.0.1:{port}/x", **given), purpose="a test")
    return raised.value


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_a_closed_port(tls: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    error = failure(port, tlsMode=tls)
    assert (type(error), error.code) == (TransientSourceError, "TR-3003")


def test_a_server_that_does_not_answer_is_left_in_time() -> None:
    done = threading.Event()
    with listener(lambda _: done.wait(10) and None) as port:
        began = time.monotonic()
        error = failure(port, connectTimeoutMs=300)
        assert time.monotonic() - began < 5
        done.set()
    assert error.code == "TR-3002"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_of_another_kind(answer: bytes) -> None:
    with listener(lambda client: client.sendall(answer)) as port:
        error = failure(port)
    assert error.retryable
    assert error.code == "TR-3001"


def test_a_listener_that_does_not_know_the_service() -> None:
    reason = b"(DESCRIPTION=(TMP=)(ERR=12514)(ERROR_STACK=(ERROR=(CODE=12514)(EMFI=4))))"

    def refuse(client: socket.socket) -> None:
        client.recv(4096)
        body = b"\x22\x00" + len(reason).to_bytes(2, "big") + reason  # of a packet REFUSE, type 4
        client.sendall((len(body) + 8).to_bytes(2, "big") + b"\0\0\x04\0\0\0" + body)

    with listener(refuse) as port:
        error = failure(port)
    assert (error.code, error.detail) == ("TR-3004", "ORA-12514")
    assert "oracle://HOST[:PORT]/SERVICE" in (error.hint or "")


def test_a_session_that_comes_too_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, go = threading.Event(), threading.Event()

    def late(*_: object) -> tuple[SimpleNamespace, bool]:
        go.wait(10)
        return SimpleNamespace(close=closed.set), False

    monkeypatch.setattr(connection, "open_raw", late)
    with pytest.raises(TransientSourceError):
        connection.connect(options(connectTimeoutMs=100), purpose="a test")
    go.set()
    assert closed.wait(5)


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (3135, TransientSourceError, "TR-3001"),
        (1089, TransientSourceError, "TR-3004"),
        (60, TransientSourceError, "TR-3004"),
        (1013, TransientSourceError, "TR-3018"),
        (28000, SourceError, "TR-3101"),
        (1031, SourceError, "TR-3102"),
        (942, SchemaMismatchError, "TR-5002"),
        (1555, SourceError, "TR-4618"),
        (8181, SourceError, "TR-4618"),
        (1466, SchemaMismatchError, "TR-4619"),
        (1291, TransientSourceError, "TR-4616"),
        (1722, SourceError, "TR-4620"),
    ],
)
def test_errors_by_their_number(number: int, kind: type[TailraceError], code: str) -> None:
    cause = ora(number)
    error = connection.translate(cause, "reading the table")
    assert (type(error), error.code) == (kind, code)
    assert f"ORA-{number:05d}" in (error.detail or "")
    error.__cause__ = cause
    assert connection.ora_number(error) == number


def test_a_call_that_took_too_long() -> None:
    error = connection.translate(
        oracledb.DatabaseError(SimpleNamespace(code=0, full_code="DPY-4024")), "reading"
    )
    assert error.code == "TR-3018"


def test_a_log_in_that_fails_names_no_password() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    (finding,) = registry.check(options(url=f"oracle://127.0.0.1:{port}/x", password="top-secret"))
    assert "top-secret" not in repr(finding)
