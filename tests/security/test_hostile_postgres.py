"""PostgreSQL servers that attack: they get no password, and no more time and memory than allowed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.config.secret import Secret
from tailrace.config.sinks import PostgresSettings
from tailrace.errors import DecodeError, SinkError, SourceError, TailraceError
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.postgres import PostgresDialect
from tailrace.sinks.replica.postgres_session import connect as connect_to_write
from tailrace.sources import registry
from tailrace.sources.postgres.connection import connect
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.snapshot.select import copy_pages
from tests.support import fake_postgres as fake
from tests.support.fake_postgres import PostgresLine, answering, fake_postgres
from tests.support.hostile import PASSWORD, POSTGRES, check_as_process

MECHANISMS = b"SCRAM-SHA-256\0\0"


options, refused = POSTGRES.options, POSTGRES.refused


def asking(*messages: bytes) -> Callable[[PostgresLine], None]:
    """A server that sends messages after the startup message, whatever the client answers."""

    def script(line: PostgresLine) -> None:
        line.start()
        for sent in messages:
            line.send(sent)
        line.listen()

    return script


# ---- passwords ----


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_cleartext_password_stays_here_without_tls(mode: str) -> None:
    error, _ = refused(asking(fake.authentication(3)), tlsMode=mode)
    assert "without TLS" in error.message
    assert error.hint.index("use TLS") < error.hint.index("allowCleartextPassword")
    assert not error.retryable


def test_replica_keeps_its_password_too() -> None:
    with fake_postgres(asking(fake.authentication(3))) as server, pytest.raises(SinkError) as caught:
        connect_to_write(
            PostgresSettings(f"postgresql://{server.host}:{server.port}/d", "w", password=Secret(PASSWORD))
        )
    assert "sink.allow-cleartext-password" in str(caught.value.hint)
    assert PASSWORD.encode() not in server.heard


def test_cleartext_password_is_sent_where_that_is_allowed() -> None:
    def script(line: PostgresLine) -> None:
        line.start()
        line.send(fake.authentication(3))
        assert line.next() == (b"p", PASSWORD.encode() + b"\0")
        line.send(fake.WELCOME)
        line.serve(lambda _: None)

    with fake_postgres(script) as server:
        connect(options(server, allowCleartextPassword="true"), purpose="a test").close()


def test_server_that_skips_its_proof_is_refused() -> None:
    def script(line: PostgresLine) -> None:
        line.start()
        line.send(fake.authentication(10, MECHANISMS))
        line.next()
        line.send(fake.WELCOME)
        line.listen()

    error, _ = refused(script)
    assert "did not prove" in error.message
    assert not error.retryable


@pytest.mark.parametrize(
    "first",
    [
        "r={nonce}x,s=QUJDREVGR0hJSktM,i=1",
        "r=other,s=QUJDREVGR0hJSktM,i=4096",
        "r={nonce}x,s=QUJDREVGR0hJSktM,i=2000000000",
        "r={nonce}x",
        "",
        "\xff",
    ],
)
def test_scram_with_weak_or_broken_terms_is_refused(first: str) -> None:
    def script(line: PostgresLine) -> None:
        line.start()
        line.send(fake.authentication(10, MECHANISMS))
        _, body = line.next()
        nonce = body.rpartition(b"r=")[2].decode()
        line.send(fake.authentication(11, first.format(nonce=nonce).encode("latin1")))
        line.listen()

    began = time.monotonic()
    error, _ = refused(script, DecodeError)
    assert time.monotonic() - began < 9
    assert not error.retryable


@pytest.mark.parametrize(
    "sent",
    [
        fake.authentication(11, b"r=x,s=QUJD,i=4096"),
        fake.authentication(12, b"v=QUJD"),
        fake.authentication(10, b"SCRAM-NONE\0\0"),
        fake.authentication(10, b"\xff\xff\0"),
        fake.authentication(10),
        fake.authentication(5),
        fake.authentication(5, b"salt-too-long"),
        fake.authentication(2),
        fake.authentication(99),
        fake.message(b"R"),
    ],
)
def test_authentication_that_makes_no_sense_is_an_error_of_ours(sent: bytes) -> None:
    error, _ = refused(asking(sent))
    assert not error.retryable


# ---- bounds ----

ATTACKS: dict[str, Callable[[PostgresLine], Any]] = {
    "rows without end": lambda line: (
        line.send(fake.description("a", "b")),
        line.flood(fake.row("a", "b") * 9999),
    ),
    "a message of 2 GB": lambda line: (
        line.send(fake.message(b"D", b"", 0x7FFFFFFF)),
        line.flood(bytes(1 << 20)),
    ),
    "notices without end": lambda line: line.flood(fake.message(b"N", bytes(60_000))),
    "parameters without end": lambda line: line.flood(fake.parameter("a", "b" * 9_000)),
    "errors without end": lambda line: line.flood(fake.error("XX000", "x" * 9_000)),
    "descriptions without end": lambda line: line.flood(fake.description(*["a"] * 500)),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_check_ends_before_memory_does(attack: Callable[[PostgresLine], Any]) -> None:
    with fake_postgres(answering(attack)) as server:
        (found,) = registry.check(
            options(server, maxAnswerBytes="8m", queryTimeoutMs="20000", retryTimeoutMs="20000")
        )
    assert "maxAnswerBytes" in found.remedy


# ---- rows and log in bulk ----

TABLE = TableSchema(TableId("shop", "t"), (Column("a", ColumnType(Kind.STRING, "text")),), ("a",))
SPLIT = SnapshotSplit(TABLE, None, None, {}, 100)


@pytest.mark.parametrize(
    "sent",
    [
        fake.message(b"?", b"x"),
        fake.message(b"H", b"", 0x7FFFFFFF),
        fake.message(b"H", b"", 1),
        fake.message(b"C", b"SELECT 1\0") + fake.READY,
        fake.message(b"H", bytes(3)) + fake.message(b"d", b"no signature"),
        fake.message(b"H", bytes(3)) + fake.message(b"?", b"abc") + fake.message(b"?", b"abc"),
        fake.message(b"H", bytes(3)) + fake.message(b"c") + fake.message(b"?", b"abc"),
        fake.message(b"H", bytes(3)) + fake.message(b"c") + fake.message(b"C", b"", 0x7FFFFFFF),
        fake.message(b"H", bytes(3)) + fake.message(b"d", b"", 2),
    ],
)
def test_copy_that_makes_no_sense_is_an_error_of_ours(sent: bytes) -> None:
    with fake_postgres(answering(lambda line: (line.send(sent), line.listen()))) as server:
        connection = connect(options(server), purpose="a test")
        with pytest.raises(DecodeError):
            list(copy_pages(connection, SPLIT, TABLE, partitioned=False))
        connection.break_off()


def test_row_and_message_have_a_longest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.sources.postgres.wire.kernels.copy.LONGEST_ROW", 8 << 20)

    def attack(line: PostgresLine) -> None:
        line.send(fake.message(b"H", bytes(3)) + fake.message(b"d", b"PGCOPY\n\xff\r\n\0" + bytes(8)))
        line.send(fake.message(b"d", b"", 0x7FFFFFFF))
        line.flood(bytes(1 << 20))

    with fake_postgres(answering(attack)) as server:
        connection = connect(options(server), purpose="a test")
        with pytest.raises(DecodeError, match="longer than it may be"):
            list(copy_pages(connection, SPLIT, TABLE, partitioned=False))
        connection.break_off()

    class Stream:
        def receive(self, room: memoryview, timeout_s: float) -> int:
            room[:5] = b"d\x7f\xff\xff\xff"
            return len(room)

        def received(self, lsn: int) -> None:
            pass

    incoming = Incoming(Stream(), lambda _: True, 0, lambda _: False)  # type: ignore[arg-type]
    incoming.next(1)
    with pytest.raises(DecodeError, match="longer than it may be"):
        incoming.next(1)


# ---- mutations ----

VALID = [
    fake.authentication(0),
    fake.authentication(3),
    fake.authentication(5, b"salt"),
    fake.authentication(10, MECHANISMS),
    fake.authentication(11, b"r=abc,s=QUJDREVGR0hJSktM,i=4096"),
    fake.parameter("server_version", "18.1"),
    fake.parameter("client_encoding", "UTF8"),
    fake.message(b"K", bytes(8)),
    fake.READY,
    fake.description("a", "b"),
    fake.row("1", None),
    fake.message(b"C", b"SELECT 1\0"),
    fake.error("42P01", "no such table"),
    fake.error("28P01", "wrong"),
    fake.message(b"N", b"Ma\0\0"),
    fake.message(b"A", bytes(4) + b"a\0b\0"),
]


def mutated(r: random.Random) -> bytes:
    """Messages in order, or out of order, with a few bytes changed."""
    out = bytearray(fake.WELCOME if r.random() < 0.5 else b"")
    out += fake.result(["a", "b"], [["1", None], ["x" * 300, "2"]]) if r.random() < 0.5 else b""
    for _ in range(r.randint(0, 5)):
        out += r.choice(VALID)
    for _ in range(r.randint(0, 4)):
        if out:
            at = r.randrange(len(out))
            out[at : at + r.randint(0, 3)] = r.choice([b"\0", b"\xff", b"\x7f", r.randbytes(r.randint(0, 4))])
    return bytes(out)


def test_broken_messages_end_in_errors_of_ours() -> None:
    """Cases by number: the number reproduces a failure."""
    case = 0

    def script(line: PostgresLine) -> None:
        r = random.Random(f"postgres:{case}")
        line.start()
        line.send(mutated(r))
        if r.random() < 0.5:
            line.next()
            line.send(mutated(r))
        line.sock.shutdown(1)
        line.listen()

    with fake_postgres(script) as server:
        given = options(server, allowCleartextPassword="true", connectTimeoutMs="500", queryTimeoutMs="500")
        for case in range(400):
            began = time.monotonic()
            try:
                connection = connect(given, purpose="a test")
                try:
                    connection.rows("SELECT a, b")
                finally:
                    connection.break_off()
            except TailraceError:
                pass
            except Exception as error:
                if not type(error).__module__.startswith("pg8000"):
                    raise AssertionError(f"case {case}") from error
            assert time.monotonic() - began < 9, f"case {case}"


# ---- a real server ----


@pytest.fixture
def asks_for_cleartext(postgres: Any) -> Any:
    """The user of a server whose pg_hba.conf says `password`, and the server."""
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    postgres.execute(f"CREATE ROLE clear LOGIN PASSWORD '{PASSWORD}'")
    rules.write_text(f"host all clear 127.0.0.1/32 password\n{before}")
    postgres.execute("SELECT pg_reload_conf()")
    yield postgres
    rules.write_text(before)
    postgres.execute("SELECT pg_reload_conf()")
    postgres.execute("DROP ROLE clear")


def test_real_server_that_wants_cleartext_gets_it_if_allowed(asks_for_cleartext: Any) -> None:
    server = asks_for_cleartext

    def given(**more: str) -> SourceOptions:
        url = f"postgresql://{server.host}:{server.port}/postgres"
        return parse_options({"url": url, "user": "clear", "password": PASSWORD, "tables": "a.b", **more})

    with pytest.raises(SourceError, match="in clear text"):
        connect(given(), purpose="a test")
    with connect(given(allowCleartextPassword="true"), purpose="a test") as connection:
        assert connection.value("SELECT current_user::text") == "clear"
    with pytest.raises(SourceError, match="refuses the user"):
        connect(given(allowCleartextPassword="true", password="wrong"), purpose="a test")


@pytest.mark.parametrize("method", ["scram-sha-256", "md5"])
def test_scrambles_are_sent_on_any_connection(postgres: Any, method: str) -> None:
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    postgres.execute(
        f"SET password_encryption = '{method}'", f"CREATE ROLE scrambled LOGIN PASSWORD '{PASSWORD}'"
    )
    rules.write_text(f"host all scrambled 127.0.0.1/32 {method}\n{before}")
    try:
        postgres.execute("SELECT pg_reload_conf()")
        given = {"url": f"postgresql://{postgres.host}:{postgres.port}/postgres", "user": "scrambled"}
        given |= {"tables": "a.b"}
        with connect(parse_options({**given, "password": PASSWORD}), purpose="a test") as connection:
            assert connection.value("SELECT 1") == 1
        with pytest.raises(SourceError, match="refuses the user"):
            connect(parse_options({**given, "password": "wrong"}), purpose="a test")
    finally:
        rules.write_text(before)
        postgres.execute("SELECT pg_reload_conf()", "DROP ROLE scrambled")


# ---- names, and a process ----


def test_schema_named_with_dollars_is_made(postgres: Any, postgres_database: str) -> None:
    dialect = PostgresDialect(
        PostgresSettings(
            f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
            postgres.user,
            password=Secret(postgres.password),
        )
    )
    session = dialect.connect()
    names = ["a$$b", "a'b", 'a"b', "$tag$", "back\\slash", "$$; DROP TABLE t; --"]
    for name in names:
        for statement in (*dialect.create_schema(name), *dialect.create_schema(name)):
            session.run(statement)
    found = {r[0] for r in session.run("SELECT nspname::text FROM pg_catalog.pg_namespace")}
    session.close()
    assert found.issuperset(names)


def test_check_of_a_hostile_server_ends_in_one_message(tmp_path: Any) -> None:
    attack = ATTACKS["a message of 2 GB"]
    with fake_postgres(answering(attack)) as server:
        done = check_as_process(tmp_path, f"postgresql://{server.host}:{server.port}/d")
    assert done.code == 3
    assert "maxAnswerBytes" in done.output
    assert "Traceback" not in done.output
    assert done.peak_mb < 400
