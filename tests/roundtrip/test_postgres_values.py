"""Values written to a real server come back equal by COPY and by the log, in binary form and as text."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tailrace.errors import DecodeError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sources.postgres.wire.kernels.copy import CopyReader, copy_columns
from tailrace.sources.postgres.wire.pgoutput import LogDecoder
from tailrace.sources.postgres.wire.problems import BinaryFormError
from tailrace.sources.postgres.wire.types import PostgresTypes, has_binary
from tailrace_dev.servers.postgres import PostgresServer, start_postgres
from tests.support.pgcatalog import schema_of, types_of
from tests.support.pgwire import Wire, WireError
from tests.support.plain import plain

_GREATEST, _LEAST = 2**63 - 1, -(2**63)
_EPOCH = "(extract(epoch from {}) * 1000000)::numeric(30, 0)"


class Database:
    """A database with one table at a time in its log."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.wire = Wire(server.host, server.port, server.password, name)
        self.wire.rows("CREATE PUBLICATION p FOR ALL TABLES")
        self.wire.rows("CREATE TYPE pair AS (a int, b text)")
        self.wire.rows("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        self.wire.rows("CREATE DOMAIN cents AS numeric(10, 2)")
        for extension in ("hstore", "ltree", "citext", "cube", "vector"):
            with suppress(WireError):
                self.wire.rows(f"CREATE EXTENSION {extension}")
        self.has_xml = True
        try:
            self.wire.rows("SELECT '<a/>'::xml")
        except WireError:
            self.has_xml = False
        ((self.slot,),) = self.wire.rows("SELECT 's_' || md5(current_database())")
        self.wire.rows(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    def table(self, columns: str) -> tuple[TableSchema, PostgresTypes]:
        """A new table `v` of these columns."""
        self.wire.rows("DROP TABLE IF EXISTS v")
        self.wire.rows(f"CREATE TABLE v (n serial PRIMARY KEY, {columns})")
        self.wire.rows(
            f"SELECT count(*) FROM pg_replication_slot_advance('{self.slot}', pg_current_wal_lsn())"
        )
        types = PostgresTypes(types_of(self.wire, ["v"]))
        return schema_of(self.wire, "v", types), types

    def copied(self, schema: TableSchema) -> pa.StructArray:
        """The rows as COPY gives them."""
        reader = CopyReader(schema)
        data = self.wire.copy(
            f"COPY (SELECT {copy_columns(schema)} FROM v ORDER BY n) TO STDOUT (FORMAT binary)"
        )
        out, at = [], 0
        while not reader.ended:
            room = reader.room()
            n = min(len(room), len(data) - at)
            room[:n] = data[at : at + n]
            at += n
            out += reader.received(n)
        last = reader.flush()
        return pa.concat_arrays([*out, *([] if last is None else [last])])

    def insert(self, values: Sequence[str | None]) -> None:
        """Rows whose `v` is each of these expressions."""
        for value in values:
            self.wire.rows(f"INSERT INTO v (v) VALUES ({value or 'NULL'})")

    def logged(
        self,
        types: PostgresTypes,
        *,
        binary: bool,
        take: bool,
        unfit: Callable[[str], str | None] = lambda _: None,
    ) -> list[ChangeBatch]:
        """The changes of `v` in the log since the last that were taken."""
        function = "pg_logical_slot_get_binary_changes" if take else "pg_logical_slot_peek_binary_changes"
        rows = self.wire.rows(
            f"SELECT lsn - '0/0'::pg_lsn, encode(data, 'hex') FROM {function}('{self.slot}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', 'p', 'binary', '{str(binary).lower()}')"
        )
        decoder = LogDecoder(captures=lambda table: table.table == "v", types=types, unfit=unfit)
        stream = b""
        for lsn, message in rows:
            body = b"w" + struct.pack(">QQq", int(lsn or 0), 0, 0) + bytes.fromhex(message or "")
            stream += b"d" + struct.pack(">I", len(body) + 4) + body
        return list(decoder.feed(stream))


@pytest.fixture(scope="module", params=["18", "15"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with ExitStack() as stack:
        shared = request.param == "18"
        server = request.getfixturevalue("postgres") if shared else stack.enter_context(start_postgres("15"))
        name = _created(server)
        stack.callback(server.drop_database, name)
        found = Database(server, name)
        stack.enter_context(found.wire)
        yield found


def _created(server: PostgresServer) -> str:
    name = f"t_{uuid.uuid4().hex[:12]}"
    with Wire(server.host, server.port, server.password) as wire:
        wire.rows(f"CREATE DATABASE {name}")
    return name


def _inserted(batches: list[ChangeBatch]) -> pa.StructArray:
    return pa.concat_arrays([batch.image("after") for batch in batches])


def _check(database: Database, schema: TableSchema, types: PostgresTypes) -> pa.StructArray:
    """COPY's rows, which are the log's in both forms, bit for bit."""
    copied = database.copied(schema)
    copied.validate(full=True)
    binary = all(has_binary(c.type) for c in schema.columns)
    text = _inserted(database.logged(types, binary=False, take=not binary))
    assert text.type == copied.type
    assert repr(plain(text)) == repr(plain(copied))
    if binary:
        logged = _inserted(database.logged(types, binary=True, take=True))
        assert repr(plain(logged)) == repr(plain(copied))
    return copied


def _printed(database: Database, schema: TableSchema) -> list[list[Any]]:
    """What the server itself says of each value, in a form that is compared with what was decoded."""
    asked = ", ".join(_question(f'"{c.name}"', c.type) for c in schema.columns)
    rows = database.wire.rows(f"SELECT {asked} FROM v ORDER BY n")
    return [
        [None if v is None else _answer(v, c.type) for v, c in zip(row, schema.columns, strict=True)]
        for row in rows
    ]


def _question(name: str, type_: ColumnType) -> str:
    match type_.kind:
        case Kind.TIME:
            return _EPOCH.format(name)
        case Kind.DATETIME | Kind.INSTANT:
            us = _EPOCH.format(name)
            return f"CASE WHEN isfinite({name}) THEN {us}::text ELSE {name}::text END"
        case Kind.DATE:
            return f"CASE WHEN isfinite({name}) THEN ({name} - date '1970-01-01')::text ELSE {name}::text END"
        case Kind.BYTES:
            return f"encode({name}, 'hex')"
        case Kind.LIST if type_.native in ("_int4", "_text", "_uuid", "_jsonb"):
            elements = f"SELECT e::text FROM unnest({name}) WITH ORDINALITY u(e, i) ORDER BY i"
            return f"CASE WHEN {name} IS NOT NULL THEN array_to_json(ARRAY({elements})) END"
    return name


def _answer(value: str, type_: ColumnType) -> Any:
    infinite = {"infinity": 1, "-infinity": -1}.get(value)
    match type_.kind:
        case Kind.BOOLEAN:
            return value in ("t", "1")
        case Kind.INTEGER:
            return int(value)
        case Kind.FLOAT:
            return str(float(np.float32(value)))
        case Kind.DOUBLE:
            return str(float(value))
        case Kind.DECIMAL:
            return value.replace("$", "").replace(",", "")
        case Kind.DATE:
            return {1: 2**31 - 1, -1: -(2**31)}[infinite] if infinite else int(value)
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return {1: _GREATEST, -1: _LEAST}[infinite] if infinite else int(value)
        case Kind.VECTOR:
            return [str(float(np.float32(v))) for v in value[1:-1].split(",")]
    return value


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
_INTS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]))
_FLOATS = st.floats(width=64).map(repr).map(lambda v: v.replace("inf", "Infinity").replace("nan", "NaN"))
_SINGLES = (
    st.floats(width=32)
    .map(lambda v: str(np.float32(v)))
    .map(lambda v: v.replace("inf", "Infinity").replace("nan", "NaN"))
)
_MONTHS = st.tuples(st.integers(1, 12), st.integers(1, 28))


@st.composite
def _dates(draw: st.DrawFn, last: int = 9999) -> str:
    year = draw(st.one_of(st.integers(-4712, last), st.sampled_from([-4712, -1, 0, 1, 1970, 2000, last])))
    month, day = draw(_MONTHS)
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{'' if year > 0 else ' BC'}"


@st.composite
def _stamps(draw: st.DrawFn) -> str:
    day = draw(_dates(last=294_245))
    bc = day.endswith(" BC")
    clock = draw(_clocks())
    return f"{day[:-3] if bc else day} {clock}{' BC' if bc else ''}"


@st.composite
def _clocks(draw: st.DrawFn) -> str:
    us = draw(st.one_of(st.integers(0, 86_399_999_999), st.sampled_from([0, 1, 86_399_999_999])))
    return str((dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)).time())


def _or(values: st.SearchStrategy[str], *others: str) -> st.SearchStrategy[str]:
    return st.one_of(values, st.sampled_from(others))


_INTERVALS = st.tuples(
    st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(-(10**15), 10**15)
).map(lambda v: f"{v[0]} months {v[1]} days {v[2]} microseconds")
_NUMERICS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda v: f"{v:f}"[:2000]),
    st.tuples(st.integers(-(10**60), 10**60), st.integers(-50, 50)).map(lambda v: f"{v[0]}e{v[1]}"),
    st.sampled_from(["NaN", "0", "0.000", "-0.0001", "10000", "100000000", "1e131000", "1e-16383"]),
)
_V6 = st.ip_addresses(v=6).map(str)
_NETS = st.tuples(_V6, st.integers(0, 128)).map(lambda v: f"{v[0]}/{v[1]}")
_CIDRS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0"])
_BYTES = st.binary(max_size=40).map(lambda v: "\\x" + v.hex())


def _json(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), values),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(values, inner, max_size=3)),
        max_leaves=5,
    ).map(json.dumps)


_JSON_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def text(items: list[str | None]) -> str:
        quoted = ('"' + re.sub(r'(["\\])', r"\\\1", v) + '"' if v is not None else "NULL" for v in items)
        return "{" + ",".join(quoted) + "}"

    return st.lists(st.one_of(st.none(), values), max_size=5).map(text)


#: Of each type the values that are tried. All have a binary form that is read.
_BINARY: dict[str, st.SearchStrategy[str]] = {
    "bool": st.sampled_from(["t", "f"]),
    "int2": st.integers(-(2**15), 2**15 - 1).map(str),
    "int4": _INTS.map(str),
    "int8": st.one_of(st.integers(_LEAST, _GREATEST), st.sampled_from([_LEAST, _GREATEST])).map(str),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "float4": _SINGLES,
    "float8": _FLOATS,
    "numeric": _NUMERICS,
    "numeric(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda v: f"{v}e-10"),
    "numeric(9,2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda v: f"{v}e-2"),
    "numeric(50,5)": st.integers(1 - 10**45, 10**45 - 1).map(str),
    "money": st.integers(_LEAST, _GREATEST).map(lambda v: str(Decimal(v).scaleb(-2))),
    "text": _TEXT,
    "varchar(50)": _TEXT,
    "char(45)": _TEXT,
    "name": st.text("aé\"' ", max_size=9),
    "bytea": _BYTES,
    "date": _or(_dates(), "infinity", "-infinity", "5874897-12-31", "4714-11-24 BC"),
    "time": _or(_clocks(), "24:00:00"),
    "timetz": st.tuples(_or(_clocks(), "24:00:00"), st.integers(-15 * 60, 15 * 60)).map(
        lambda v: f"{v[0]}{'+' if v[1] >= 0 else '-'}{abs(v[1]) // 60:02d}:{abs(v[1]) % 60:02d}"
    ),
    "timestamp": _or(_stamps(), "infinity", "-infinity", "4714-11-24 00:00:00 BC"),
    "timestamptz": _or(_stamps(), "infinity", "-infinity", "2000-01-01 00:00:00-05:30"),
    "interval": _or(_INTERVALS, "-1 microsecond", "0", "-1 year 1 mon -1 day 00:00:01.5"),
    "uuid": st.uuids().map(str),
    "json": _json(_JSON_TEXT),
    "jsonb": _json(st.text('abé"\\ ', max_size=5)),
    "xml": _TEXT.map(lambda v: "<a>" + re.sub(r"[^\w ]", "", v, flags=re.ASCII) + "</a>"),
    "inet": st.one_of(
        st.ip_addresses(v=4).map(str),
        _V6,
        _NETS,
        st.sampled_from(["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "1:0:0:2::", "0:0:1::", "1.2.3.4/0"]),
    ),
    "cidr": st.one_of(
        st.ip_addresses(v=4).map(str), _V6, st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0"])
    ),
    "macaddr": st.binary(min_size=6, max_size=6).map(bytes.hex),
    "macaddr8": st.binary(min_size=8, max_size=8).map(bytes.hex),
    "bit(1)": st.sampled_from(["0", "1"]),
    "bit(11)": st.text("01", min_size=11, max_size=11),
    "varbit": st.text("01", max_size=70),
    "int4[]": _array(_INTS.map(str)),
    "text[]": _array(_or(_TEXT, "NULL", "null", "", "{}", "a,b", '"', "\\")),
    "numeric(9,2)[]": _array(st.integers(-(10**9) + 1, 10**9 - 1).map(lambda v: f"{v}e-2")),
    "bool[]": _array(st.sampled_from(["t", "f"])),
    "bytea[]": _array(_BYTES),
    "float8[]": _array(_FLOATS),
    "timestamptz[]": _array(_or(_stamps(), "infinity")),
    "uuid[]": _array(st.uuids().map(str)),
    "inet[]": _array(_V6),
    "jsonb[]": _array(_json(st.text('ab"\\ ', max_size=5))),
}


@pytest.mark.parametrize("type_", _BINARY)
def test_a_value_comes_back_by_copy_and_by_the_log_as_the_server_prints_it(
    database: Database, type_: str
) -> None:
    if type_ == "xml" and not database.has_xml:
        pytest.skip("this server is built without libxml")
    schema, types = database.table(f"v {type_}")
    values = [*_drawn(_BINARY[type_]), None]
    database.insert([None if v is None else f"{_quoted(v)}::{type_}" for v in values])
    assert has_binary(schema.columns[1].type)
    rows = [row["v"] for row in plain(_check(database, schema, types))]
    assert len(rows) == len(values)
    assert rows[-1] is None
    printed = [row[1] for row in _printed(database, schema)]
    if schema.columns[1].type.kind is not Kind.LIST:
        assert rows == printed
    elif type_ in ("int4[]", "text[]", "uuid[]", "jsonb[]"):
        texts = [None if row is None else [None if v is None else str(v) for v in row] for row in rows]
        assert texts == [None if v is None else json.loads(v) for v in printed]


def _drawn(values: st.SearchStrategy[str]) -> list[str]:
    """Some forty of the values."""
    found: list[str] = []

    @seed(len(repr(values)))
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    @given(values)
    def draw(value: str) -> None:
        found.append(value)

    draw()
    return found


#: Types that are read as text, whose values the server prints.
_TEXTS = {
    "int4range": ["'[1,5)'", "'empty'", "'(,)'"],
    "tstzrange": ["tstzrange('2020-01-01 00:00+02', 'infinity', '[]')", "'[\"2020-01-01 BC\",)'"],
    "nummultirange": ["'{[1.50,2),(3,]}'", "'{}'"],
    "pair": ["ROW(1, 'a \"b\", (c)')", "ROW(NULL, '')", "ROW(NULL, NULL)"],
    "pair[]": ["ARRAY[ROW(1, 'x,y')::pair, NULL]"],
    "int4range[]": ["ARRAY['[1,2)'::int4range, 'empty']"],
    "point": ["'(1.5,-1e300)'"],
    "box": ["'((1,2),(3,4))'"],
    "box[]": ["ARRAY['((1,2),(3,4))'::box, NULL, '((1,2),(3,5))']"],
    "polygon": ["'((0,0),(0,1),(1.1,0))'"],
    "circle": ["'<(0,0),2>'"],
    "line": ["'{1,2,3}'"],
    "lseg": ["'[(1,2),(3,4)]'"],
    "path": ["'[(1,2),(3,4)]'", "'((1,2),(3,4))'"],
    "tsvector": ["to_tsvector('english', 'The ''fat'' cats \\ ate')", "''"],
    "tsquery": ["'fat & (rat | !cat:ab*)'"],
    "jsonpath": ["'$.a[*] ? (@ > 1)'"],
    "pg_lsn": ["'16/B374D848'"],
    "regclass": ["'pg_class'"],
    "int2vector": ["'1 2 3'"],
    '"char"': ["'a'", "''"],
    "tid": ["'(1,2)'"],
    "interval[]": ["ARRAY['1 year -1 day 00:00:01'::interval, NULL]"],
    "mood": ["'sad'"],
    "mood[]": ["'{sad,NULL}'"],
    "cents": ["'12.3'"],
    "cents[]": ["'{12.3,NULL}'"],
    "hstore": ["'a=>1, \"b c\"=>NULL'"],
    "ltree": ["'a.b_c.d'"],
    "citext": ["'AbC'"],
    "citext[]": ["'{AbC,NULL}'"],
    "cube": ["'(1,2),(3,4)'"],
    "vector": ["'[1,-2.5,1e-20]'"],
    "vector(2)": ["'[1,0.1]'"],
}


#: A server prints the same in both versions; what it sends in binary form is tested with both.
NEWEST = pytest.mark.parametrize(
    "database", ["18", pytest.param("15", marks=pytest.mark.slow)], indirect=True, scope="module"
)


@NEWEST
@pytest.mark.parametrize("type_", _TEXTS)
def test_a_value_of_any_type_comes_back_by_copy_and_by_the_log(database: Database, type_: str) -> None:
    try:
        schema, types = database.table(f"v {type_}")
    except WireError:
        pytest.skip(f"this server has no {type_}")
    database.insert([f"{value}::{type_}" for value in _TEXTS[type_]] + [None])
    rows = [row["v"] for row in plain(_check(database, schema, types))]
    column = schema.columns[1].type
    assert rows[-1] is None
    if column.kind is not Kind.LIST:
        assert rows == [row[1] for row in _printed(database, schema)]
    if not has_binary(column):
        database.insert([f"{_TEXTS[type_][0]}::{type_}"])
        with pytest.raises(BinaryFormError, match=r"column `public\.v\.v` came in binary form"):
            database.logged(types, binary=True, take=False)
        database.logged(types, binary=False, take=True)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("numeric(5,2)", "'NaN'"),
        ("int4[]", "'{{1,2},{3,4}}'"),
        ("int4[]", "'[0:1]={1,2}'"),
        ("text[]", "'{{a},{b}}'"),
        ("numeric(5,2)[]", "'{NaN}'"),
        ("timestamp", "'294276-12-31 23:59:59'"),
        ("timestamptz", "'294247-01-10 04:00:54.775807+00'"),
    ],
)
def test_what_an_arrow_type_does_not_hold_is_refused_or_captured_as_text(
    database: Database, type_: str, value: str
) -> None:
    schema, types = database.table(f"v {type_}")
    database.insert([value])
    hint = "`unfitAsNull`.*`textColumns`"
    with pytest.raises(DecodeError, match=hint):
        database.copied(schema)
    for binary in (True, False):
        with pytest.raises(DecodeError, match=hint):
            database.logged(types, binary=binary, take=False)
    ((oid, modifier),) = database.wire.rows(
        "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = 'v'::regclass AND attname = 'v'"
    )
    text = types.column_type(int(oid or 0), int(modifier or 0), unfit="text")
    wide = replace(schema, columns=(schema.columns[0], replace(schema.columns[1], type=text)))
    rows = plain(database.copied(wide))
    logged = database.logged(
        types, binary=False, take=False, unfit=lambda name: "text" if name == "public.v.v" else None
    )
    assert plain(_inserted(logged)) == rows
    assert [row["v"] for row in rows] == [row[1] for row in _printed(database, wide)]
    null = types.column_type(int(oid or 0), int(modifier or 0), unfit="null")
    lenient = replace(schema, columns=(schema.columns[0], replace(schema.columns[1], type=null)))
    expected = [[None]] if type_ == "numeric(5,2)[]" else [None]
    assert [row["v"] for row in plain(database.copied(lenient))] == expected
    for binary in (True, False):
        logged = database.logged(types, binary=binary, take=not binary, unfit={"public.v.v": "null"}.get)
        assert [row["v"] for row in plain(_inserted(logged))] == expected
