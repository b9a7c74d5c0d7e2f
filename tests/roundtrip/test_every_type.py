"""Random values of every type and character set: SELECT, log and the server's own text agree.

One table holds them all. Rows are inserted, updated and deleted; what the log says is replayed: an update's
and a delete's image before must be the row as the log had it; what is left must be what a SELECT finds.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.model.types import Kind
from tailrace.sources.mysql.wire.schema import charsets, codepages
from tailrace_dev.servers import MySqlServer
from tests.support.logged import captured, changes_during, selected
from tests.support.printed import as_comparable, as_printed

_DATABASE = "every_type"
_JSON_VALUES = st.sampled_from([
    "CAST(NULL AS JSON)", "CAST(-12.500 AS DECIMAL(20,3))", "CAST('0.1' AS DECIMAL(65,30))",
    "TIME'-838:59:59'", "TIMESTAMP'2024-02-29 23:59:59.999999'", "DATE'1000-01-01'", "CAST('2155' AS YEAR)",
    "b'1011'",
    "CAST(REPEAT('blob', 40) AS BINARY)", "18446744073709551615", "-9223372036854775808", "1e308", "-0e0",
    "TRUE", "ST_GeomFromText('POINT(1 2)')", "_latin1 x'e9'", "_gbk x'b0a1'", "REPEAT('long', 20000)",
])  # fmt: skip


def _hex(data: bytes) -> str:
    return f"x'{data.hex()}'"


def _quoted(text: str) -> str:
    return f"CONVERT({_hex(text.encode())} USING utf8mb4)"


def _integers(low: int, high: int) -> st.SearchStrategy[str]:
    return (st.sampled_from([low, high, 0, 1]) | st.integers(low, high)).map(str)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    most = 10**precision - 1
    return (st.sampled_from([-most, most, 0]) | st.integers(-most, most)).map(lambda n: f"{n}e-{scale}")


def _exact(precision: int, scale: int) -> st.SearchStrategy[str]:
    def text(number: int) -> str:
        digits = str(abs(number)).zfill(scale + 1)
        sign = "-" if number < 0 else ""
        return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}".rstrip(".")

    most = 10**precision - 1
    return (st.sampled_from([-most, most, 0, 1, -1]) | st.integers(-most, most)).map(text)


def _floats(width: int) -> st.SearchStrategy[str]:
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    return numbers.map(lambda x: repr(x) if "e" in repr(x) else f"{x!r}e0")


def _dates(first: int, last: int) -> st.SearchStrategy[str]:
    days = st.dates(dt.date(first, 1, 1), dt.date(last, 12, 31)).map(str)
    return days | st.builds(
        "{:04}-{:02}-{:02}".format, st.integers(first, last), st.integers(1, 12), st.integers(0, 28)
    )


def _moments(dates: st.SearchStrategy[str], zero: str) -> st.SearchStrategy[str]:
    clock = st.times().map(lambda t: t.replace(second=min(t.second, 58)).isoformat("microseconds"))
    return st.just(f"'{zero}'") | st.builds("'{} {}'".format, dates, clock)


def _times() -> st.SearchStrategy[str]:
    most = ((838 * 60 + 59) * 60 + 59) * 10**6

    def text(us: int) -> str:
        seconds, rest = divmod(abs(us), 10**6)
        sign = "-" if us < 0 else ""
        return f"'{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}'"

    return (st.sampled_from([most, -most, 0, -1]) | st.integers(-most, most)).map(text)


def _encoded(charset: str) -> st.SearchStrategy[str]:
    """Text of a character set, as its own bytes."""
    if charset.startswith(("ucs2", "utf")):
        most = 0xFFFF if charset in ("ucs2", "utf8mb3") else 0x10FFFF
        codec = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
        texts = st.text(st.characters(codec="utf-8", max_codepoint=most), max_size=12)
        return texts.map(lambda t: _hex(t.encode(codec.get(charset, "utf-8"))))
    return st.lists(st.sampled_from(_characters(charset)), max_size=12).map(lambda c: _hex(b"".join(c)))


def _characters(charset: str) -> list[bytes]:
    """Some hundred characters of a character set."""
    single = [bytes([b]) for b in range(128 if charset == "ascii" else 256)]
    longer = [bytes([a, b]) for a in range(0x81, 0xFF) for b in (0x41, 0xA1, 0xB5, 0xF7)]
    longer += [bytes([0x8F, a, 0xA1]) for a in range(0xA1, 0xFF)]
    longer += [bytes([a, 0x30, 0x81, 0x30]) for a in (0x81, 0x84, 0x90, 0xE3, 0xFE)]
    found = []
    for sequence in single if charset not in _MULTI else single + longer:
        try:
            if len(charsets.decode(sequence, charset)) == 1:
                found.append(sequence)
        except UnicodeDecodeError:
            continue
    return found


def _bytes(longest: int) -> st.SearchStrategy[str]:
    return (st.binary(max_size=longest) | st.integers(0, longest).map(bytes)).map(_hex)


_MULTI = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")
_CHARSETS = sorted(codepages.TABLED | {"utf8mb3", "utf8mb4"})
_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | _TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
).map(lambda v: f"CAST({_quoted(json.dumps(v))} AS JSON)")  # fmt: skip
_WKT = st.builds("POINT({} {})".format, st.integers(-90, 90), st.integers(-89, 89)) | st.lists(
    st.builds("{} {}".format, st.integers(-90, 90), st.integers(-89, 89)), min_size=2, max_size=5, unique=True
).map(lambda points: f"LINESTRING({', '.join(points)})")

#: Declaration and SQL expressions of the values of each column.
COLUMNS: dict[str, tuple[str, st.SearchStrategy[str]]] = {
    **{
        f"i{bits}": (name, _integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits, name in ((8, "tinyint"), (16, "smallint"), (24, "mediumint"), (32, "int"), (64, "bigint"))
    },
    **{
        f"u{bits}": (f"{name} unsigned", _integers(0, 2**bits - 1))
        for bits, name in ((8, "tinyint"), (16, "smallint"), (24, "mediumint"), (32, "int"), (64, "bigint"))
    },
    **{f"bit{n}": (f"bit({n})", _integers(0, 2**n - 1)) for n in range(1, 65)},
    "flt": ("float", _floats(32)),
    "flt_md": ("float(7,3)", _decimals(7, 3)),
    "dbl": ("double", _floats(64)),
    "dbl_md": ("double(15,4)", _decimals(15, 4)),
    "dec9": ("decimal(9,9)", _exact(9, 9)),
    "dec38": ("decimal(38,10)", _exact(38, 10)),
    "dec65": ("decimal(65,30)", _exact(65, 30)),
    "yr": ("year", st.just("0000") | st.integers(1901, 2155).map(str)),
    **{f"tm{f}": (f"time({f})", _times()) for f in range(7)},
    "dy": ("date", _dates(1, 9999).map("'{}'".format)),
    "dy_text": ("date", _dates(1, 9999).map("'{}'".format)),
    **{f"dt{f}": (f"datetime({f})", _moments(_dates(1, 9998), "0000-00-00")) for f in range(7)},
    **{f"dt{f}_text": (f"datetime({f})", _moments(_dates(1, 9998), "0000-00-00")) for f in (0, 3, 6)},
    **{
        f"ts{f}": (
            f"timestamp({f}) null",
            _moments(st.dates(dt.date(1970, 1, 2), dt.date(2038, 1, 18)).map(str), "0000-00-00"),
        )
        for f in range(7)
    },
    **{
        f"ts{f}_text": (
            f"timestamp({f}) null",
            _moments(st.dates(dt.date(1970, 1, 2), dt.date(2038, 1, 18)).map(str), "0000-00-00"),
        )
        for f in (0, 5)
    },
    **{f"v_{c}": (f"varchar(12) character set {c}", _encoded(c)) for c in _CHARSETS},
    **{f"c_{c}": (f"char(12) character set {c}", _encoded(c)) for c in _CHARSETS},
    "tt": ("tinytext", _encoded("utf8mb4")),
    "mt": ("mediumtext character set utf16", _encoded("utf16")),
    "lt": ("longtext character set cp932", _encoded("cp932")),
    "bin": ("binary(20)", _bytes(20)),
    "vbin": ("varbinary(300)", _bytes(300)),
    "tb": ("tinyblob", _bytes(255)),
    "lb": ("longblob", _bytes(40) | st.integers(0, 70_000).map(lambda n: f"repeat('b', {n})")),
    "en": ("enum('', 'a,b', 'it''s', 'ü', 'back\\\\slash', '  x')", st.integers(1, 6).map(str)),
    "en_sjis": ("enum('漢字', '表', 'ｱ') character set sjis", st.integers(1, 3).map(str)),
    "se": ("set('', 'it''s', 'ü', 'back\\\\slash')", st.integers(0, 15).map(str)),
    "se_gbk": ("set('汉', '字', 'z') character set gbk", st.integers(0, 7).map(str)),
    "js": ("json", _JSON),
    "js_array": ("json", st.lists(_JSON_VALUES, max_size=4).map(lambda f: f"json_array({', '.join(f)})")),
    "js_scalar": ("json", _JSON_VALUES.map("json_extract(json_array({}), '$[0]')".format)),
    "geo": ("geometry", st.builds("ST_GeomFromText('{}', {})".format, _WKT, st.sampled_from([0, 3857]))),
    "vec": (
        "vector(8)",
        st.lists(_floats(32), min_size=1, max_size=8).map(lambda v: f"string_to_vector('[{', '.join(v)}]')"),
    ),
}  # fmt: skip
_GENERATED = (
    "g_virtual varchar(40) generated always as (concat(coalesce(i32, 'none'), '!')) virtual",
    "g_stored decimal(30,2) generated always as (i64 * 1.5) stored invisible",
    "d_expression varchar(36) default (concat('x', 1 + 1))",
    "d_invisible int default 7 invisible",
)


class _Row(dict[str, str]):
    """SQL expressions by column; not shown, as it is long and a failure names the column."""

    def __repr__(self) -> str:
        return "..."


_ROW = st.fixed_dictionaries({name: st.just("NULL") | values for name, (_, values) in COLUMNS.items()}).map(
    _Row
)


def _policy(column: str) -> str | None:
    return "text" if column.endswith("_text") else None


@pytest.fixture(scope="module")
def schema(mysql: MySqlServer) -> Iterator[TableSchema]:
    """The table, its key hidden and generated."""
    columns = ", ".join([*(f"{name} {declared}" for name, (declared, _) in COLUMNS.items()), *_GENERATED])
    mysql.execute(
        f"DROP DATABASE IF EXISTS {_DATABASE}",
        f"CREATE DATABASE {_DATABASE}",
        "SET sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE {_DATABASE}.t ({columns}) CHARACTER SET utf8mb4",
    )
    yield captured(mysql, _DATABASE, _policy)["t"]
    mysql.execute(f"DROP DATABASE {_DATABASE}")


def test_every_kind_is_among_the_columns(schema: TableSchema) -> None:
    # lists are PostgreSQL's
    assert {c.type.kind for c in schema.columns} == set(Kind) - {Kind.LIST}
    assert schema.key == ("my_row_id",)


# not shrunk: a row has hundreds of values
@settings(max_examples=40, suppress_health_check=list(HealthCheck), phases=(Phase.reuse, Phase.generate))
@given(rows=st.lists(_ROW, min_size=2, max_size=3), changed=_ROW)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_log_select_and_the_servers_text_agree(
    mysql: MySqlServer, schema: TableSchema, rows: list[dict[str, str]], changed: dict[str, str]
) -> None:
    statements = ["SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"]
    for i, row in enumerate(rows, 1):
        statements.append(f"INSERT INTO {_DATABASE}.t (my_row_id, i8) VALUES ({i}, {i})")
        statements += _updates(i, row)
    statements += _updates(1, changed)
    statements.append(f"DELETE FROM {_DATABASE}.t WHERE my_row_id = 2")

    mysql.execute(f"DELETE FROM {_DATABASE}.t")
    batches = changes_during(mysql, _DATABASE, lambda: mysql.execute(*statements), zero_dates=_policy)
    assert all(b.table == schema for b in batches)
    logged = _replayed(batches, schema)
    found = selected(mysql, schema, "my_row_id")
    found.validate(full=True)
    unequal = [f.name for f in found.type if not logged.field(f.name).equals(found.field(f.name))]
    assert unequal == []
    for column, printed in zip(schema.columns, zip(*_printed(mysql, schema), strict=True), strict=True):
        values_ = [as_printed(v, column.type) for v in found.field(column.name)]
        assert values_ == [as_comparable(p, column.type) for p in printed], column.name


def _updates(key: int, row: dict[str, str]) -> Iterator[str]:
    """Statements that give a row its values.

    JSON columns have one each: of several made by functions MySQL 9.7.4 calls some no JSON.
    """
    json_columns = [name for name in row if COLUMNS[name][0] == "json"]
    parts = [[name for name in row if name not in json_columns], *([name] for name in json_columns)]
    for part in parts:
        assigned = ", ".join(f"{name} = {row[name]}" for name in part)
        yield f"UPDATE {_DATABASE}.t SET {assigned}, d_invisible = 8 WHERE my_row_id = {key}"


def _replayed(batches: list[ChangeBatch], schema: TableSchema) -> pa.StructArray:
    """The rows that changes leave, in the order of their keys; each image before is checked on the way."""
    rows: dict[int, pa.StructArray] = {}
    for batch in batches:
        for i, op in enumerate(batch.op.to_pylist()):
            if op != OP_CREATE:
                before = batch.image("before").slice(i, 1)
                assert before.equals(rows.pop(before.field("my_row_id")[0].as_py()))
            if op != OP_DELETE:
                after = batch.image("after").slice(i, 1)
                rows[after.field("my_row_id")[0].as_py()] = after
    return pa.concat_arrays([rows[k] for k in sorted(rows)] or [pa.array([], schema.arrow)])


def _printed(mysql: MySqlServer, schema: TableSchema) -> list[tuple[Any, ...]]:
    # the sum has all digits: a FLOAT alone is printed with six, a DOUBLE(M, D) with D, whatever its value
    numbers = (Kind.FLOAT, Kind.DOUBLE)
    columns = ", ".join(f"`{c.name}`{' + 0e0' * (c.type.kind in numbers)}" for c in schema.columns)
    connection: pymysql.Connection[Any]
    with closing(mysql.connect(conv={}, use_unicode=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {columns} FROM {_DATABASE}.t ORDER BY my_row_id")
        return list(cursor.fetchall())
