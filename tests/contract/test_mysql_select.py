"""What the snapshot asks of a real MySQL: sessions, shapes, key ranges, pages, rows of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pymysql
import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import SchemaMismatchError, SourceError, TransientSourceError
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.catalog import CatalogTable, tables
from tailrace.sources.mysql.connection import connect, reconnect, retrying, server_facts
from tailrace.sources.mysql.session import MySqlSession
from tailrace.sources.mysql.snapshot.keys import boundary, key_values, max_key, within
from tailrace.sources.mysql.snapshot.literal import identifier, table_name
from tailrace.sources.mysql.snapshot.select import select_pages, select_statement
from tailrace.sources.mysql.snapshot.statement import Selection
from tailrace.sources.pausing import Pauses
from tailrace_dev.servers import MySqlServer, start_mysql

Connection = pymysql.Connection


def options(mysql: MySqlServer, **given: str) -> SourceOptions:
    base = {"url": mysql.url, "user": mysql.user, "password": mysql.password, "tables": ".*[.].*"}
    return parse_options({**base, **given})


@pytest.fixture
def connection(mysql: MySqlServer) -> Iterator[Connection]:
    found = connect(options(mysql), purpose="a test")
    yield found
    if found.open:
        found.close()


@pytest.fixture
def made(mysql: MySqlServer, database: str, connection: Connection) -> Callable[..., CatalogTable]:
    """Makes the table `t` and gives its shape."""

    def make(columns: str, *inserts: str, name: str = "t") -> CatalogTable:
        quoted = f"{identifier(database)}.{identifier(name)}"
        mysql.execute(f"CREATE TABLE {quoted} ({columns})")
        for values in inserts:
            mysql.execute(f"INSERT INTO {quoted} {values}")
        return tables(connection, lambda t: t == f"{database}.{name}")[0]

    return make


# ---- connections ----


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required"])
def test_session_is_the_same_under_every_tls_mode(mysql: MySqlServer, mode: str) -> None:
    connection = connect(options(mysql, tlsMode=mode), purpose="a test")
    assert connection.is_encrypted == (mode != "disabled")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@time_zone, @@sql_mode, @@autocommit, @@character_set_results, "
            "@@transaction_isolation, @@max_execution_time, @@net_write_timeout >= 3600, "
            "@@lock_wait_timeout >= 3600"
        )
        assert cursor.fetchone() == ("+00:00", "", 1, "utf8mb4", "REPEATABLE-READ", 3_600_000, 1, 1)
        cursor.execute(
            "SELECT ATTR_VALUE FROM performance_schema.session_account_connect_attrs "
            "WHERE PROCESSLIST_ID = CONNECTION_ID() AND ATTR_NAME = 'program_name'"
        )
        assert cursor.fetchone() == ("tailrace",)
    connection.close()


def test_certificate_is_checked_when_asked_for(mysql: MySqlServer) -> None:
    authority = str(mysql.data / "ca.pem")
    connection = connect(options(mysql, tlsMode="verify-ca", tlsCa=authority), purpose="a test")
    assert connection.is_encrypted
    connection.close()
    # the certificate that MySQL makes for itself names no host
    with pytest.raises(SourceError, match="certificate is not trusted"):
        connect(options(mysql, tlsMode="verify-identity", tlsCa=authority), purpose="a test")
    with pytest.raises(SourceError, match="certificate is not trusted"):
        connect(options(mysql, tlsMode="verify-ca"), purpose="a test")


def test_server_without_tls_is_read_in_the_clear_only_if_that_is_allowed() -> None:
    with start_mysql(options={"tls_version": ""}) as server:
        connection = connect(options(server, tlsMode="preferred"), purpose="a test")
        assert not connection.is_encrypted
        connection.close()
        for mode in ("required", "verify-ca"):
            with pytest.raises(SourceError, match="offers no TLS") as caught:
                connect(options(server, tlsMode=mode), purpose="a test")
            assert not caught.value.retryable


def test_password_is_sent_under_every_tls_mode(mysql: MySqlServer) -> None:
    mysql.execute("CREATE USER IF NOT EXISTS 'reader'@'%' IDENTIFIED BY 'pässword'", "FLUSH PRIVILEGES")
    for mode in ("disabled", "required"):
        more = {"user": "reader", "tlsMode": mode, "allowPublicKeyRetrieval": "true"}
        given = options(mysql, password="pässword", **more)
        connection = connect(given, purpose="a test")
        reconnect(connection)
        connection.close()
        with pytest.raises(SourceError, match="refuses the user") as caught:
            connect(options(mysql, password="wrong", **more), purpose="a test")
        assert "wrong" not in str(caught.value)
    mysql.execute("DROP USER 'reader'@'%'")


def test_unknown_user_is_refused_for_good(mysql: MySqlServer) -> None:
    with pytest.raises(SourceError, match="refuses the user") as caught:
        connect(options(mysql, user="nobody_here"), purpose="a test")
    assert not caught.value.retryable


def test_server_says_what_it_is(mysql: MySqlServer, connection: Connection) -> None:
    facts = server_facts(connection)
    assert facts.flavor == "mysql"
    assert ".".join(map(str, facts.version)) == mysql.version.split("-")[0]
    assert facts.gtid_mode
    assert facts.server_uuid == mysql.execute("SELECT @@server_uuid")[0][0]
    with connection.cursor() as cursor:
        cursor.execute(facts.log_status_sql)
        assert cursor.fetchone() is not None


def test_killed_connection_is_made_anew_by_retrying(mysql: MySqlServer) -> None:
    given = options(mysql)
    tries = []

    def operation() -> int:
        connection = connect(given, purpose="a test")
        tries.append(connection)
        if len(tries) == 1:
            mysql.execute(f"KILL {connection.thread_id()}")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            row = cursor.fetchone()
        connection.close()
        assert row is not None
        return int(row[0])

    assert retrying(given, operation, "asking") == 1
    assert len(tries) == 2


# ---- catalog ----


def test_shape_has_every_column_that_the_log_has(made: Callable[..., CatalogTable]) -> None:
    found = made(
        "id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED, "
        "hidden INT INVISIBLE, e ENUM('a', 'it''s') NOT NULL, INDEX f ((id * 2))",
        "(id, e, hidden) VALUES (1, 'a', 5)",
    )
    assert [c.name for c in found.schema.columns] == ["id", "v", "s", "hidden", "e"]
    assert [c.nullable for c in found.schema.columns] == [False, True, True, True, False]
    assert found.schema.column("e").type.labels == ("a", "it's")
    assert (found.schema.key, found.key_kind, found.engine) == (("id",), "primary", "InnoDB")


def test_generated_invisible_key_is_found(mysql: MySqlServer, database: str, connection: Connection) -> None:
    mysql.execute(
        "SET SESSION sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE `{database}`.t (a INT)",
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION show_gipk_in_create_table_and_information_schema = OFF")
        (found,) = tables(connection, lambda t: t == f"{database}.t")
    finally:
        mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
    assert found.schema.key == ("my_row_id",)


@pytest.mark.parametrize(
    ("columns", "key", "kind"),
    [
        ("a INT, b INT, PRIMARY KEY (b, a)", ("b", "a"), "primary"),
        ("a INT NOT NULL, b INT, UNIQUE (b), UNIQUE (a)", ("a",), "unique"),
        ("a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE (b)", ("b",), "unique"),
        ("a VARCHAR(9) NOT NULL, UNIQUE (a(3))", (), "none"),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE (b), UNIQUE (a) INVISIBLE", ("b",), "unique"),
        ("a INT NOT NULL, UNIQUE ((a + 1))", (), "none"),
        ("a FLOAT NOT NULL UNIQUE", (), "none"),
        ("a INT, b INT, UNIQUE (a)", (), "none"),
    ],
)
def test_key_is_the_primary_or_a_whole_unique_index(
    made: Callable[..., CatalogTable], columns: str, key: tuple[str, ...], kind: str
) -> None:
    found = made(columns)
    assert (found.schema.key, found.key_kind) == (key, kind)


def test_keys_that_cannot_be_cut_into_ranges_are_named(made: Callable[..., CatalogTable]) -> None:
    with pytest.raises(SchemaMismatchError, match=r"key column `d` of type double"):
        made("d DOUBLE PRIMARY KEY", name="u")


def test_only_captured_base_tables_are_looked_at(
    mysql: MySqlServer, database: str, connection: Connection
) -> None:
    mysql.execute(
        f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)",
        f"CREATE TABLE `{database}`.unsupported (d DOUBLE PRIMARY KEY)",
        f"CREATE VIEW `{database}`.v AS SELECT * FROM `{database}`.a",
        f"INSERT INTO `{database}`.a VALUES (1), (2), (3)",
        f"ANALYZE TABLE `{database}`.a",
    )
    asked = []

    def captures(name: str) -> bool:
        asked.append(name)
        return name == f"{database}.a"

    (found,) = tables(connection, captures)
    assert found.estimated_rows == 3
    assert f"{database}.v" not in asked
    assert not [n for n in asked if n.startswith(("mysql.", "sys.", "performance_schema."))]


# ---- keys ----

_WORDS = ["a", "A", "á", "b", "B ", "ab", "aB c", "Z", "ß", "ss", "", "é", "ñ", "o'x", "a\\", "1%"]


def _words(extra: str = "") -> list[str]:
    words = sorted({w + (str(i) if i else "") for w in [*_WORDS, *extra] for i in range(9)})
    return ["'" + w.replace("\\", "\\\\").replace("'", "''") + "'" for w in words]


#: name: columns of the table, its rows
KEYS: dict[str, tuple[str, list[str]]] = {
    "0900": ("k VARCHAR(30) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY", _words("😀")),
    "as_cs": ("k CHAR(30) COLLATE utf8mb4_0900_as_cs PRIMARY KEY", _words("😀")),
    "general": ("k VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY", _words()),
    "bin": ("k VARCHAR(30) COLLATE utf8mb4_bin PRIMARY KEY", _words("😀")),
    "latin1": ("k VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY", _words("€")),
    "utf8mb3": ("k VARCHAR(30) CHARACTER SET utf8mb3 PRIMARY KEY", _words()),
    "prefix": ("k TEXT COLLATE utf8mb4_bin, PRIMARY KEY (k(9))", _words()),
    "binary": ("k BINARY(16) PRIMARY KEY", [f"UNHEX(LEFT(SHA2({i}, 256), 32))" for i in range(200)]),
    "varbinary": ("k VARBINARY(9) PRIMARY KEY", [f"x'{i:0{2 * (1 + i % 3)}x}'" for i in range(200)]),
    "decimal": ("k DECIMAL(20,5) PRIMARY KEY", [f"{(i - 90) * 1234567.25}" for i in range(200)]),
    "wide": ("k DECIMAL(65,30) PRIMARY KEY", [f"{(i - 90) * 10**30}.{i:030d}" for i in range(200)]),
    "datetime": (
        "k DATETIME(6) PRIMARY KEY",
        [f"TIMESTAMP'2026-01-01 00:00:00' + INTERVAL {i * 37} MICROSECOND" for i in range(200)],
    ),
    "timestamp": (
        "k TIMESTAMP(3) PRIMARY KEY",
        [f"TIMESTAMP'2026-03-29 00:59:30' + INTERVAL {i} SECOND" for i in range(200)],
    ),
    "time": ("k TIME(2) PRIMARY KEY", [f"SEC_TO_TIME({(i - 90) * 1001.25})" for i in range(200)]),
    "date": ("k DATE PRIMARY KEY", [f"DATE'1990-01-01' + INTERVAL {i} DAY" for i in range(200)]),
    "unsigned": ("k BIGINT UNSIGNED PRIMARY KEY", [str(2**64 - 1 - i * 2**56) for i in range(200)]),
    "year": ("y YEAR, k TINYINT, PRIMARY KEY (y, k)", [f"{1950 + i % 40}, {i // 40}" for i in range(200)]),
    "composite": (
        ("a INT, b VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, c DATETIME(6), d VARBINARY(3), v INT, "
        "PRIMARY KEY (a, b, c, d)"),
        [
            f"{i % 3}, '{'aAbB'[i % 4]}{i % 5}', TIMESTAMP'2026-01-01 00:00:00' + INTERVAL {i % 7} SECOND, "
            f"x'{i:04x}', {i}"
            for i in range(300)
        ],
    ),
    "odd": (
        "`we``ird col` INT, `a b` VARCHAR(9), `%s` INT, PRIMARY KEY (`a b`, `we``ird col`)",
        [f"{i}, 'x{i % 5}', {i}" for i in range(200)],
    ),
    "unique": (
        "x INT NOT NULL, y VARCHAR(20) NOT NULL, z INT, UNIQUE KEY `the key` (y, x)",
        [f"{i}, '{i % 10}', {i}" for i in range(200)],
    ),
}  # fmt: skip


@pytest.fixture(params=list(KEYS))
def ordered(
    request: pytest.FixtureRequest, mysql: MySqlServer, made: Callable[..., CatalogTable]
) -> TableSchema:
    columns, values = KEYS[request.param]
    name = "odd `t` 100%" if request.param == "odd" else "t"
    schema = made(columns, name=name).schema
    rows = ", ".join(f"({v})" for v in values)
    mysql.execute(
        f"INSERT IGNORE INTO {table_name(schema.id)} VALUES {rows}",
        f"ANALYZE TABLE {table_name(schema.id)}",
    )
    return schema


def test_chunks_and_pages_cover_every_row_once_in_the_servers_order(
    mysql: MySqlServer, connection: Connection, ordered: TableSchema
) -> None:
    (whole,) = select_pages(connection, ordered, None, None, 10_000)
    keys = key_values(whole.rows, ordered)
    assert len(keys) == mysql.execute(f"SELECT COUNT(*) FROM {table_name(ordered.id)}")[0][0]
    assert len(keys) > 60
    assert max_key(connection, ordered) == keys[-1]
    after, done = None, 0
    while True:
        upto = boundary(connection, ordered, after, 37)
        pages = list(select_pages(connection, ordered, after, upto, 10))
        assert [p.after for p in pages] == [after, *(p.upto for p in pages[:-1])]
        assert pages[-1].upto == upto
        found = [k for p in pages for k in key_values(p.rows, ordered)]
        assert found == keys[done : done + 37]
        inside = range(done, done + len(found))
        done += len(found)
        assert within(connection, ordered, whole.rows, after, upto).to_pylist() == [
            i in inside for i in range(len(keys))
        ]
        if upto is None:
            break
        assert upto == keys[done - 1]
        assert within(connection, ordered, whole.rows, None, upto).to_pylist() == [
            i < done for i in range(len(keys))
        ]
        after = upto
    assert done == len(keys)


def test_ranges_are_index_range_scans(
    mysql: MySqlServer, connection: Connection, ordered: TableSchema
) -> None:
    middle = boundary(connection, ordered, None, 40)
    later = boundary(connection, ordered, middle, 10)
    assert middle is not None
    for after, upto in ((middle, later), (middle, None), (None, middle)):
        plan = mysql.execute("EXPLAIN FORMAT=TREE " + select_statement(ordered, after, upto, 5))[0][0]
        assert "ndex range scan on" in plan
        sorted_by_prefix = ordered.columns[0].type.native == "text"
        assert ("Sort" in plan) == sorted_by_prefix


def test_keys_differing_only_by_collation_are_compared_as_the_server_does(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY").schema
    import pyarrow as pa

    keys = pa.array([{"k": k} for k in ("É", "e", "f", "D", "e")], schema.arrow)
    assert within(connection, schema, keys, None, ("é",)).to_pylist() == [True, True, False, True, True]
    assert within(connection, schema, keys, ("e",), None).to_pylist() == [False, False, True, False, False]


def test_empty_table_has_no_keys_and_one_empty_page(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY").schema
    assert max_key(connection, schema) is None
    assert boundary(connection, schema, None, 1) is None
    (page,) = select_pages(connection, schema, None, None, 10)
    assert (len(page.rows), page.after, page.upto) == (0, None, None)
    assert page.rows.type == schema.arrow
    assert len(within(connection, schema, page.rows, None, (1,))) == 0


# ---- rows ----

_BLOBS = "SELECT n, REPEAT(CHAR(97 + n), {size}) FROM (" + " UNION ALL ".join(
    f"SELECT {n} AS n" for n in range(12)
) + ") AS numbers"  # fmt: skip


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_pages_are_cut_by_bytes_at_a_row(
    mysql: MySqlServer, made: Callable[..., CatalogTable], tls: str
) -> None:
    schema = made("id INT PRIMARY KEY, b LONGBLOB", _BLOBS.format(size=300_000)).schema
    connection = connect(options(mysql, tlsMode=tls), purpose="a test")
    pages = list(select_pages(connection, schema, None, None, 100, page_bytes=1_000_000))
    assert [len(p.rows) for p in pages] == [3, 3, 3, 3, 0]
    for page in pages:
        for row in page.rows.to_pylist():
            assert row["b"] == bytes([97 + row["id"]]) * 300_000
    assert [p.upto for p in pages] == [(2,), (5,), (8,), (11,), None]
    connection.close()


def test_rows_longer_than_a_packet_and_a_page_are_read(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY, b LONGBLOB").schema
    sizes = [5, 0xFFFFFF - 20, 0xFFFFFF, 0xFFFFFF + 1, 7, 20 << 20]
    with connection.cursor() as cursor:
        for i, size in enumerate(sizes):
            cursor.execute(f"INSERT INTO {table_name(schema.id)} VALUES ({i}, REPEAT('x', {size}))")
    pages = list(select_pages(connection, schema, None, None, 100, page_bytes=1_000_000))
    lengths = [len(b.as_buffer()) for p in pages for b in p.rows.field("b")]
    assert lengths == sizes


def test_pages_are_the_same_by_short_statements_with_pauses(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    values = ", ".join(f"({n}, '{n}')" for n in range(1000))
    schema = made("id INT PRIMARY KEY, v VARCHAR(10)", f"VALUES {values}").schema
    slept: list[float] = []
    for page_rows, upto in ((10_000, None), (300, None), (500, (999,)), (300, (899,))):
        slept.clear()
        slow = list(
            select_pages(connection, schema, (9,), upto, page_rows, pauses=Pauses(0.25, slept.append))
        )
        assert slow == list(select_pages(connection, schema, (9,), upto, page_rows))
        assert len(slept) >= 6
        assert all(seconds > 0 for seconds in slept)


def test_pages_by_short_statements_are_cut_by_bytes_too(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY, b LONGBLOB", _BLOBS.format(size=100_000)).schema
    paused = Pauses(0.9, lambda _: None)
    pages = list(select_pages(connection, schema, None, None, 100, page_bytes=450_000, pauses=paused))
    assert paused.rows == 1
    assert len(pages) > 1
    assert sum(len(page.rows) for page in pages) == len(
        next(select_pages(connection, schema, None, None, 100)).rows
    )
    assert all(page.rows.nbytes <= 600_000 for page in pages)
    assert [page.after for page in pages[1:]] == [page.upto for page in pages[:-1]]


def test_column_dropped_between_two_short_statements_is_missing_from_the_whole_page(
    mysql: MySqlServer, made: Callable[..., CatalogTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ", ".join(f"({n}, {n}, {n})" for n in range(500))
    schema = made("id INT PRIMARY KEY, a INT, b INT", f"VALUES {values}").schema
    slept = 0

    def sleep(_: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 2:
            mysql.execute(f"ALTER TABLE {table_name(schema.id)} DROP COLUMN a, ALGORITHM = INPLACE")

    monkeypatch.setattr("tailrace.sources.mysql.session.pauses", lambda share: Pauses(share, sleep))
    with closing(MySqlSession(options(mysql))) as session:
        pages = list(session.pages(SnapshotSplit(schema, None, None, {}, 1000, time_share=0.5)))
    assert slept > 3
    rows = [row for page in pages for row in page.rows.to_pylist()]
    assert rows == [{"id": n, "b": n} for n in range(500)]


def test_connection_is_free_after_a_result_given_up(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY, b LONGBLOB", _BLOBS.format(size=100_000)).schema
    with Selection(connection, select_statement(schema, None, None, None), schema, batch_rows=2) as selection:
        assert len(next(selection)) == 2
        assert not selection.ended
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@time_zone")
        assert cursor.fetchone() == ("+00:00",)


def test_statement_killed_in_the_middle_is_a_transient_error(
    mysql: MySqlServer, connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY, b LONGBLOB", _BLOBS.format(size=1_000_000)).schema
    statement = select_statement(schema, None, None, None)
    selection = Selection(connection, statement, schema, batch_rows=1)
    next(selection)
    mysql.execute(f"KILL {connection.thread_id()}")
    with pytest.raises(TransientSourceError, match="reading table"):
        list(selection)
    assert not connection.open


def test_statement_that_fails_while_it_runs_leaves_the_connection_usable(
    connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id BIGINT PRIMARY KEY, a TEXT", "VALUES (1, '[1]'), (2, '[1]'), (3, 'no json')").schema
    numbers = replace(schema, columns=schema.columns[:1])
    sql = f"SELECT id * JSON_LENGTH(a) AS id FROM {table_name(schema.id)} ORDER BY id"
    with pytest.raises(SourceError, match="server error 3141") as caught:
        list(Selection(connection, sql, numbers))
    assert "no json" not in str(caught.value)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_changed_table_is_a_schema_mismatch(
    mysql: MySqlServer, connection: Connection, made: Callable[..., CatalogTable]
) -> None:
    schema = made("id INT PRIMARY KEY, a INT").schema
    mysql.execute(f"ALTER TABLE {table_name(schema.id)} MODIFY a BIGINT")
    with pytest.raises(SchemaMismatchError, match=r"\.a` is no longer of the type int"):
        list(select_pages(connection, schema, None, None, 10))
    mysql.execute(f"ALTER TABLE {table_name(schema.id)} DROP COLUMN a")
    fresh = connect(options(mysql), purpose="a test")
    with pytest.raises(SchemaMismatchError, match="definition changed"):
        list(select_pages(fresh, schema, None, None, 10))
    mysql.execute(f"DROP TABLE {table_name(schema.id)}")
    with pytest.raises(SchemaMismatchError, match="definition changed"):
        list(select_pages(fresh, schema, None, None, 10))
    fresh.close()
