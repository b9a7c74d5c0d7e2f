"""MySQL servers that attack: they get no file and no password, and no more time and memory than allowed."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tailrace.config.options import SourceOptions, parse_options
from tailrace.config.secret import Secret
from tailrace.config.sinks import MySqlSettings
from tailrace.errors import (
    ConfigError,
    DecodeError,
    SinkError,
    SourceError,
    TailraceError,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.mysql_session import connect as connect_to_write
from tailrace.sources import registry
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.catalog import tables
from tailrace.sources.mysql.connection import connect
from tailrace.sources.mysql.snapshot.keys import within
from tailrace.sources.mysql.snapshot.statement import Selection
from tailrace.sources.mysql.wire.schema.native import column_type
from tests.fuzz.subjects import events, logs
from tests.support import fake_mysql as fake
from tests.support.fake_mysql import MySqlLine, answering, fake_mysql
from tests.support.hostile import MYSQL, PASSWORD, check_as_process, ends_as_ours
from tests.support.listener import Listener

options, refused = MYSQL.options, MYSQL.refused


def settings(server: Listener, **given: Any) -> MySqlSettings:
    return MySqlSettings(f"mysql://{server.host}:{server.port}/d", "w", password=Secret(PASSWORD), **given)


# ---- files ----


def asks_at(statement: str) -> Callable[[MySqlLine], Any]:
    """A server that requests a file when it receives a statement that contains `statement`."""

    def script(line: MySqlLine) -> None:
        line.log_in()
        line.serve(lambda sql: [fake.ASKS_FOR_FILE] if statement in sql else None)

    return script


@pytest.mark.parametrize("statement", ["SET NAMES", "sql_mode", "time_zone", "ISOLATION"])
def test_source_never_sends_a_file(statement: str) -> None:
    error, server = refused(asks_at(statement))
    assert "asked for a file" in error.message
    assert "/etc/passwd" in str(error.detail)
    assert not error.retryable
    assert b"root:" not in server.heard


@pytest.mark.parametrize("statement", ["SET NAMES", "sql_mode", "lock_wait_timeout", "ISOLATION"])
def test_replica_sends_no_file_while_it_connects(statement: str) -> None:
    with fake_mysql(asks_at(statement)) as server, pytest.raises(SinkError, match="asked for a file"):
        connect_to_write(settings(server))
    assert b"root:" not in server.heard


def test_replica_sends_no_file_in_answer_to_a_query() -> None:
    with fake_mysql(asks_at("SELECT 1")) as server:
        session = MySqlDialect(settings(server)).connect()
        with pytest.raises(SinkError, match="asked for a file"):
            session.run("SELECT 1")
        session.close()
    assert b"root:" not in server.heard


@pytest.mark.parametrize("name", [b"/etc/passwd", b"rows ", b"./rows", b"", b"rows\0"])
def test_load_sends_its_rows_under_no_other_name(name: bytes) -> None:
    def script(line: MySqlLine) -> None:
        line.log_in()
        line.serve(lambda sql: [b"\xfb" + name] if "LOAD DATA" in sql else None)

    with fake_mysql(script) as server, closing(connect_to_write(settings(server))) as connection:
        with pytest.raises(SourceError, match="asked for a file"):
            connection.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t", [memoryview(b"a row\n")])
        assert not connection.open
    assert b"a row" not in server.heard
    assert b"root:" not in server.heard


def test_load_offers_its_rows_once() -> None:
    def script(line: MySqlLine) -> None:
        line.log_in()
        while "LOAD" not in (sql := line.next().decode()):
            assert sql
            line.packet(fake.OK)
        line.packet(b"\xfbrows")
        while line.next():
            pass
        line.packet(b"\xfbrows")
        line.listen()

    with (
        fake_mysql(script) as server,
        closing(connect_to_write(settings(server))) as connection,
        pytest.raises(DecodeError),
    ):
        connection.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t", [memoryview(b"a row\n")])
    assert server.heard.count(b"a row") == 1


def test_reading_rows_and_log_sends_no_file() -> None:
    def script(line: MySqlLine) -> None:
        line.log_in()
        while command := line.next():
            # prepare, dump; the rest are questions
            line.packet(fake.ASKS_FOR_FILE if command[0] in (0x16, 0x12) else fake.OK)

    table = TableSchema(TableId("d", "t"), (Column("a", column_type("int")),), ("a",))
    with fake_mysql(script) as server:
        with pytest.raises(SourceError, match="asked for a file"):
            Selection(connect(options(server), purpose="a test"), "SELECT a FROM t", table)
        with pytest.raises(SourceError, match="asked for a file"):
            next(DumpStream(options(server), "binlog.000001", 4, blocking=True).blocks())
    assert b"root:" not in server.heard


# ---- passwords ----


@pytest.fixture(scope="module")
def key() -> bytes:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def switching(plugin: str, *more: bytes) -> Callable[[MySqlLine], Any]:
    """A server that switches to another method, then sends more, whatever the client answers."""

    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting())
        line.next()
        line.packet(fake.switch(plugin))
        for payload in more:
            line.next()
            line.packet(payload)
        line.listen()

    return script


def defaulting(plugin: str, *more: bytes) -> Callable[[MySqlLine], Any]:
    """A server whose greeting names the method."""

    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting(plugin=plugin))
        for payload in more:
            line.next()
            line.packet(payload)
        line.listen()

    return script


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
@pytest.mark.parametrize(
    ("script", "setting"),
    [
        (switching("mysql_clear_password"), "allowCleartextPassword"),
        (
            switching("dialog"),
            "allowCleartextPassword",
        ),
        (switching("sha256_password"), "allowPublicKeyRetrieval"),
        (switching("caching_sha2_password", b"\x01\x04"), "serverPublicKeyFile"),
        (defaulting("caching_sha2_password", b"\x01\x04"), "allowPublicKeyRetrieval"),
        (defaulting("sha256_password", b"\x01a key"), "serverPublicKeyFile"),
    ],
)
def test_password_stays_here_without_tls(script: Callable[[MySqlLine], Any], setting: str, mode: str) -> None:
    error, _ = refused(script, tlsMode=mode)
    assert "without TLS" in error.message
    assert error.hint.index("use TLS") < error.hint.index(setting)
    assert not error.retryable


def test_key_of_the_server_is_not_asked_for(key: bytes) -> None:
    _, server = refused(defaulting("caching_sha2_password", b"\x01\x04", b"\x01" + key))
    sent = bytes(server.lines[0].heard)
    assert len(sent) == 4 + int.from_bytes(sent[:3], "little"), "more than the first answer was sent"


def test_settings_of_a_replica_are_named_as_the_sink_has_them() -> None:
    with fake_mysql(switching("mysql_clear_password")) as server, pytest.raises(SinkError) as caught:
        connect_to_write(settings(server))
    assert "sink.allow-cleartext-password" in str(caught.value.hint)
    assert "sink.tls-mode" in str(caught.value.hint)
    assert PASSWORD.encode() not in server.heard


def test_old_password_method_is_never_answered() -> None:
    for script in (switching("mysql_old_password"), _short_switch):
        error, server = refused(script, allowCleartextPassword="true")
        assert "mysql_old_password" in error.message
        assert server.heard.count(b"reader") == 1


def _short_switch(line: MySqlLine) -> None:
    line.packet(fake.greeting())
    line.next()
    line.packet(b"\xfe")
    line.listen()


@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password"])
@pytest.mark.parametrize("salt", [b"", b"short", bytes(8)])
def test_challenge_that_is_too_short_is_not_answered(plugin: str, salt: bytes) -> None:
    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting())
        line.next()
        line.packet(fake.switch(plugin, salt))
        line.listen()

    error, server = refused(script, DecodeError)
    assert "challenge" in error.message
    sent = bytes(server.lines[0].heard)
    assert len(sent) == 4 + int.from_bytes(sent[:3], "little")


@pytest.mark.parametrize(
    "terms",
    [
        b"",
        b"P\x00short",
        b"\x01P\xff" + bytes(18),
        b"P\x04" + bytes(18),
        b"S\x00" + bytes(18),
        b"P\x00" + bytes(99),
    ],
)
def test_terms_of_parsec_that_cost_too_much_or_are_none_are_refused(terms: bytes) -> None:
    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting())
        line.next()
        line.packet(fake.switch("parsec", bytes(range(32))))
        assert line.next() == b""
        line.packet(terms or b"\x01")
        line.listen()

    began = time.monotonic()
    error, _ = refused(script, DecodeError)
    assert error.code == "TR-3108"
    assert time.monotonic() - began < 5


def test_greeting_without_a_whole_challenge_is_not_answered() -> None:
    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting(plugin="")[: -len(fake.SALT[8:]) - 3])
        line.listen()

    error, server = refused(script, DecodeError)
    assert "challenge" in error.message
    assert not server.heard


def test_cleartext_and_an_unpinned_key_are_sent_where_that_is_allowed(key: bytes) -> None:
    def clear(line: MySqlLine) -> None:
        line.packet(fake.greeting())
        line.next()
        line.packet(fake.switch("mysql_clear_password"))
        assert line.next() == PASSWORD.encode() + b"\0"
        line.packet(fake.OK)
        line.serve(lambda _: None)

    def keyed(line: MySqlLine) -> None:
        line.packet(fake.greeting(plugin="caching_sha2_password"))
        line.next()
        line.packet(b"\x01\x04")
        assert line.next() == b"\x02"
        line.packet(b"\x01" + key)
        assert len(line.next()) == 256
        line.packet(fake.OK)
        line.serve(lambda _: None)

    with fake_mysql(clear) as server:
        connect(options(server, allowCleartextPassword="true"), purpose="a test").close()
    with fake_mysql(keyed) as server:
        connect(options(server, allowPublicKeyRetrieval="true"), purpose="a test").close()


def test_pinned_key_is_used_and_the_servers_own_is_not(key: bytes, tmp_path: Any) -> None:
    def script(line: MySqlLine) -> None:
        line.packet(fake.greeting(plugin="caching_sha2_password"))
        line.next()
        line.packet(b"\x01\x04")
        assert len(line.next()) == 256
        line.packet(fake.OK)
        line.serve(lambda _: None)

    pinned = tmp_path / "key.pem"
    pinned.write_bytes(key)
    with fake_mysql(script) as server:
        connect(options(server, serverPublicKeyFile=str(pinned)), purpose="a test").close()
        with pytest.raises(ConfigError, match="serverPublicKeyFile"):
            connect(options(server, serverPublicKeyFile=str(tmp_path / "none")), purpose="a test")
        pinned.write_bytes(b"no key")
        with pytest.raises(ConfigError, match="serverPublicKeyFile"):
            connect(options(server, serverPublicKeyFile=str(pinned)), purpose="a test")


@pytest.mark.parametrize(
    "offered", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
)
def test_key_that_is_none_is_a_decode_error(offered: bytes) -> None:
    script = defaulting("caching_sha2_password", b"\x01\x04", b"\x01" + offered)
    error, _ = refused(script, DecodeError, allowPublicKeyRetrieval="true")
    assert "key" in error.message


def test_connection_made_anew_without_tls_is_not_taken_for_encrypted(mysql_over_tls: Any) -> None:
    """A man in the middle who forwards the first log-in and strips TLS from the second gets no password."""
    connection = mysql_over_tls(PASSWORD)
    assert connection.is_encrypted
    with fake_mysql(switching("mysql_clear_password")) as server:
        connection.options = options(server)
        connection.host, connection.port = server.host, server.port
        connection.break_off()
        with pytest.raises(SourceError, match="without TLS"):
            connection.connect()
    assert PASSWORD.encode() not in server.heard


@pytest.fixture
def mysql_over_tls(mysql: Any) -> Any:
    mysql.execute(f"CREATE USER 'over_tls'@'%' IDENTIFIED BY '{PASSWORD}'")
    made = []

    def make(password: str) -> Any:
        made.append(
            connect(
                parse_options({"url": mysql.url, "user": "over_tls", "password": password, "tables": "a.b"}),
                purpose="a test",
            )
        )
        return made[-1]

    yield make
    for connection in made:
        connection.break_off()
    mysql.execute("DROP USER 'over_tls'@'%'")


def test_password_that_is_no_text_is_a_config_error(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00secret")
    monkeypatch.setenv("NO_TEXT", "a\udcffb")
    for reference in (f"${{file:{tmp_path}/binary}}", "${env:NO_TEXT}", "a\0b", "\ud800"):
        with pytest.raises(ConfigError, match=r"not (UTF-8 )?text") as caught:
            Secret(reference).resolve()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("method", ["caching_sha2_password", "sha256_password"])
def test_real_server_gets_the_password_over_tls_or_by_a_key(mysql: Any, method: str, tmp_path: Any) -> None:
    found = mysql.execute(
        f"SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = '{method}'"
    )
    if found != [("ACTIVE",)]:
        pytest.skip(f"this server has no {method}")
    mysql.execute(f"CREATE USER 'keyed'@'%' IDENTIFIED WITH {method} BY '{PASSWORD}'")

    def given(**more: str) -> SourceOptions:
        return parse_options(
            {"url": mysql.url, "user": "keyed", "password": PASSWORD, "tables": "a.b", **more}
        )

    key = mysql.data / "public_key.pem"
    try:
        for more, encrypted in (
            ({"tlsMode": "preferred"}, True),
            ({"tlsMode": "required"}, True),
            ({"tlsMode": "disabled", "serverPublicKeyFile": str(key)}, False),
            ({"tlsMode": "disabled", "allowPublicKeyRetrieval": "true"}, False),
        ):
            mysql.execute("FLUSH PRIVILEGES")  # what is cached would be answered by a scramble
            connection = connect(given(**more), purpose="a test")
            assert connection.is_encrypted is encrypted
            connection.close()
            with pytest.raises(SourceError, match="refuses the user"):
                connect(given(**{**more, "password": "wrong"}), purpose="a test")
        mysql.execute("FLUSH PRIVILEGES")
        with pytest.raises(SourceError, match="without TLS"):
            connect(given(tlsMode="disabled"), purpose="a test")
    finally:
        mysql.execute("DROP USER 'keyed'@'%'")


# ---- bounds ----


def _endless_rows(line: MySqlLine) -> None:
    for payload in fake.head_of(["Variable_name", "Value"]):
        line.packet(payload)
    number = line.number
    while True:
        piece = b"".join(fake.framed(b"\x01a\x01b", (number + i) & 255) for i in range(256))
        line.send(piece * 100)


def _huge_row(line: MySqlLine) -> None:
    for payload in fake.head_of(["Variable_name", "Value"]):
        line.packet(payload)
    while True:
        line.packet(bytes(0xFFFFFF))


ATTACKS: dict[str, Callable[[MySqlLine], Any]] = {
    "rows without end": _endless_rows,
    "one row without end": _huge_row,
    "columns without end": lambda line: (
        (
            line.packet(b"\xfe" + b"\xff" * 8),
            line.flood(b"".join(fake.framed(fake.definition("a"), (2 + i) & 255) for i in range(2560))),
        )
    ),
    "results without end": lambda line: line.flood(
        b"".join(fake.framed(b"\x00\x00\x00\x0a\x00\x00\x00", (1 + i) & 255) for i in range(2560))
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_check_ends_before_memory_does(attack: Callable[[MySqlLine], Any]) -> None:
    with fake_mysql(answering(attack)) as server:
        found = registry.check(options(server, maxAnswerBytes="16m", retryTimeoutMs="20000"))
    assert len(found) == 1
    assert "maxAnswerBytes" in found[0].remedy or "no answer in time" in found[0].found


def test_bulk_rows_have_a_longest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.sources.mysql.snapshot.statement.LONGEST_ROW", 40 << 20)

    def script(line: MySqlLine) -> None:
        line.log_in()
        while line.next()[0] != 0x16:
            line.packet(fake.OK)
        line.packet(b"\0" + struct.pack("<IHHBH", 1, 1, 0, 0, 0))
        for payload in (definition, fake.END):
            line.packet(payload)
        line.next()
        for payload in (b"\x01", definition, fake.END):
            line.packet(payload)
        while True:
            line.packet(bytes(0xFFFFFF))

    definition = fake.definition("a", 252)
    table = TableSchema(TableId("d", "t"), (Column("a", column_type("longtext")),), ("a",))
    with fake_mysql(script) as server:
        selection = Selection(connect(options(server), purpose="a test"), "SELECT a FROM t", table)
        with pytest.raises(DecodeError, match="longer than it may be"):
            next(selection)


# ---- malformed ----


PACKETS = {
    "greeting": [fake.greeting(), fake.OK],
    "caching": [fake.greeting(plugin="caching_sha2_password"), b"\x01\x03", fake.OK],
    "switch": [fake.greeting(), fake.switch("caching_sha2_password"), b"\x01\x03", fake.OK],
    "result": [fake.greeting(), fake.OK, fake.OK, *fake.rows_of(["a", "b"], [["1", None], ["x" * 300, "2"]])],
    "error": [fake.greeting(), fake.refusal(1045, "Access denied")],
    "dialog": [fake.greeting(), b"\xfedialog\0\x04Password: ", fake.OK],
}


def mutated(r: random.Random, packets: list[bytes]) -> list[bytes]:
    """`packets` with a few bytes, or whole packets, changed."""
    out = [bytearray(p) for p in packets]
    for _ in range(r.randint(1, 4)):
        packet = r.choice(out)
        match r.randrange(6):
            case 0 if packet:
                packet[r.randrange(len(packet))] = r.choice(
                    [0, 1, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF, r.randrange(256)]
                )
            case 1:
                del packet[r.randrange(len(packet) + 1) :]
            case 2:
                packet += r.randbytes(r.randint(1, 40))
            case 3:
                packet[:] = r.choice([bytes(p) for p in out])
            case 4:
                out.insert(r.randrange(len(out)), bytearray(r.randbytes(r.randint(0, 30))))
            case _ if packet:
                at = r.randrange(len(packet))
                packet[at : at + r.randint(0, 9)] = r.randbytes(r.randint(0, 9))
    return [bytes(p) for p in out]


def test_broken_packets_end_in_errors_of_ours() -> None:
    """Cases by number: the number reproduces a failure."""
    case = 0

    def script(line: MySqlLine) -> None:
        r = random.Random(f"mysql:{case}")
        for payload in mutated(r, PACKETS[r.choice(sorted(PACKETS))]):
            if r.random() < 0.03:
                line.number = r.randrange(256)
            line.packet(payload)
            if r.random() < 0.8:
                line.next()
        line.sock.shutdown(1)

    with fake_mysql(script) as server:
        given = options(
            server,
            allowCleartextPassword="true",
            allowPublicKeyRetrieval="true",
            connectTimeoutMs="100",
            queryTimeoutMs="100",
        )
        for case in range(300):
            began = time.monotonic()
            try:
                connection = connect(given, purpose="a test")
                try:
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT a, b")
                finally:
                    connection.break_off()
            except TailraceError:
                pass
            except Exception as error:
                if not type(error).__module__.startswith("pymysql"):
                    raise AssertionError(f"case {case}") from error
            assert time.monotonic() - began < 9, f"case {case}"


def test_statement_that_is_too_long_names_the_servers_limit() -> None:
    def script(line: MySqlLine) -> None:
        line.log_in()
        line.serve(
            lambda sql: (
                [fake.refusal(1153, "Got a packet bigger than 'max_allowed_packet' bytes")]
                if "SHOW" in sql
                else None
            )
        )

    with fake_mysql(script) as server:
        (found,) = registry.check(options(server))
    assert "max_allowed_packet" in found.remedy


def test_keys_are_compared_in_statements_that_the_server_takes(mysql: Any, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (k varchar(700) PRIMARY KEY)")
    given = parse_options({"url": mysql.url, "user": mysql.user, "password": mysql.password, "tables": "a.b"})
    (usual,) = mysql.execute("SELECT @@GLOBAL.max_allowed_packet")
    mysql.execute("SET GLOBAL max_allowed_packet = 1024")
    try:
        connection = connect(given, purpose="a test")
        (table,) = tables(connection, lambda name: name == f"{database}.t")
        keys = pa.array([{"k": f"key {i}"} for i in range(2000)], table.schema.arrow)
        assert sum(within(connection, table.schema, keys, None, ("key 5",)).to_pylist()) == 1446
        longer = pa.array([{"k": "x" * 700}], table.schema.arrow)
        with pytest.raises(SourceError, match="comparing keys") as caught:
            within(connection, table.schema, longer, None, ("key",))
    finally:
        mysql.execute(f"SET GLOBAL max_allowed_packet = {usual[0]}")
        connection.break_off()
    assert "max_allowed_packet" in str(caught.value.hint)
    assert not caught.value.retryable


def test_ports_of_other_databases_are_not_taken_for_this_one(mysql: Any, postgres: Any) -> None:
    began = time.monotonic()
    given = {"user": "reader", "tables": "a.b", "connectTimeoutMs": "1000"}
    (found,) = registry.check(parse_options({"url": f"mysql://{postgres.host}:{postgres.port}", **given}))
    assert "no answer in time" in found.found
    (found,) = registry.check(parse_options({"url": f"postgresql://{mysql.host}:{mysql.port}/d", **given}))
    assert "no PostgreSQL server" in found.found
    assert time.monotonic() - began < 9


def test_hostile_target_is_an_error_of_a_sink() -> None:
    def script(line: MySqlLine) -> None:
        line.log_in()
        line.serve(lambda sql: [b"\x03", b"\x01"] if "SELECT" in sql else None)

    with fake_mysql(script) as server:
        session = MySqlDialect(settings(server)).connect()
        with pytest.raises(SinkError, match="malformed"):
            session.run("SELECT 1")
        session.close()


def test_broken_log_ends_in_errors_of_ours() -> None:
    """Cases by number: the number reproduces a failure."""
    case = 0

    def script(line: MySqlLine) -> None:
        r = random.Random(f"dump:{case}")
        line.log_in()
        while line.next()[0] != 0x12:
            line.packet(fake.OK)
        log = r.choice(logs())
        packets = [b"\0" + log[at : at + size] for at, size in events(log)][:50]
        for payload in mutated(r, packets):
            line.packet(payload)

    with fake_mysql(script) as server:
        given = options(server, retryTimeoutMs="1")
        for case in range(100):
            began = time.monotonic()
            ends_as_ours(lambda: list(DumpStream(given, "binlog.000001", 4, blocking=False).blocks()))
            assert time.monotonic() - began < 9, f"case {case}"


def test_broken_rows_end_in_errors_of_ours() -> None:
    """Cases by number: the number reproduces a failure."""
    case = 0

    def script(line: MySqlLine) -> None:
        r = random.Random(f"rows:{case}")
        line.log_in()
        while line.next()[0] != 0x16:
            line.packet(fake.OK)
        definition = fake.definition("a", 252)
        prepared = [b"\0" + struct.pack("<IHHBH", 1, 1, 0, 0, 0), definition, fake.END]
        executed = [
            b"\x01",
            definition,
            fake.END,
            *[b"\0\0" + fake.text("x" * n) for n in (1, 300)],
            fake.END,
        ]
        if r.random() < 0.3:
            prepared = mutated(r, prepared)
        for payload in prepared:
            line.packet(payload)
        line.next()
        for payload in mutated(r, executed):
            line.packet(payload)

    table = TableSchema(TableId("d", "t"), (Column("a", column_type("longtext")),), ("a",))
    with fake_mysql(script) as server:
        given = options(server, queryTimeoutMs="200")
        for case in range(60):
            began = time.monotonic()
            connection = connect(given, purpose="a test")
            ends_as_ours(lambda c=connection: list(Selection(c, "SELECT a FROM t", table)))  # type: ignore[misc]
            connection.break_off()
            assert time.monotonic() - began < 9, f"case {case}"


# ---- as a process ----


def test_check_of_a_hostile_server_ends_in_one_message(tmp_path: Any) -> None:
    with fake_mysql(answering(_endless_rows)) as server:
        done = check_as_process(tmp_path, f"mysql://{server.host}:{server.port}", maxAnswerBytes="64m")
    assert done.code == 3
    assert "maxAnswerBytes" in done.output
    assert "Traceback" not in done.output
    assert done.peak_mb < 700


def test_check_of_a_silent_port_ends_within_the_connect_timeout(tmp_path: Any) -> None:
    with fake_mysql(lambda line: line.listen()) as server:
        done = check_as_process(tmp_path, f"mysql://{server.host}:{server.port}", connectTimeoutMs="1000")
    assert done.code == 3
    assert "no answer in time" in done.output
    assert done.seconds < 8
