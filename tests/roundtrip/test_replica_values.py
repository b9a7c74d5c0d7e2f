"""What is written to a replica reads there as it does at the source: every type, into every database.

Without Spark: rows of a SELECT go through the dialects as tasks bring them.
"""

from __future__ import annotations

import dataclasses
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.options import parse_options
from tailrace.config.secret import Secret
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.model.change import ChangeBatch
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.snapshot import read_snapshot
from tailrace.sinks.replica.changes import snapshot_inserts
from tailrace.sinks.replica.dialect import Dialect, RefusalError, RowOperation, TableName
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.postgres import PostgresDialect
from tailrace.sinks.replica.target_schema import TargetSchema, first_schema, schema_for
from tailrace.sources import registry

COLUMNS = """
    k1 INT, k2 VARCHAR(50) COLLATE utf8mb4_0900_ai_ci, k3 VARBINARY(20), k4 DATETIME(3),
    ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, su SMALLINT UNSIGNED, mi MEDIUMINT, mu MEDIUMINT UNSIGNED,
    i INT, iu INT UNSIGNED, b BIGINT, bu BIGINT UNSIGNED,
    d1 DECIMAL(10,2), d2 DECIMAL(38,10), d3 DECIMAL(65,30), d4 DECIMAL(20,0), f FLOAT, g DOUBLE,
    c1 CHAR(10), v1 VARCHAR(200), v2 VARCHAR(12000), v3 VARCHAR(1000) CHARACTER SET latin1,
    tt TINYTEXT, tx TEXT, mt MEDIUMTEXT, lt LONGTEXT,
    bi BINARY(5), vb VARBINARY(100), tb TINYBLOB, bb BLOB, mb MEDIUMBLOB, lb LONGBLOB,
    b1 BIT(1), b12 BIT(12), b64 BIT(64),
    da DATE, dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL, tm TIME, tm3 TIME(3),
    y YEAR,    js JSON, en ENUM('a','it''s','ü€'), se SET('x','y','z'), ge GEOMETRY, po POINT, ve VECTOR(3),
    PRIMARY KEY (k1, k2, k3, k4)
"""
FULL = r"""
    1, 'a', x'00ff0a0d095c27', '2024-02-29 12:00:00.123', -128, 255, -32768, 65535, -8388608, 16777215,
    -2147483648, 4294967295, -9223372036854775808, 18446744073709551615, -12345678.90,
    1234567890123456789012345678.0123456789,
    -12345678901234567890123456789012345.123456789012345678901234567890, 99999999999999999999, 1.1, 0.1,
    'ab', 'tab\tnl\nbs\\q''dq"\r\b ü€🐟', REPEAT('€', 12000), REPEAT('é', 1000), '', 'text', 'mt', 'lt',
    'ab', x'00', x'', x'0a', 'm', x'5c4e', b'1', b'101010101010',
    b'1000000000000000000000000000000000000000000000000000000000000001', '2024-02-29', '9999-12-31 23:59:59',
    '1000-01-01 00:00:00.000001', '2038-01-19 03:14:07', '1970-01-01 00:00:01.000001', '-838:59:59',
    '838:59:58.999', 1901, '{"a": [1, 2.5, null, "x\\n"], "b": true}', 'it''s', 'x,z',
    ST_GeomFromText('LINESTRING(0 0,1 1)', 4326), ST_GeomFromText('POINT(-1.5 2)'),
    STRING_TO_VECTOR('[1.5,-2,0]')
"""
OTHERS = r"""
    (k1, k2, k3, k4) VALUES (1, 'b', '', '1000-01-01');
    (k1, k2, k3, k4) VALUES (2, '\\N', '\\N', '2024-01-01');
    (k1, k2, k3, k4) VALUES (2, '', '', '2024-01-01');
    (k1, k2, k3, k4, f, g, y, js, c1, se, b1, tm)
        VALUES (3, '', '', '2024-01-01', -3.4e38, 5e-324, 0, '"\\u0001"', '', '', 0, 0);
    (k1, k2, k3, k4, f, g, y, js, c1, se, b12, tm)
        VALUES (4, '', '', '2024-01-01', 1e-45, 1.7976931348623157e308, 2155, '[]', ' x', 'x,y', 0, '-0:0:1')
"""
DATES = (
    "(k1, k2, k3, k4, da, dt, ts) VALUES (5, '', '', '2024-01-01', '0000-00-00', '2024-02-00', '0000-00-00')"
)


wall = datetime.fromisoformat


@pytest.fixture
def source(mysql, database) -> str:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE `{database}`.t ({COLUMNS})")
        cursor.execute(f"INSERT INTO `{database}`.t VALUES ({FULL})")
        for rows in OTHERS.split(";"):
            cursor.execute(f"INSERT INTO `{database}`.t {rows}")
    return database


def selected(mysql, database: str, **options: str) -> tuple[TargetSchema, list[ChangeBatch]]:
    """The rows of the source's table, as a snapshot has them."""
    given = {
        "url": f"mysql://{mysql.host}:{mysql.port}",
        "user": mysql.user,
        "password": mysql.password,
        "tables": rf"{database}\.t",
    }
    parsed = parse_options({**given, **options})
    found = registry.source(parsed)
    table = found.tables()[0].schema
    split = SnapshotSplit(table, None, None, found.log_end().to_json(), 10_000)
    session = registry.session(parsed)
    try:
        return first_schema(f"{database}_replica.t", table), list(read_snapshot(split, session, exact=False))
    finally:
        session.close()


def write(dialect: Dialect, schema: TargetSchema, batches: list[ChangeBatch]) -> TableName:
    """Write the rows, replace them, delete them, write them again, update them."""
    place, inserts = dialect.table_name(schema.target), snapshot_inserts(batches, schema)
    with closing(dialect.connect()) as session:
        for statement in dialect.create(place, schema):
            session.run(statement)
        session.run("BEGIN")
        for operation in (
            RowOperation.INSERT,
            RowOperation.UPSERT,
            RowOperation.DELETE,
            RowOperation.INSERT,
            RowOperation.UPDATE,
        ):
            rows = inserts.rows.select(list(schema.key)) if operation is RowOperation.DELETE else inserts.rows
            session.write(operation, place, schema, rows)
        session.run("COMMIT")
    return place


@pytest.fixture(params=["load", "insert", "mariadb"])
def mysql_target(request) -> tuple[Any, MySqlDialect]:
    server = request.getfixturevalue("mariadb" if request.param == "mariadb" else "mysql")
    dialect = MySqlDialect.open(
        MySqlSettings(f"mysql://{server.host}:{server.port}", server.user, Secret(server.password))
    )
    return server, dataclasses.replace(dialect, reads_files=request.param != "insert")


def assert_equal_columns(
    source_server, target_server, database: str, names: list[str], order: str = "k1, k2, k3"
) -> None:
    with source_server.connect() as one, target_server.connect() as two:
        held = []
        for connection, schema in ((one, database), (two, f"{database}_replica")):
            with connection.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                columns = ", ".join(f"HEX(CAST(`{n}` AS BINARY))" for n in names)
                cursor.execute(f"SELECT {columns} FROM `{schema}`.t ORDER BY {order}")
                held.append(cursor.fetchall())
    for row, (wanted, found) in enumerate(zip(*held, strict=True)):
        assert dict(zip(names, found, strict=True)) == dict(zip(names, wanted, strict=True)), row


@pytest.mark.parametrize("zero_dates", ["null", "text"])
def test_mysql_replica_holds_every_value_of_every_type(mysql, source, mysql_target, zero_dates: str) -> None:
    server, dialect = mysql_target
    if zero_dates == "text":
        with mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute(f"INSERT INTO `{source}`.t {DATES}")
    schema, batches = selected(mysql, source, zeroDates=zero_dates)
    try:
        write(dialect, schema, batches)
        # of another character set here: compared as characters below
        names = [c.name for c in schema.columns if c.name != "v3"]
        assert_equal_columns(mysql, server, source, names)
        ((found,),) = server.execute(f"SELECT v3 FROM `{source}_replica`.t WHERE v3 IS NOT NULL")
        assert found == "é" * 1000
    finally:
        server.execute(f"DROP DATABASE IF EXISTS `{source}_replica`")


@pytest.mark.parametrize("reads_files", [True, False])
def test_replica_holds_the_types_of_text_that_mariadb_alone_has(
    mariadb, mariadb_database: str, reads_files: bool
) -> None:
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.t (u UUID, i4 INET4, i6 INET6, k INT, PRIMARY KEY (k, u))",
        f"INSERT INTO {mariadb_database}.t VALUES (UUID(), '10.0.0.1', '2001:db8::1', 1),"
        " ('6f1b0a2e-0000-4000-8000-000000000001', NULL, '::ffff:10.0.0.1', 2)",
    )
    settings = MySqlSettings(f"mysql://{mariadb.host}:{mariadb.port}", mariadb.user, Secret(mariadb.password))
    dialect = dataclasses.replace(MySqlDialect.open(settings), reads_files=reads_files)
    schema, batches = selected(mariadb, mariadb_database)
    try:
        write(dialect, schema, batches)
        assert_equal_columns(mariadb, mariadb, mariadb_database, ["u", "i4", "i6", "k"], order="k")
    finally:
        mariadb.execute(f"DROP DATABASE IF EXISTS `{mariadb_database}_replica`")


def test_postgres_replica_holds_every_value_of_every_type(mysql, source, postgres) -> None:
    dialect = PostgresDialect.open(
        PostgresSettings(
            f"postgresql://{postgres.host}:{postgres.port}/postgres", postgres.user, Secret(postgres.password)
        )
    )
    schema, batches = selected(mysql, source)
    try:
        write(dialect, schema, batches)
        with closing(dialect.connect()) as session:
            rows = session.run(f'SELECT * FROM "{source}_replica".t ORDER BY 1, 2, 3')
            json, vector, clock = session.run(
                f'SELECT js::text, ve::text, tm3::text FROM "{source}_replica".t WHERE ve IS NOT NULL'
            )[0]
    finally:
        postgres.execute(f'DROP SCHEMA IF EXISTS "{source}_replica" CASCADE')
    held = [dict(zip(schema.arrow.names, row, strict=True)) for row in rows]
    full = held[0]
    assert (json, vector, clock) == (
        '{"a": [1, 2.5, null, "x\\n"], "b": true}',
        "{1.5,-2,0}",
        "PT838H59M58.999S",
    )
    expected = {
        "k2": "a", "k3": bytes.fromhex("00ff0a0d095c27"), "k4": wall("2024-02-29 12:00:00.123"),
        "ti": -128, "tu": 255, "su": 65535, "mu": 16777215, "i": -(1 << 31), "iu": (1 << 32) - 1,
        "b": -(1 << 63), "bu": Decimal((1 << 64) - 1), "d1": Decimal("-12345678.90"),
        "d2": Decimal("1234567890123456789012345678.0123456789"), "f": 1.1, "g": 0.1,
        "d4": Decimal("99999999999999999999"), "v1": "tab\tnl\nbs\\q'dq\"\r\b ü€🐟", "v2": "€" * 12000,
        "tt": "", "bi": b"ab\0\0\0", "tb": b"", "lb": b"\\N", "b1": True, "b12": "101010101010",
        "b64": "1" + "0" * 62 + "1", "da": date(2024, 2, 29), "dt": wall("9999-12-31 23:59:59"),
        "ts": datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), "y": 1901, "en": "it's", "se": "x,z",
        "dt6": wall("1000-01-01 00:00:00.000001"),
    }  # fmt: skip
    assert {name: full[name] for name in expected} == expected
    assert full["ge"][:4] == (4326).to_bytes(4, "little")
    # DECIMAL beyond 38 digits is text on its way, and a number again
    assert full["d3"] == Decimal("-12345678901234567890123456789012345.123456789012345678901234567890")
    assert [r["k2"] for r in held] == ["a", "b", "", "\\N", "", ""]
    assert (held[4]["g"], held[4]["y"], held[5]["g"]) == (5e-324, 0, 1.7976931348623157e308)
    assert all(v is None for n, v in held[1].items() if n[0] != "k")


def test_postgres_replica_holds_lists(postgres) -> None:
    dialect = PostgresDialect.open(
        PostgresSettings(
            f"postgresql://{postgres.host}:{postgres.port}/postgres", postgres.user, Secret(postgres.password)
        )
    )
    kinds = {
        "i": (ColumnType(Kind.INTEGER, "int4", bits=32), [1, None, -2]),
        "t": (ColumnType(Kind.STRING, "text"), ['a"b\\c,{}', None, "NULL", ""]),
        "x": (ColumnType(Kind.BYTES, "bytea"), [b"\x00\xff", b"", None]),
        "m": (ColumnType(Kind.DATETIME, "timestamp", fraction=6), [wall("2024-01-01 00:00:00.000005"), None]),
        "n": (ColumnType(Kind.DECIMAL, "numeric", precision=10, scale=2), [Decimal("-0.05"), None]),
    }
    columns = [Column("id", ColumnType(Kind.INTEGER, "int4", bits=32))]
    columns += [Column(n, ColumnType(Kind.LIST, f"_{t.native}", element=t)) for n, (t, _) in kinds.items()]
    table = TableSchema(TableId("shop", "lists"), tuple(columns), ("id",))
    schema = first_schema("lists.t", table)
    rows: list[dict[str, Any]] = [
        {"id": 1, **{n: v for n, (_, v) in kinds.items()}},
        {"id": 2, **dict.fromkeys(kinds)},
        {"id": 3, **{n: [] for n in kinds}},
    ]
    data = pa.Table.from_pylist(rows, pa.schema(list(table.arrow)))
    with closing(dialect.connect()) as session:
        for statement in dialect.create(dialect.table_name("lists.t"), schema):
            session.run(statement)
        try:
            session.write(RowOperation.INSERT, dialect.table_name("lists.t"), schema, data)
            found = session.run("SELECT * FROM lists.t ORDER BY id")
        finally:
            session.run("DROP SCHEMA lists CASCADE")
    assert [dict(zip(table.arrow.names, row, strict=True)) for row in found] == rows


BAD: dict[str, tuple[ColumnType, Any]] = {
    "too long": (ColumnType(Kind.STRING, "varchar", length=3), "wxyz"),
    "out of range": (ColumnType(Kind.DECIMAL, "decimal", precision=4, scale=2), Decimal("99.99")),
    "null": (ColumnType(Kind.STRING, "varchar", length=3), None),
}


@pytest.mark.parametrize("server", ["mysql", "mariadb", "postgres"])
@pytest.mark.parametrize("bad", BAD)
def test_value_that_a_target_cannot_hold_is_refused_and_never_changed(request, server: str, bad: str) -> None:
    found = request.getfixturevalue(server)
    if server == "postgres":
        dialect: Dialect = PostgresDialect.open(
            PostgresSettings(
                f"postgresql://{found.host}:{found.port}/postgres", found.user, Secret(found.password)
            )
        )
    else:
        dialect = MySqlDialect.open(
            MySqlSettings(f"mysql://{found.host}:{found.port}", found.user, Secret(found.password))
        )
    type_, value = BAD[bad]
    column = Column("v", type_, nullable=False)
    table = TableSchema(
        TableId("a", "b"), (Column("id", ColumnType(Kind.INTEGER, "int", bits=32)), column), ("id",)
    )
    schema = first_schema("refusals.t", table)
    place = dialect.table_name("refusals.t")
    data = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([value], type_.arrow)})
    with closing(dialect.connect()) as session:
        for statement in dialect.create(place, schema):
            session.run(statement)
        try:
            if bad == "out of range":
                session.run(f"ALTER TABLE {dialect.name(place)} " + (
                    "ALTER COLUMN v TYPE numeric(3,2)" if server == "postgres" else "MODIFY v decimal(3,2)"
                ))  # fmt: skip
            for operation in (RowOperation.INSERT, RowOperation.UPSERT):
                session.run("BEGIN")
                with pytest.raises(RefusalError) as refused:
                    session.write(operation, place, schema, data)
                session.run("ROLLBACK")
                # PostgreSQL does not say which column a number is too large for
                assert refused.value.column in ("v", "")
                assert str(value) not in refused.value.reason
            assert session.run(f"SELECT COUNT(*) FROM {dialect.name(place)}") == [(0,)]
        finally:
            session.run("DROP SCHEMA refusals CASCADE" if server == "postgres" else "DROP DATABASE refusals")


def test_shape_follows_lengths_labels_and_signs() -> None:
    def one(type_: ColumnType) -> TableSchema:
        key = Column("id", ColumnType(Kind.INTEGER, "int", bits=32), nullable=False)
        return TableSchema(TableId("a", "b"), (key, Column("v", type_)), ("id",))

    def merged(a: ColumnType, b: ColumnType) -> ColumnType:
        return schema_for("t", [one(a), one(b)]).columns[1].type

    def text(native: str, length: int | None = None) -> ColumnType:
        return ColumnType(Kind.STRING, native, length=length)

    enum = ColumnType(Kind.ENUM, "enum", labels=("a", "b"))
    assert merged(text("varchar", 10), text("varchar", 20)).length == 20
    assert merged(text("varchar", 20), text("varchar", 10)).length == 20
    assert merged(text("varchar", 300), text("tinytext")) == text("varchar", 300)
    assert merged(text("varchar", 300), text("text")) == text("text")
    assert merged(enum, ColumnType(Kind.ENUM, "enum", labels=("b", "c"))).labels == ("a", "b", "c")
    assert merged(enum, text("varchar", 5)) == text("varchar", 5)
    unsigned = ColumnType(Kind.INTEGER, "int", bits=32, unsigned=True)
    assert merged(unsigned, ColumnType(Kind.INTEGER, "int", bits=32)).bits == 64
    fraction = ColumnType(Kind.DATETIME, "datetime", fraction=3)
    assert merged(ColumnType(Kind.DATETIME, "datetime", fraction=0), fraction).fraction == 3


def test_column_that_the_source_dropped_or_added_may_be_null() -> None:
    key = Column("id", ColumnType(Kind.INTEGER, "int", bits=32), nullable=False)
    text = Column("v", ColumnType(Kind.STRING, "varchar", length=5), nullable=False)
    before = TableSchema(TableId("a", "b"), (key, text), ("id",))
    after = TableSchema(TableId("a", "b"), (key, dataclasses.replace(text, name="w")), ("id",))
    held = schema_for("t", [before])
    assert [c.nullable for c in held.columns] == [False, False]
    assert [(c.name, c.nullable) for c in schema_for("t", [after], held).columns] == [
        ("id", False),
        ("v", True),
        ("w", True),
    ]
