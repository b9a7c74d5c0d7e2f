from __future__ import annotations

import socket
import ssl

import pymysql
import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import (
    ConfigError,
    DecodeError,
    SchemaMismatchError,
    SourceError,
    TransientSourceError,
)
from tailrace.sources.mysql.connection import connect, parse_version, retrying, translate
from tailrace.sources.network import Reconnecting


def options(**given: str) -> SourceOptions:
    base = {"url": "mysql://db.example:3306", "user": "reader", "tables": "shop[.].*"}
    return parse_options({**base, **given})


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(2006, "MySQL server has gone away"),
        pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query"),
        pymysql.err.OperationalError(1053, "Server shutdown in progress"),
        pymysql.err.OperationalError(1040, "Too many connections"),
        pymysql.err.OperationalError(1213, "Deadlock found"),
        pymysql.err.InterfaceError(0, ""),
        ConnectionResetError(104, "Connection reset by peer"),
        socket.gaierror(-2, "Name or service not known"),
    ],
)
def test_failure_that_passes_is_transient(error: Exception) -> None:
    found = translate(error, "reading")
    assert isinstance(found, TransientSourceError)
    assert found.retryable


def test_refused_connection_names_host_and_port() -> None:
    with pytest.raises(TransientSourceError, match=r"`127\.0\.0\.1:1` as `reader` for a test failed"):
        connect(options(url="mysql://127.0.0.1:1"), purpose="a test")


def test_wrong_password_is_definite_and_hints_at_the_grant() -> None:
    found = translate(pymysql.err.OperationalError(1045, "Access denied for user 'r'@'h'"), "connecting")
    assert type(found) is SourceError
    assert "GRANT SELECT ON <database>.* TO <user>;" in (found.hint or "")
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO <user>" in (found.hint or "")


def test_missing_privilege_is_named_in_the_hint() -> None:
    text = "Access denied; you need (at least one of) the SUPER, REPLICATION CLIENT privilege(s) for this"
    found = translate(pymysql.err.OperationalError(1227, text), "asking")
    assert found.hint == "GRANT REPLICATION CLIENT ON *.* TO <user>"
    text = "SELECT command denied to user 'r'@'h' for table 'orders'"
    found = translate(pymysql.err.OperationalError(1142, text), "reading")
    assert found.hint == "GRANT SELECT ON <database>.* TO <user>"


def test_untrusted_certificate_is_definite() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    error = pymysql.err.OperationalError(2003, "Can't connect")
    error.original_exception = cause  # type: ignore[attr-defined]
    found = translate(error, "connecting")
    assert type(found) is SourceError
    assert "tlsCa" in (found.hint or "")


def test_table_that_is_gone_is_a_schema_mismatch() -> None:
    error = pymysql.err.ProgrammingError(1146, "Table 'shop.orders' doesn't exist")
    assert isinstance(translate(error, "reading"), SchemaMismatchError)


def test_message_that_may_quote_a_key_is_left_out() -> None:
    error = pymysql.err.ProgrammingError(1064, "syntax error near 'secret-key'")
    found = translate(error, "reading")
    assert "secret-key" not in str(found)
    assert "1064" in str(found)


def test_error_of_ours_stays_itself() -> None:
    error = DecodeError("broken")
    assert translate(error, "reading") is error


def test_retrying_returns_what_a_later_try_gives() -> None:
    time = Time()
    failures = [ConnectionResetError(), pymysql.err.OperationalError(2013, "lost")]

    def operation() -> str:
        if failures:
            raise failures.pop()
        return "rows"

    found = retrying(options(), operation, "reading", sleep=time.sleep, clock=time.clock)
    assert found == "rows"
    assert len(time.naps) == 2
    assert 0.05 <= time.naps[0] <= 0.1
    assert 0.1 <= time.naps[1] <= 0.2


def test_retrying_gives_up_with_the_last_error_when_the_time_is_over() -> None:
    time = Time()
    tries = 0

    def operation() -> None:
        nonlocal tries
        tries += 1
        raise pymysql.err.OperationalError(2013, f"lost {tries}")

    with pytest.raises(TransientSourceError) as caught:
        retrying(options(retryTimeoutMs="60000"), operation, "reading", sleep=time.sleep, clock=time.clock)
    assert time.now <= 60
    assert tries > 8
    assert f"lost {tries}" in str(caught.value)
    assert max(time.naps) <= 10


def test_retrying_raises_a_definite_error_at_once() -> None:
    time = Time()

    def operation() -> None:
        raise pymysql.err.OperationalError(1045, "Access denied")

    with pytest.raises(SourceError, match="refuses the user"):
        retrying(options(), operation, "reading", sleep=time.sleep, clock=time.clock)
    assert time.naps == []


class Line:
    """A connection that, as PyMySQL's, must not be closed twice."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False


def test_connection_is_kept_until_it_is_lost() -> None:
    made: list[Line] = []

    def connect() -> Line:
        made.append(Line())
        return made[-1]

    def lost(line: Line) -> int:
        if len(made) < 3:
            line.close()
            raise ConnectionResetError
        return len(made)

    connection = Reconnecting(options(), connect, retrying)
    assert connection.run(lambda line: line, "asking") is connection.run(lambda line: line, "asking")
    assert connection.run(lost, "reading") == 3
    made[-1].close()
    assert connection.run(lambda line: line, "asking") is made[3]
    connection.close()
    connection.close()
    assert not any(line.is_open for line in made)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.4.3", (8, 4, 3)),
        ("9.7.4-2", (9, 7, 4)),
        ("5.5.5-10.6.12-MariaDB-log", (10, 6, 12)),
        ("11.4.2-MariaDB", (11, 4, 2)),
    ],
)
def test_version_is_read_from_what_servers_say(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_version_that_is_none_is_refused() -> None:
    with pytest.raises(SourceError, match="version"):
        parse_version("a server")


def test_missing_tls_file_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="TLS files"):
        connect(options(tlsCa="/nowhere/ca.pem"), purpose="a test")
