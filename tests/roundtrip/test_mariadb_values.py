"""Values of MariaDB: what its log gives is what a SELECT gives, and what the server itself prints."""

from __future__ import annotations

import ipaddress
import random
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import SourceError
from tailrace.model.change import OP_CREATE, ChangeBatch
from tailrace.sources.mysql.catalog import tables
from tailrace.sources.mysql.connection import connect
from tailrace_dev.servers import MariaDbServer
from tests.roundtrip import test_log_values as values
from tests.support import logged
from tests.support.databases import global_variable
from tests.support.logged import captured, final_rows, selected

#: MySQL's columns but for the index over an expression.
_COLUMNS = values._COLUMNS.partition("index")[0].rstrip().rstrip(",")


def changes_during(server: MariaDbServer, database: str, work: Callable[[], Any]) -> list[ChangeBatch]:
    """Every change that `work` makes, as a stream has it: without the columns that the log leaves out."""

    def found(table: Any) -> Any:
        with closing(connect(logged.options_for(server, database), purpose="test")) as connection:
            return next(iter(tables(connection, lambda name: name == str(table))), None)

    def schema_of(table: Any) -> Any:
        there = found(table)
        return None if there is None else there.logged

    batches = logged.changes_during(server, database, work, schema_of=schema_of, mariadb=True)
    return [batch.without(found(batch.table.id).left_out) for batch in batches]


def assert_both_ways_equal(
    server: MariaDbServer, database: str, batches: list[ChangeBatch]
) -> pa.StructArray:
    """The rows of table `t`, after they were found equal by log, SELECT and in the server's own words."""
    schema = captured(server, database)["t"]
    assert {b.table for b in batches} == {schema}
    rows = final_rows(batches, "id")
    rows.validate(full=True)
    values._assert_as_printed(server, schema, rows)
    assert rows.equals(selected(server, schema, "id"))
    return rows


@pytest.mark.parametrize("compress", ["OFF", "ON"])
def test_values_of_all_types_come_from_the_log_as_select_prints_them(
    mariadb: MariaDbServer, mariadb_database: str, compress: str
) -> None:
    r = random.Random(7)
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t ({_COLUMNS}) CHARACTER SET utf8mb4")
    rows = [values._row(r, i + r.choice([0, 2**64 - 500])) for i in range(200)]
    with global_variable(mariadb, "log_bin_compress", compress):
        batches = changes_during(
            mariadb, mariadb_database, lambda: values._insert(mariadb, mariadb_database, rows)
        )
    assert_both_ways_equal(mariadb, mariadb_database, batches)


def test_types_of_its_own_come_as_the_server_prints_them(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    r = random.Random(3)
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.t (id int primary key, u uuid, i4 inet4, i6 inet6, b binary(16),"
        " b4 binary(4) not null default '', d decimal(65,38), hidden int invisible default 7, doc json,"
        " p varchar(300) compressed, p1 varchar(50) compressed character set latin1, b1 blob compressed,"
        " vb varbinary(900) compressed, tx text compressed character set utf8mb4, tt tinytext compressed)"
        " CHARACTER SET utf8mb4"
    )
    addresses = [
        "::",
        "::1",
        "::ffff:1.2.3.4",
        "::1.2.3.4",
        "::1:0",
        "1::",
        "1:0:0:2:0:0:0:3",
        "fe80::1:0:0:1",
    ]
    addresses += ["2001:db8:0:1:1:1:1:1", "0:0:1::", "ff::20", "64:ff9b::1.2.3.4", "::ffff:0:1.2.3.4"]
    addresses += [
        str(ipaddress.IPv6Address(bytes(r.choice([0, 0, r.randrange(256)]) for _ in range(16))))
        for _ in range(150)
    ]
    uuids = [str(uuid.UUID(int=r.getrandbits(128), version=r.randint(1, 5))) for _ in range(90)] + [
        str(uuid.uuid1()),
        str(uuid.uuid4()),
    ]
    uuids += ["00000000-0000-0000-0000-000000000000", "12345678-1234-7234-8234-123456789020"]

    def row(i: int) -> list[Any]:
        def text(alphabet: str, longest: int) -> str:
            return alphabet * r.randint(0, longest // len(alphabet))

        given = [
            r.choice(uuids),
            str(ipaddress.IPv4Address(r.getrandbits(32))),
            addresses[i % len(addresses)],
            r.randbytes(r.randint(0, 16)),
            r.randbytes(4),
            f"{r.choice(['', '-'])}{r.getrandbits(80)}.{r.getrandbits(100)}",
            '{"a": [1, 2.50, "é"]}',
            text("aé漢😀", 200),
            text("aé€", 50),
            r.randbytes(r.randint(0, 500)),
            text("q", 900).encode(),
            text("zé漢", 3000),
            text("t", 200),
        ]
        return [i, *(None if r.random() < 0.1 and n != 4 else v for n, v in enumerate(given))]

    def work() -> None:
        with closing(mariadb.connect(database=mariadb_database)) as connection, connection.cursor() as cursor:
            names = "id, u, i4, i6, b, b4, d, doc, p, p1, b1, vb, tx, tt"
            marks = ", ".join(["%s"] * 14)
            cursor.executemany(
                f"INSERT INTO t ({names}) VALUES ({marks})", [row(i) for i in range(2 * len(addresses))]
            )
            cursor.execute("UPDATE t SET p = 'short', u = uuid() WHERE id % 5 = 0")

    rows = assert_both_ways_equal(mariadb, mariadb_database, changes_during(mariadb, mariadb_database, work))
    assert rows.field("hidden").to_pylist() == [7] * len(rows)


def test_vectors_and_geometries_come_both_ways(mariadb: MariaDbServer, mariadb_database: str) -> None:
    vector = "vector(3) not null" if mariadb.version >= "11.7" else "varbinary(12) not null"
    value = "vec_fromtext('[1, 2, 3]')" if mariadb.version >= "11.7" else "x'0000803f'"
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.t (id int primary key, v {vector}, g geometry, p point,"
        " c geometrycollection)"
    )
    geometries = (
        "st_geomfromtext('linestring(1 2, 3 4)', 4326), point(1, 2),"
        " st_geomfromtext('geometrycollection(point(1 1))')"
    )
    insert = (
        f"INSERT INTO {mariadb_database}.t VALUES (1, {value}, {geometries}), (2, {value}, NULL, NULL, NULL)"
    )
    batches = changes_during(mariadb, mariadb_database, lambda: mariadb.execute(insert))
    schema = captured(mariadb, mariadb_database)["t"]
    assert {b.table for b in batches} == {schema}
    assert final_rows(batches, "id").equals(selected(mariadb, schema, "id"))


@pytest.mark.parametrize(
    ("statements", "operations"),
    [
        (["CREATE TABLE {d}.u AS SELECT 1 AS id UNION SELECT 2"], [OP_CREATE, OP_CREATE]),
        (["CREATE TABLE {d}.m (id int) ENGINE = Aria", "INSERT INTO {d}.m VALUES (1)"], [OP_CREATE]),
        (["BEGIN", "INSERT INTO {d}.t VALUES (1)", "ROLLBACK"], []),
        (
            [
                "BEGIN",
                "INSERT INTO {d}.t VALUES (1)",
                "SAVEPOINT s",
                "DELETE FROM {d}.t",
                "ROLLBACK TO s",
                "COMMIT",
            ],
            [OP_CREATE],
        ),
        (["CREATE SEQUENCE {d}.s", "SELECT NEXTVAL({d}.s)", "INSERT INTO {d}.t VALUES (1)"], [OP_CREATE]),
        (["SET gtid_domain_id = 7", "INSERT INTO {d}.t VALUES (1)"], [OP_CREATE]),
        (["SET binlog_annotate_row_events = OFF", "INSERT INTO {d}.t VALUES (1)"], [OP_CREATE]),
        (
            [
                "SET binlog_alter_two_phase = ON",
                "ALTER TABLE {d}.t ADD a int",
                "INSERT INTO {d}.t VALUES (1, 2)",
            ],
            [OP_CREATE],
        ),
    ],
)
def test_every_way_to_change_rows_comes_through(
    mariadb: MariaDbServer, mariadb_database: str, statements: list[str], operations: list[int]
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id int primary key)")
    batches = changes_during(
        mariadb,
        mariadb_database,
        lambda: mariadb.execute(*(s.format(d=mariadb_database) for s in statements)),
    )
    assert [op for b in batches for op in b.op.to_pylist()] == operations


def test_the_gtid_of_a_change_is_domain_server_and_number(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id int primary key)")
    (batch,) = changes_during(
        mariadb,
        mariadb_database,
        lambda: mariadb.execute(
            "SET gtid_domain_id = 4294967295, server_id = 17, gtid_seq_no = 18446744073",
            f"INSERT INTO {mariadb_database}.t VALUES (1)",
        ),
    )
    assert batch.origin.column("txn").to_pylist() == ["4294967295-17-18446744073"]


@pytest.mark.parametrize("image", ["statement", "temporal"])
def test_what_cannot_be_read_is_refused_by_name(
    mariadb: MariaDbServer, mariadb_database: str, image: str
) -> None:
    table = f"{mariadb_database}.t"
    mariadb.execute(f"CREATE TABLE {table} (id int primary key, v datetime)")
    if image == "statement":
        settings, message = ["SET SESSION binlog_format = STATEMENT"], "a statement instead of rows"
    else:
        settings = ["SET GLOBAL mysql56_temporal_format = OFF", f"ALTER TABLE {table} ADD w datetime"]
        message = "` has the type `datetime from before MySQL 5.6`"
    try:
        with pytest.raises(SourceError, match=message):
            changes_during(
                mariadb,
                mariadb_database,
                lambda: mariadb.execute(*settings, f"INSERT INTO {table} (id) VALUES (1)"),
            )
    finally:
        mariadb.execute("SET GLOBAL mysql56_temporal_format = ON")
