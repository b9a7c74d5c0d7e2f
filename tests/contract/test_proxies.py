"""Connections through SOCKS5 and HTTP proxies: MySQL, MariaDB and PostgreSQL, the driver and tasks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import ConfigError, SourceError, TransientSourceError
from tailrace.sources.mysql.connection import connect as connect_mysql
from tailrace.sources.mysql.connection import one
from tailrace.sources.postgres.connection import connect as connect_postgres
from tailrace.sources.route import reach
from tailrace_dev.servers.server import free_port
from tests.support import proxies
from tests.support.listener import Line, Listener

KINDS = {"socks5": proxies.socks5, "http": proxies.http}
LOGIN = {"proxyUser": proxies.USER, "proxyPassword": proxies.PASSWORD}
#: A name that only the proxies of these tests resolve.
ALIAS = "database.behind-the-proxy"


def given(server: Any, proxy: Listener, kind: str, **more: str) -> dict[str, str]:
    database = "/postgres" if server.scheme == "postgresql" else ""
    return {
        "url": f"{server.scheme}://{server.host}:{server.port}{database}",
        "user": server.user,
        "password": server.password,
        "tables": "a.b",
        "proxy": f"{kind}://{proxy.host}:{proxy.port}",
        **more,
    }


def options(server: Any, proxy: Listener, kind: str, **more: str) -> SourceOptions:
    return parse_options(given(server, proxy, kind, **more))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def test_proxy_resolves_the_name_and_connects(
    request: pytest.FixtureRequest, kind: str, product: str
) -> None:
    server = request.getfixturevalue(product)
    proxy, targets = KINDS[kind](login=True, aliases={ALIAS: server.host})
    database = "/postgres" if product == "postgres" else ""
    url = f"{server.scheme}://{ALIAS}:{server.port}{database}"
    with proxy:
        of_source = options(server, proxy, kind, url=url, **LOGIN)
        if product == "postgres":
            with connect_postgres(of_source, purpose="a test") as connection:
                assert connection.value("SELECT length(repeat('x', 3000000))") == 3_000_000
        else:
            mysql_connection = connect_mysql(of_source, purpose="a test")
            with mysql_connection.cursor() as cursor:
                cursor.execute("SELECT REPEAT('x', 3000000)")
                assert len(one(cursor)[0]) == 3_000_000
            mysql_connection.close()
        assert targets.asked == [(ALIAS, server.port)]


def test_address_of_six_bytes_is_given_to_the_proxy_as_such(mysql: Any) -> None:
    for kind, make in KINDS.items():
        proxy, targets = make()
        with proxy:
            error = reach(options(mysql, proxy, kind, url="mysql://[::1]:1"))
        assert targets.asked == [("::1", 1)]
        assert "does not reach the server" in error


def test_statement_of_postgres_is_cancelled_through_the_proxy(postgres: Any) -> None:
    proxy, targets = proxies.socks5()
    failures: list[Exception] = []
    with proxy, connect_postgres(options(postgres, proxy, "socks5"), purpose="a test") as connection:

        def sleep() -> None:
            try:
                connection.rows("SELECT pg_sleep(61)")
            except Exception as error:  # noqa: BLE001
                failures.append(error)

        thread = threading.Thread(target=sleep)
        thread.start()
        running = "query = 'SELECT pg_sleep(61)' AND state = 'active'"
        postgres.wait_until(f"SELECT count(*) FROM pg_stat_activity WHERE {running}", lambda n: n == 1)
        connection.cancel()
        thread.join(20)
    assert "57014" in str(failures[0])
    assert len(targets.asked) == 2


# ---- what is refused ----


def refused(server: Any, proxy: Listener, kind: str, **more: str) -> Any:
    with proxy, pytest.raises((SourceError, ConfigError)) as caught:
        connect_mysql(options(server, proxy, kind, **more), purpose="a test")
    assert server.password.encode() not in proxy.heard
    assert proxies.PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_proxy_that_refuses_the_user_is_named(mysql: Any, kind: str) -> None:
    for login in ({}, {**LOGIN, "proxyPassword": "wrong"}):
        error = refused(mysql, KINDS[kind](login=True)[0], kind, **login)
        assert (error.code, error.retryable) == ("TR-3040", False)


@pytest.mark.parametrize("kind", KINDS)
def test_server_that_the_proxy_does_not_reach_is_told(mysql: Any, kind: str) -> None:
    error = refused(mysql, KINDS[kind]()[0], kind, url=f"mysql://127.0.0.1:{free_port()}")
    assert (error.code, error.retryable) == ("TR-3043", True)
    assert "through the proxy `" in error.message


@pytest.mark.parametrize(
    ("kind", "answer", "code"),
    [
        ("socks5", b"\x05\x00\x05\x02\x00\x01", "TR-3041"),
        ("socks5", b"\x05\x00\x05\x01\x00\x01", "TR-3043"),
        ("socks5", b"\x05\x00\x05\x00\x00\x07", "TR-3042"),
        ("socks5", b"\x05\x02", "TR-3040"),
        ("socks5", b"\x04\x5a", "TR-3042"),
        ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "TR-3042"),
        ("socks5", b"\x05", "TR-3043"),
        ("http", b"HTTP/1.1 403 Forbidden\r\n\r\n", "TR-3041"),
        ("http", b"HTTP/1.1 503 Busy\r\n\r\n", "TR-3043"),
        ("http", b"HTTP/1.1 200", "TR-3043"),
        ("http", b"HTTP/1.1 ok\r\n\r\n", "TR-3042"),
        ("http", b"\x4a\x00\x00\x00\x0a8.4.0", "TR-3042"),
        ("http", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 2000, "TR-3042"),
    ],
)
def test_answer_of_a_proxy_is_told_apart(mysql: Any, kind: str, answer: bytes, code: str) -> None:
    def script(line: Line) -> None:
        line.sock.recv(1)
        line.send(answer)
        line.sock.recv(4096)

    assert refused(mysql, Listener(script), kind).code == code


def test_proxy_that_answers_a_byte_a_second_ends_by_the_deadline(mysql: Any) -> None:
    def trickling(answer: bytes) -> Callable[[Line], None]:
        return lambda line: line.trickle(answer, 0.2)

    for kind, answer in (("socks5", b"\x05\x00\x05\x00\x00\x01"), ("http", b"HTTP/1.1 200 OK\r\nX: ")):
        error = refused(mysql, Listener(trickling(answer)), kind, connectTimeoutMs="700")
        assert (type(error), error.code) == (TransientSourceError, "TR-3002")


@pytest.mark.slow
def test_tasks_go_through_the_proxy(mysql: Any, database: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(proxies.PASSWORD)
    table = f"{database}.t"
    rows = ", ".join(f"({i}, 'v')" for i in range(3000))
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO {table} VALUES {rows}")
    proxy, targets = proxies.socks5(login=True, aliases={ALIAS: mysql.host})
    with proxy:
        settings = given(
            mysql,
            proxy,
            "socks5",
            # nobody else resolves it: each connection went through the proxy
            url=f"mysql://{ALIAS}:{mysql.port}",
            tables=re.escape(table),
            snapshotChunkRows="1000",
            proxyUser=proxies.USER,
            proxyPassword=f"${{file:{tmp_path}/password}}",
        )
        read = spark.read.format("tailrace").options(**settings).load()
        assert read.count() == 3000
    assert len(targets.asked) >= 3
