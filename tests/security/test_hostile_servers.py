"""Attacks by servers of either database: a client loses neither time nor memory, and says what it found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import SourceError, TransientSourceError
from tailrace.sources import registry
from tests.support import fake_mysql as my
from tests.support import fake_postgres as pg
from tests.support.hostile import MYSQL, POSTGRES, Database, ends_as_ours

Script = Callable[[Any], Any]
#: Within it everything ends, seconds.
_LONGEST_S = 9


def cases(mysql: dict[str, Any], postgres: dict[str, Any]) -> list[Any]:
    """Parameters `database` and the value, of both databases."""
    return [
        pytest.param(database, value, id=f"{database.url.partition(':')[0]}-{name}")
        for database, values in ((MYSQL, mysql), (POSTGRES, postgres))
        for name, value in values.items()
    ]


def starting(*messages: bytes) -> Script:
    """A PostgreSQL server that sends messages after the startup message, whatever the client answers."""
    return lambda line: (line.start(), *map(line.send, messages), line.listen())


SLOW = cases(
    {
        "silence": lambda line: line.listen(),
        "a greeting": lambda line: line.trickle(my.framed(my.greeting(), 0)),
        "the answer to the log-in": lambda line: (
            line.packet(my.greeting()),
            line.next(),
            line.trickle(my.framed(my.OK + bytes(200), 2)),
        ),
        "TLS": lambda line: (line.packet(my.greeting(capabilities=my.PLAIN | my.TLS)), line.listen()),
    },
    {
        "silence": lambda line: line.listen(),
        "a byte at a time": lambda line: (line.start(), line.trickle(pg.parameter("a", "b" * 500))),
        "TLS": lambda line: (line.receive(8), line.send(b"S"), line.listen()),
    },
)


@pytest.mark.parametrize(("database", "script"), SLOW)
def test_log_in_has_one_deadline(database: Database, script: Script) -> None:
    began = time.monotonic()
    error, _ = database.refused(script, TransientSourceError, connectTimeoutMs="1000")
    assert 0.9 < time.monotonic() - began < _LONGEST_S
    assert "no answer in time" in error.message


LARGE = cases(
    {
        "a greeting without end": lambda line: line.flood(b"\xff\xff\xff\x00" + bytes(1 << 20)),
        "a greeting of many packets": lambda line: [line.packet(bytes(60_000)) for _ in range(1000)],
        "a log-in without end": lambda line: (
            line.packet(my.greeting(plugin="caching_sha2_password")),
            line.next(),
            [line.packet(b"\x01\x03") for _ in range(100_000)],
            line.listen(),
        ),
        "an error without end": lambda line: line.flood(b"\xff\xff\xff\x00\xff\x10\x04" + bytes(1 << 20)),
    },
    {
        "2 GB": starting(pg.message(b"R", b"", 0x7FFFFFFF)),
        "an error of 2 GB": starting(pg.message(b"E", b"", 0x7FFFFFFF)),
        "negative": starting(pg.message(b"S", b"", -5)),
        "too short": starting(pg.message(b"N", b"", 3)),
        "a row": starting(pg.message(b"D", b"", 8)),
        "notices": lambda line: (line.start(), line.flood(pg.message(b"N", bytes(60_000)))),
        "parameters": lambda line: (line.start(), line.flood(pg.parameter("a", "b") * 100)),
    },
)


@pytest.mark.parametrize(("database", "script"), LARGE)
def test_log_in_takes_little_memory(database: Database, script: Script) -> None:
    began = time.monotonic()
    error, _ = database.refused(script)
    assert time.monotonic() - began < _LONGEST_S
    if database is POSTGRES:
        assert not error.retryable


def slow_rows(line: Any) -> None:
    for payload in my.head_of(["Variable_name", "Value"]):
        line.packet(payload)
    line.trickle(my.framed(my.text("a" * 200) + my.text("b" * 200), 5))


SLOW_ANSWERS = cases(
    {"rows": slow_rows},
    {
        "rows": lambda line: (
            line.send(pg.description("name", "setting")),
            line.trickle(pg.row("a" * 900, "b")),
        )
    },
)


@pytest.mark.parametrize(("database", "attack"), SLOW_ANSWERS)
def test_answer_has_one_deadline_and_the_check_has_one(database: Database, attack: Script) -> None:
    for more in ({"queryTimeoutMs": "1000", "retryTimeoutMs": "60000"}, {"retryTimeoutMs": "1000"}):
        began = time.monotonic()
        with database.serve(database.answering(attack)) as server:
            (found,) = registry.check(database.options(server, **{"queryTimeoutMs": "60000", **more}))
        assert "no answer in time" in found.found
        assert time.monotonic() - began < _LONGEST_S


BANNERS = {
    "SSH": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
}
OTHERS = cases(
    {
        **BANNERS,
        "SMTP": b"220 mail.example ESMTP\r\n",
        "VNC": b"RFB 003.008\n",
        "bytes": bytes(range(1, 100)),
    },
    {
        **BANNERS,
        "MySQL": b"J\x00\x00\x00\x0a8.4.0\x00" + bytes(60),
        "N": b"N\x00\x00\x00\x0a8.4.0-a\x00" + bytes(60),
        "S": b"S\x00\x00\x00\x0a8.4.0-a-long-one\x00" + bytes(60),
    },
)


@pytest.mark.parametrize(("database", "banner"), OTHERS)
def test_another_server_is_named_as_such(database: Database, banner: bytes) -> None:
    error, _ = database.refused(lambda line: (line.send(banner), line.listen()))
    assert f"no {database.name} server" in error.message
    with database.serve(lambda line: (line.send(banner), line.listen())) as server:
        began = time.monotonic()
        with pytest.raises(SourceError, match=f"no {database.name} server"):
            registry.source(database.options(server, retryTimeoutMs="60000")).tables()
        assert time.monotonic() - began < _LONGEST_S
        assert len(server.lines) == 1


ALERT = b"\x15\x03\x01\x00\x02\x02\x28"
BROKEN_TLS = cases(
    {
        "alert": lambda line: (
            line.packet(my.greeting(capabilities=my.PLAIN | my.TLS)),
            line.next(),
            line.send(ALERT),
            line.listen(),
        )
    },
    {
        "alert": lambda line: (
            line.receive(8),
            line.send(b"S"),
            line.receive(5),
            line.send(ALERT),
            line.listen(),
        )
    },
)


@pytest.mark.parametrize(("database", "script"), BROKEN_TLS)
def test_tls_that_fails_is_not_replaced_by_plain_text(database: Database, script: Script) -> None:
    error, server = database.refused(script)
    assert "no TLS connection" in error.message
    assert len(server.lines) == 1
    assert b"reader" not in server.heard


EARLY = cases(
    {
        "OK": (
            my.framed(my.greeting(capabilities=my.PLAIN | my.TLS), 0) + my.framed(my.OK, 2),
            "before the start of TLS",
        )
    },
    {"welcome": (b"S" + pg.WELCOME, "no PostgreSQL server")},
)


@pytest.mark.parametrize(("database", "case"), EARLY)
def test_bytes_before_tls_do_not_count_as_sent_over_it(database: Database, case: tuple[bytes, str]) -> None:
    sent, expected = case

    def script(line: Any) -> None:
        if database is POSTGRES:
            line.receive(8)
        line.send(sent)
        line.listen()

    error, server = database.refused(script)
    assert expected in f"{error.message}: {error.detail}"
    assert b"reader" not in server.heard


def always(answer: list[bytes]) -> Script:
    """A MySQL server that gives the same answer to every question."""

    def script(line: Any) -> None:
        line.log_in()
        line.serve(lambda sql: answer if sql.startswith(("SHOW", "SELECT")) else None)

    return script


def once(answer: bytes) -> Script:
    """A PostgreSQL server that gives this answer to the first query and none to the others."""
    return pg.answering(lambda line: (line.send(answer), line.listen()))


#: Answers that are well-formed, but not those that were requested, and some that are not even well-formed.
NONSENSE = cases(
    {
        "another column": always(my.rows_of(["x"], [["y"]])),
        "nulls": always(my.rows_of(["Variable_name", "Value"], [[None, None]])),
        "no rows": always(my.rows_of(["Variable_name"], [])),
        "no columns": always(my.rows_of([], [])),
        "OK": always([my.OK]),
    },
    {
        str(number): once(answer)
        for number, answer in enumerate(
            [
                pg.message(b"?", b"abc"),
                pg.message(b"d", b"abc"),
                pg.message(b"H", b"\0\0\0"),
                pg.message(b"G", b"\0\0\0"),
                pg.message(b"W", b"\0\0\0"),
                pg.message(b"c"),
                pg.message(b"R", bytes(4)),
                pg.message(b"T", b"", 2),
                pg.message(b"T", b"\x00\x05abc"),
                pg.message(b"T"),
                pg.description("a") + pg.message(b"D", b"\0\1\0\0\0\x09a"),
                pg.description("a") + pg.message(b"D", b"\0\1\0\0\0\x01\xff"),
                pg.description("a", oid=16) + pg.message(b"D", b"\0\1"),
                pg.description("a", oid=23) + pg.row("no number") + pg.READY,
                pg.description("a", oid=1184) + pg.row("no moment") + pg.READY,
                pg.result(["a"], []),
                pg.result(["a"], [["b"]]),
                pg.result(["a", "b"], [[None, None]]),
                pg.message(b"S", b"client_encoding\0nonsense\0") + pg.result(["a", "b"], [["x", "y"]]),
                pg.READY,
            ]
        )
    },
)


@pytest.mark.parametrize(("database", "script"), NONSENSE)
def test_answer_that_makes_no_sense_is_an_error_of_ours(database: Database, script: Script) -> None:
    given = {"queryTimeoutMs": "300", "retryTimeoutMs": "300"}
    with database.serve(script) as server:
        (found,) = registry.check(database.options(server, queryTimeoutMs="700"))
        for ask in ("tables", "starting_position", "log_end"):
            ends_as_ours(getattr(registry.source(database.options(server, **given)), ask))
    assert found.severity == "error"
