"""The largest, the deepest and the oddest values: the same from a SELECT and from the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace_dev.servers import MySqlServer
from tests.support.databases import global_variable
from tests.support.logged import both_ways

_MB = 1 << 20


@pytest.fixture
def large_packets(mysql: MySqlServer) -> Iterator[None]:
    with global_variable(mysql, "max_allowed_packet", str(256 * _MB)):
        yield


@pytest.mark.usefixtures("large_packets")
def test_blobs_and_texts_of_up_to_64_mb_come_whole(mysql: MySqlServer, database: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, b longblob, m mediumblob, u longtext,"
        " s longtext character set sjis)"
    )
    sizes = {1: 16 * _MB - 1, 2: 16 * _MB, 3: 64 * _MB}
    rows = both_ways(
        mysql,
        database,
        *(
            f"INSERT INTO {database}.t (id, b) VALUES ({i}, repeat(x'00ff61', {size} div 3 + 1))"
            for i, size in sizes.items()
        ),
        f"INSERT INTO {database}.t (id, m) VALUES (4, repeat('m', {16 * _MB - 1}))",
        f"INSERT INTO {database}.t (id, u) VALUES (5, repeat('é😀', {4 * _MB}))",
        f"INSERT INTO {database}.t (id, s) VALUES (6, repeat('漢', {9 * _MB}))",
    )
    for i, size in sizes.items():
        assert len(rows.field("b")[i - 1].as_buffer()) == 3 * (size // 3 + 1)
    assert len(rows.field("u")[4].as_buffer()) == 24 * _MB
    assert len(rows.field("s")[5].as_buffer()) == 27 * _MB


@pytest.mark.parametrize("value", ["x'00'", "x'6100'", "x'0061'", "x''", "x'2020'", "x'ff00ff0000'"])
def test_binary_keeps_its_zeros(mysql: MySqlServer, database: str, value: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, b binary(5), v varbinary(5), w binary(255))"
    )
    rows = both_ways(mysql, database, f"INSERT INTO {database}.t VALUES (1, {value}, {value}, {value})")
    data = bytes.fromhex(value[2:-1])
    assert rows.to_pylist() == [{"id": 1, "b": data.ljust(5, b"\0"), "v": data, "w": data.ljust(255, b"\0")}]


def test_json_of_every_size_and_depth(mysql: MySqlServer, database: str) -> None:
    """Offsets are of two bytes up to 64 KB and of four beyond, containers may hold one another either way."""
    documents = [
        [[]] * 3,
        json.loads("[" * 100 + "]" * 100),
        json.loads('{"a":' * 99 + "1" + "}" * 99),
        {f"key {i}": i for i in range(5_000)},
        {f"k{i}": [i, {"x": "y" * (i % 7)}] for i in range(9_000)},
        list(range(-70_000, 70_000, 3)),
        ["s" * n for n in (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 65_500, 70_000)],
        {"small": {"large": "x" * 70_000}, "after": [1, 2, 3]},
        [[1, 2], "x" * 65_490, [3, 4]],
        [2**63, 2**64 - 1, -(2**63), 2**31, -(2**31) - 1, 2**15, -(2**15) - 1, 1.5, 1e100, -0.0],
        {"": "", "é": "ü", "😀": '\u0000\u001f"\\/', "k" * 60_000: None},
        [True, False, None] * 30_000,
    ]  # fmt: skip
    texts = [json.dumps(d) for d in documents] + [
        '"top"',
        "17",
        "-1.25e-7",
        "null",
        "true",
        "18446744073709551615",
    ]
    values = [f"({i}, CONVERT(x'{t.encode().hex()}' USING utf8mb4))" for i, t in enumerate(texts)]
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, doc json)")
    rows = both_ways(mysql, database, *(f"INSERT INTO {database}.t VALUES {v}" for v in values))
    found = rows.field("doc").to_pylist()
    assert [json.loads(t) for t in found] == [json.loads(t) for t in texts]
    with closing(mysql.connect(database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT doc FROM t ORDER BY id")
        assert [r[0] for r in cursor.fetchall()] == found


def test_the_ends_of_every_range(mysql: MySqlServer, database: str) -> None:
    columns = {
        "t0": ("time", ["-838:59:59", "838:59:59", "00:00:00", "-00:00:01"]),
        "t6": ("time(6)", ["-838:59:59.000000", "838:59:59.000000", "-00:00:00.000001", "00:00:00.000001"]),
        "y": ("year", ["0000", "1901", "2155", "2024"]),
        "d": ("date", ["0001-01-01", "9999-12-31", "1000-01-01", "1582-10-15"]),
        "dt": ("datetime(6)", ["0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"] * 2),
        "ts": ("timestamp(6)", ["1970-01-01 00:00:01.000000", "2038-01-19 03:14:07.999999"] * 2),
        "dec65": ("decimal(65,0)", ["9" * 65, "-" + "9" * 65, "0", "-1"]),
        "dec30": ("decimal(65,30)", ["9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1", "0", "1"]),
        "f": ("float", ["3.4e38", "-3.4e38", "1.2e-38", "0"]),
        "g": ("double", ["1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072e-308", "0"]),
    }  # fmt: skip
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in columns.items())
    values = zip(*(v for _, v in columns.values()), strict=True)
    lines = ", ".join(f"({i}, {', '.join(map(repr, line))})" for i, line in enumerate(values))
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, {declared})")
    rows = both_ways(mysql, database, "SET time_zone = '+00:00'", f"INSERT INTO {database}.t VALUES {lines}")
    assert rows.field("t0").cast("int64").to_pylist() == [
        -3_020_399_000_000,
        3_020_399_000_000,
        0,
        -1_000_000,
    ]
    assert rows.field("t6").cast("int64").to_pylist() == [-3_020_399_000_000, 3_020_399_000_000, -1, 1]
    assert rows.field("y").to_pylist() == [0, 1901, 2155, 2024]
    assert rows.field("dec65").to_pylist() == columns["dec65"][1]
    assert rows.null_count == sum(rows.field(name).null_count for name in columns) == 0


def test_hidden_generated_and_default_columns_are_columns_like_others(
    mysql: MySqlServer, database: str
) -> None:
    rows = both_ways(
        mysql,
        database,
        "SET sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE {database}.t (a int, v int generated always as (a + 1) virtual,"
        " s varchar(9) character set gbk generated always as (concat(a, '汉')) stored invisible,"
        " h int default 5 invisible, e varchar(40) default (concat('d', a)),"
        " f datetime(3) default '2024-02-29 01:02:03.456', index ((a * 2)), index ((cast(e as char(3)))))",
        f"INSERT INTO {database}.t (a) VALUES (1), (NULL)",
        f"UPDATE {database}.t SET a = 2 WHERE a = 1",
        key="my_row_id",
    )
    names = ["my_row_id", "a", "v", "s", "h", "e"]
    assert [f.name for f in rows.type] == [*names, "f"]
    found = [tuple(r[n] for n in names) for r in rows.to_pylist()]
    assert found == [(1, 2, 3, "2汉", 5, "d1"), (2, None, None, None, 5, None)]


@pytest.mark.parametrize("zone", ["+00:00", "+14:00", "-13:59", "SYSTEM"])
def test_timestamps_do_not_depend_on_the_servers_zone(mysql: MySqlServer, database: str, zone: str) -> None:
    moment = "'2024-03-31 02:30:00.000001'"
    with global_variable(mysql, "time_zone", f"'{zone}'"):
        mysql.execute(f"CREATE TABLE {database}.t (id int primary key, ts timestamp(6), dt datetime(6))")
        rows = both_ways(
            mysql,
            database,
            "SET time_zone = '+02:00'",
            f"INSERT INTO {database}.t VALUES (1, {moment}, {moment})",
        )
    assert rows.field("ts").cast("int64").to_pylist() == [1_711_845_000_000_001]
    assert rows.field("dt").cast("int64").to_pylist() == [1_711_852_200_000_001]
