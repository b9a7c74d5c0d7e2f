"""Values written to a real server come out of the log as its own SELECT prints them."""

from __future__ import annotations

import datetime
import json
import random
import struct
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import SourceError
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import Kind
from tailrace.sources.mysql.position import MySqlPosition, seq_of
from tailrace_dev.servers import MySqlServer
from tests.support.logged import captured, changes_during, final_rows, selected
from tests.support.printed import as_comparable, as_printed

_COLUMNS = """
    id bigint unsigned primary key,
    c_tiny tinyint, c_tiny_u tinyint unsigned, c_small smallint, c_small_u smallint unsigned,
    c_medium mediumint, c_medium_u mediumint unsigned, c_int int, c_int_u int unsigned,
    c_big bigint, c_big_u bigint unsigned zerofill, c_year year, c_after_year int unsigned, c_bool boolean,
    c_float float, c_float_u float unsigned, c_double double,
    c_dec5 decimal(5,0), c_dec12 decimal(12,2), c_dec18 decimal(18,9), c_dec19 decimal(19,1) unsigned,
    c_dec38 decimal(38,10), c_dec30 decimal(30,30), c_dec39 decimal(39,0), c_dec65 decimal(65,30),
    c_date date, c_time time, c_time1 time(1), c_time3 time(3), c_time4 time(4), c_time6 time(6),
    c_datetime datetime, c_datetime1 datetime(1), c_datetime4 datetime(4), c_datetime6 datetime(6),
    c_timestamp timestamp null, c_timestamp2 timestamp(2) null, c_timestamp6 timestamp(6) null,
    c_char char(10), c_char_long char(200), c_varchar varchar(50), c_varchar_long varchar(3000),
    c_utf8mb3 varchar(40) character set utf8mb3, c_latin1 varchar(300) character set latin1,
    c_latin1_char char(9) character set latin1 collate latin1_bin, c_ascii varchar(20) character set ascii,
    c_tinytext tinytext, c_text text, c_mediumtext mediumtext, c_longtext longtext character set latin1,
    c_binary binary(12), c_varbinary varbinary(20), c_varbinary_long varbinary(700),
    c_tinyblob tinyblob, c_blob blob, c_mediumblob mediumblob, c_longblob longblob,
    c_bit1 bit(1), c_bit8 bit(8), c_bit33 bit(33), c_bit64 bit(64),
    c_enum enum('x', 'yy', 'zzz', 'ä,'), c_enum_latin1 enum('é', 'b') character set latin1,
    c_set set('p', 'q', 'rö'), c_json json,
    c_virtual int generated always as (c_int div 2) virtual,
    c_stored varchar(30) generated always as (concat(c_int, '!')) stored,
    index ((c_small + 1))
"""
_MANY_LABELS = ", ".join(f"'label {i}'" for i in range(300))
_FULL_SET = ", ".join(f"'s{i}'" for i in range(64))


def _json(r: random.Random, depth: int = 0) -> Any:
    x = r.random()
    if depth < 4 and x < 0.3:
        return {'k"é\n\x01'[: r.randint(0, 6)] + str(i): _json(r, depth + 1) for i in range(r.randint(0, 5))}
    if depth < 4 and x < 0.5:
        return [_json(r, depth + 1) for _ in range(r.randint(0, 6))]
    double = struct.unpack("d", r.randbytes(8))[0]
    return r.choice(
        [
            None,
            True,
            False,
            r.randint(-40000, 40000),
            r.randint(-(2**31), 2**32),
            r.randint(-(2**63), 2**64 - 1),
            double if abs(double) < 1e300 else 0.5,
            r.random() * 10 ** r.randint(-25, 25),
            float(r.randint(-(2**60), 2**60)),
            r.choice([1.0, -0.0, 1e15, 1e16, 5e-324, 1.7976931348623157e308, 2.0 ** r.randint(-1000, 1000)]),
            'té\x01\x1f"\\/\b\t\n\f\r\x7f😀' * r.randint(0, 40),
            "z" * r.randint(0, 300),
        ]
    )


def _decimal(r: random.Random, precision: int, scale: int, unsigned: bool = False) -> str:
    digits = r.randint(1, precision)
    number = r.choice([0, 10**digits - 1, r.randint(0, 10**digits - 1)])
    sign = "" if unsigned else r.choice(["", "-"])
    return sign + format(Decimal(number).scaleb(-scale), "f") if number else "0"


def _time(r: random.Random) -> str:
    sign = r.choice(["", "-"])
    return f"{sign}{r.randint(0, 838)}:{r.randint(0, 59):02}:{r.randint(0, 58):02}.{r.randint(0, 999999):06}"


def _moment(r: random.Random, first: int, last: int) -> str:
    day = datetime.date(r.randint(first, last), 1, 1) + datetime.timedelta(days=r.randint(0, 364))
    clock = f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 58):02}.{r.randint(0, 999999):06}"
    return f"{day.isoformat()} {clock}"


def _row(r: random.Random, id_: int) -> list[Any]:
    def integer(bits: int, unsigned: bool = False) -> int:
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return r.choice([low, high, 0, 1, r.randint(low, high)])

    def text(alphabet: str, longest: int) -> str:
        return "".join(r.choices(alphabet, k=r.choice([0, 1, r.randint(0, longest), longest])))

    def data(longest: int) -> bytes:
        return r.choice(
            [r.randbytes(r.randint(0, longest)), b"\0" * r.randint(0, longest), b"a\0 "[:longest]]
        )

    wide, latin = "aé漢😀 z'\0", "".join(chr(i) for i in range(32, 127)) + "é€ÿ\x81\x9d "
    values = [
        *(integer(b, u) for b in (8, 16, 24, 32, 64) for u in (False, True)),
        r.choice([0, 1901, 2155, r.randint(1901, 2155)]),
        integer(32, True),
        r.choice([0, 1]),
        r.choice([0.0, -1.5, 3.4e38, 1e-30, r.random()]),
        r.random() * 1e10,
        r.choice([0.0, -0.0, 1.7e308, 5e-324, r.random() * 10 ** r.randint(-30, 30)]),
        _decimal(r, 5, 0),
        _decimal(r, 12, 2),
        _decimal(r, 18, 9),
        _decimal(r, 19, 1, unsigned=True),
        _decimal(r, 38, 10),
        _decimal(r, 30, 30),
        _decimal(r, 39, 0),
        _decimal(r, 65, 30),
        r.choice(["0000-00-00", "2020-00-10", "2020-02-30", "9999-12-31", _moment(r, 1, 9999)[:10]]),
        *(_time(r) for _ in range(5)),
        r.choice(["0000-00-00 00:00:00", "2021-02-29 01:02:03", _moment(r, 1000, 9998)]),
        *(_moment(r, 1000, 9998) for _ in range(3)),
        *(r.choice(["0000-00-00 00:00:00", "1970-01-01 00:00:01", _moment(r, 1971, 2037)]) for _ in range(3)),
        text(wide, 10),
        text(wide, 200),
        text(wide, 50),
        text(wide, 3000),
        text("aé漢", 40),
        text(latin, 300),
        text(latin, 9),
        text("abc ", 20),
        text(wide, 50),
        text(wide, 500),
        text(wide, 500),
        text(latin, 1000),
        data(12),
        data(20),
        data(700),
        *(data(n) for n in (255, 1000, 1000, 1000)),
        *(r.randint(0, 2**n - 1) for n in (1, 8, 33, 64)),
        r.choice(["x", "yy", "zzz", "ä,", "not there"]),
        r.choice(["é", "b"]),
        r.choice(["", "p", "q,rö", "p,q,rö"]),
        json.dumps(_json(r), ensure_ascii=r.random() < 0.5),
    ]
    return [id_, *(None if r.random() < 0.1 else v for v in values)]


def _insert(mysql: MySqlServer, database: str, rows: list[list[Any]], table: str = "t") -> None:
    with closing(mysql.connect(database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        names = [c.split()[0] for c in _settable()]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
        cursor.executemany(sql, rows)


def _settable() -> list[str]:
    return [p.strip() for p in _split(_COLUMNS) if "generated" not in p and not p.strip().startswith("index")]


def _split(columns: str) -> list[str]:
    """At commas outside parentheses."""
    parts, depth = [""], 0
    for c in columns:
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _printed(mysql: MySqlServer, schema: TableSchema) -> list[tuple[Any, ...]]:
    """The table in the server's own words: text, bytes of binary types, doubles of approximate ones."""
    columns = [f"`{c.name}` + 0e0" if c.type.kind is Kind.FLOAT else f"`{c.name}`" for c in schema.columns]
    with closing(mysql.connect(conv={})) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(
            f"SELECT {', '.join(columns)} FROM `{schema.id.database}`.`{schema.id.table}` ORDER BY id"
        )
        return list(cursor.fetchall())


def _assert_as_printed(mysql: MySqlServer, schema: TableSchema, rows: pa.StructArray) -> None:
    printed = _printed(mysql, schema)
    assert len(printed) == len(rows)
    for i, column in enumerate(schema.columns):
        values = rows.field(i)
        for found, line in zip(values, printed, strict=True):
            assert as_printed(found, column.type) == as_comparable(line[i], column.type), column


def test_values_of_all_types_come_from_the_log_as_select_prints_them(
    mysql: MySqlServer, database: str
) -> None:
    r = random.Random(7)
    mysql.execute(f"CREATE TABLE {database}.t ({_COLUMNS}) CHARACTER SET utf8mb4")
    batches = changes_during(
        mysql,
        database,
        lambda: _insert(mysql, database, [_row(r, i + r.choice([0, 2**64 - 500])) for i in range(400)]),
        batch_rows=150,
    )
    schema = captured(mysql, database)["t"]
    assert {b.table for b in batches} == {schema}
    rows = final_rows(batches, "id")
    rows.validate(full=True)
    _assert_as_printed(mysql, schema, rows)
    assert rows.equals(selected(mysql, schema, "id"))


def test_json_documents_made_by_functions_come_as_select_prints_them(
    mysql: MySqlServer, database: str
) -> None:
    documents = [
        "json_object('d', cast(1.50 as decimal(10,2)), 'neg', cast(-0.50 as decimal(65,30)))",
        "json_array(cast('2026-01-02 03:04:05.6' as datetime(6)), cast('-11:12:13' as time))",
        "json_array(cast('838:59:59' as time), cast('-00:00:00.5' as time(6)), cast('2020-02-29' as date))",
        "json_array(timestamp'2020-01-01 10:10:10', cast('0000-00-00' as date), cast('00:00:00' as time))",
        "json_object('b', cast(x'0001ff' as binary), 'bit', b'101', 'empty', cast('' as binary))",
        *(f"json_array(cast(repeat('a', {n}) as binary))" for n in (56, 57, 58, 114, 500)),
        "json_array(st_geomfromtext('point(1 2)'), cast(2020 as year), true, null)",
        "cast('{}' as json)",
        "cast('[]' as json)",
        "cast('[[], {}, [{}], \"\"]' as json)",
        "cast('null' as json)",
        f"cast('{'[' * 99}{']' * 99}' as json)",
        "json_array(repeat('x', 70000), 1)",
        "json_object(repeat('k', 60000), 1, 'l', json_array(1, -2, 70000, 3e0, null, repeat('y', 70000)))",
    ]

    def work() -> None:
        values = ", ".join(f"({i}, {d})" for i, d in enumerate(documents))
        mysql.execute("SET sql_mode = ''", f"INSERT INTO {database}.t VALUES {values}")

    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, doc json)")
    batches = changes_during(mysql, database, work)
    schema = captured(mysql, database)["t"]
    rows = final_rows(batches, "id")
    _assert_as_printed(mysql, schema, rows)
    assert rows.equals(selected(mysql, schema, "id"))


def test_wide_enums_and_full_sets_come_with_their_labels(mysql: MySqlServer, database: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, e enum({_MANY_LABELS}), s set({_FULL_SET}))"
    )
    batches = changes_during(
        mysql,
        database,
        lambda: mysql.execute(
            f"INSERT INTO {database}.t VALUES (1, 'label 0', 's63'), (2, 'label 299', ''), (3, 300, ~0)"
        ),
    )
    schema = captured(mysql, database)["t"]
    assert batches[0].table == schema
    _assert_as_printed(mysql, schema, final_rows(batches, "id"))


def test_updates_and_deletes_carry_both_images_and_their_origin(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, v varchar(9), w int)")

    def work() -> None:
        with closing(mysql.connect(database=database, autocommit=False)) as c, c.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3)")
            c.commit()
            cursor.execute("UPDATE t SET v = concat(v, '!') WHERE id < 3")
            cursor.execute("DELETE FROM t WHERE id = 3")
            c.commit()
            cursor.execute("SELECT connection_id(), @@server_id")
            ids.extend(cursor.fetchone())

    ids: list[int] = []
    (batch,) = changes_during(mysql, database, work, epoch=3)
    assert batch.op.to_pylist() == [OP_CREATE] * 3 + [OP_UPDATE] * 2 + [OP_DELETE]
    before, after = batch.image("before").to_pylist(), batch.image("after").to_pylist()
    assert before[:3] == [None] * 3
    assert before[3:] == [
        {"id": 1, "v": "a", "w": 1},
        {"id": 2, "v": "b", "w": 2},
        {"id": 3, "v": None, "w": 3},
    ]
    assert after[3:] == [{"id": 1, "v": "a!", "w": 1}, {"id": 2, "v": "b!", "w": 2}, None]
    origin = batch.origin.to_pydict()
    assert origin["row"] == [0, 1, 2, 0, 1, 0]
    places = zip(origin["file"], origin["pos"], origin["row"], strict=True)
    assert origin["seq"] == [seq_of(MySqlPosition(f, p, epoch=3), 2 * r) for f, p, r in places]
    assert origin["seq"] == sorted(set(origin["seq"]))
    assert origin["thread"] == [ids[0]] * 6
    assert origin["server_id"] == [ids[1]] * 6
    assert len(set(origin["txn"])) == 2
    [[executed]] = mysql.execute("SELECT @@gtid_executed")
    for txn in set(origin["txn"]):
        [[contained]] = mysql.execute(f"SELECT gtid_subset('{txn}', '{executed}')")
        assert contained
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1e6
    assert all(now - 60e6 < t <= now for t in origin["ts_us"])


def test_compressed_transactions_give_the_same_rows(mysql: MySqlServer, database: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, v varchar(300))",
        f"CREATE TABLE {database}.u LIKE {database}.t",
    )

    def work() -> None:
        numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 30000)"
        mysql.execute(
            "SET SESSION binlog_transaction_compression = ON, cte_max_recursion_depth = 100000",
            f"INSERT INTO {database}.t {numbers} SELECT n, repeat(sha2(n, 512), 2) FROM r",
            f"INSERT INTO {database}.u VALUES (1, 'x')",
            f"UPDATE {database}.t t JOIN {database}.u u SET t.v = 'y', u.v = 'z' WHERE t.id < 4",
        )

    batches = changes_during(mysql, database, work)
    by_table = {name: [b for b in batches if b.table.id.table == name] for name in "tu"}
    schema = captured(mysql, database)["t"]
    assert final_rows(by_table["t"], "id").equals(selected(mysql, schema, "id"))
    for of_table in by_table.values():
        seqs = [s for b in of_table for s in b.origin.column("seq").to_pylist()]
        assert seqs == sorted(set(seqs))
    assert len({s for b in batches for s in b.origin.column("seq").to_pylist()}) == sum(map(len, batches))


def test_a_table_that_changes_its_shape_gives_batches_of_both_shapes_in_order(
    mysql: MySqlServer, database: str
) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key)")
    batches = changes_during(
        mysql,
        database,
        lambda: mysql.execute(
            f"INSERT INTO {database}.t VALUES (1)",
            f"ALTER TABLE {database}.t ADD c int",
            f"INSERT INTO {database}.t VALUES (2, 2)",
            f"ALTER TABLE {database}.t DROP c",
            f"INSERT INTO {database}.t VALUES (3)",
        ),
    )
    seqs = [s for b in batches for s in b.origin.column("seq").to_pylist()]
    assert seqs == sorted(seqs)
    assert [b.image("after").to_pylist() for b in batches] == [[{"id": 1}], [{"id": 2, "c": 2}], [{"id": 3}]]


def test_the_key_is_the_one_given_else_the_one_the_server_goes_by(mysql: MySqlServer, database: str) -> None:
    def key_of(definition: str, given: tuple[str, ...] = ()) -> tuple[str, ...]:
        keys = {TableId(database, "t"): given} if given else {}
        mysql.execute(f"DROP TABLE IF EXISTS {database}.t", f"CREATE TABLE {database}.t ({definition})")
        insert = f"INSERT INTO {database}.t VALUES (1, 2)"
        (batch,) = changes_during(mysql, database, lambda: mysql.execute(insert), keys=keys)
        return batch.table.key

    assert key_of("a int, b int") == ()
    assert key_of("a int, b int", ("b",)) == ("b",)
    assert key_of("a int, b int, primary key (b, a)") == ("b", "a")
    # a unique key without NULLs stands in for the primary key in the log, too
    assert key_of("a int not null unique, b int not null unique") == ("a",)
    assert key_of("a int not null unique, b int not null unique", ("b",)) == ("b",)


def test_tagged_gtids_are_part_of_the_origin(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key)")
    gtid = "ffffffff-80ab-11ee-9b01-0242ac110002:my_tag:4294967299"
    (batch,) = changes_during(
        mysql,
        database,
        lambda: mysql.execute(f"SET gtid_next = '{gtid}'", f"INSERT INTO {database}.t VALUES (1)"),
    )
    assert batch.origin.column("txn").to_pylist() == [gtid]


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_changes_logged_as_statements_are_refused_with_the_remedy(mysql: MySqlServer, database: str) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id int primary key, v text)", f"INSERT INTO {table} VALUES (1, 'a')"
    )

    def work() -> None:
        mysql.execute("SET SESSION binlog_format = STATEMENT", f"UPDATE {table} SET v = 'b'")

    with pytest.raises(SourceError, match="a statement instead of rows") as refused:
        changes_during(mysql, database, work)
    assert "SET PERSIST binlog_format = ROW" in str(refused.value)


_PREPARED = ["XA START '{d}'", "INSERT INTO {d}.t VALUES (1)", "XA END '{d}'", "XA PREPARE '{d}'"]


@pytest.mark.parametrize(
    ("statements", "operations"),
    [
        (["CREATE TABLE {d}.u AS SELECT 1 AS id UNION SELECT 2"], [OP_CREATE, OP_CREATE]),
        (["CREATE TABLE {d}.m (id int) ENGINE = MyISAM", "INSERT INTO {d}.m VALUES (1)"], [OP_CREATE]),
        (
            ["XA START 'x'", "INSERT INTO {d}.t VALUES (1)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"],
            [OP_CREATE],
        ),
        ([*_PREPARED, "XA COMMIT '{d}'"], [OP_CREATE]),
        ([*_PREPARED, "XA ROLLBACK '{d}'"], []),
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
        (
            ["INSERT INTO {d}.t VALUES (1)", "TRUNCATE TABLE {d}.t", "REPLACE INTO {d}.t VALUES (1)"],
            [OP_CREATE] * 2,
        ),
        (
            [
                "SET sql_generate_invisible_primary_key = ON",
                "CREATE TABLE {d}.g (v int)",
                "INSERT INTO {d}.g VALUES (1)",
            ],
            [OP_CREATE],
        ),
    ],
)
def test_every_way_to_change_rows_comes_through(
    mysql: MySqlServer, database: str, statements: list[str], operations: list[int]
) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key)")
    batches = changes_during(
        mysql, database, lambda: mysql.execute(*(s.format(d=database) for s in statements))
    )
    assert [op for b in batches for op in b.op.to_pylist()] == operations
