"""Geometries and vectors are the same bytes and numbers from a SELECT and from the log."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_dev.servers import MySqlServer
from tests.support.logged import both_ways, captured, changes_during, final_rows, selected

#: A value of each spatial type.
_SHAPES = {
    "point": "POINT(1 -2.5)",
    "linestring": "LINESTRING(0 0, 1 1, 2 0)",
    "polygon": "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))",
    "multipoint": "MULTIPOINT((0 0), (1 1))",
    "multilinestring": "MULTILINESTRING((0 0, 1 1), (2 2, 3 3))",
    "multipolygon": "MULTIPOLYGON(((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "geomcollection": "GEOMETRYCOLLECTION(POINT(1 1), LINESTRING(0 0, 1 1), GEOMETRYCOLLECTION(POINT(2 2)))",
}
_FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_geometries_of_every_type_are_srid_and_wkb(mysql: MySqlServer, database: str) -> None:
    columns = ", ".join(f"{t} {t}, {t}_4326 {t} SRID 4326" for t in _SHAPES)
    named = ", ".join(f"{t}, {t}_4326" for t in _SHAPES)
    values = ", ".join(
        f"ST_GeomFromText('{wkt}'), ST_GeomFromText('{wkt}', 4326, 'axis-order=long-lat')"
        for wkt in _SHAPES.values()
    )
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, any_shape geometry, {columns}, p point not null)"
    )
    shapes = ", ".join(
        f"({i}, ST_GeomFromText('{wkt}', 3857), POINT(0, 0))" for i, wkt in enumerate(_SHAPES.values(), 1)
    )
    rows = both_ways(
        mysql,
        database,
        f"INSERT INTO {database}.t (id, {named}, p) VALUES (0, {values}, POINT(7, 8))",
        f"INSERT INTO {database}.t (id, any_shape, p) VALUES {shapes}",
        f"INSERT INTO {database}.t (id, any_shape, p) VALUES"
        " (20, ST_GeomFromText('GEOMETRYCOLLECTION EMPTY'), POINT(0, 0))",
    )
    printed = mysql.execute(
        f"SELECT ST_SRID(any_shape), ST_AsWKB(any_shape, 'axis-order=long-lat') FROM {database}.t ORDER BY id"
    )
    for value, (srid, wkb) in zip(rows.field("any_shape").to_pylist(), printed, strict=True):
        assert value == (None if srid is None else srid.to_bytes(4, "little") + wkb)
    for name in _SHAPES:
        for column, wanted in ((name, 0), (f"{name}_4326", 4326)):
            value = rows.field(column)[0].as_py()
            [[wkb]] = mysql.execute(
                f"SELECT ST_AsWKB({column}, 'axis-order=long-lat') FROM {database}.t WHERE id = 0"
            )
            assert value == wanted.to_bytes(4, "little") + wkb
    assert {f.type for f in rows.type if f.name != "id"} == {pa.binary()}


def test_large_geometries_come_whole(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, g linestring)")
    points = ", ".join(f"{i} {i * 2}" for i in range(20_000))
    rows = both_ways(
        mysql, database, f"INSERT INTO {database}.t VALUES (1, ST_GeomFromText('LINESTRING({points})'))"
    )
    assert len(rows.field("g")[0].as_py()) == 4 + 9 + 16 * 20_000


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(vectors=st.lists(st.none() | st.lists(_FINITE, min_size=1, max_size=40), min_size=1, max_size=6))
def test_vectors_are_lists_of_numbers(
    mysql: MySqlServer, database: str, vectors: list[list[float] | None]
) -> None:
    mysql.execute(
        f"DROP TABLE IF EXISTS {database}.t",
        f"CREATE TABLE {database}.t (id int primary key, v vector(40), after_v int, w vector)",
    )
    literals = [
        "NULL" if v is None else f"_binary x'{struct.pack(f'<{len(v)}f', *v).hex()}'" for v in vectors
    ]
    values = ", ".join(f"({i}, {x}, {i}, {x})" for i, x in enumerate(literals))
    rows = both_ways(mysql, database, f"INSERT INTO {database}.t VALUES {values}")
    assert rows.field("v").to_pylist() == vectors
    assert rows.field("w").to_pylist() == vectors
    assert rows.field("after_v").to_pylist() == list(range(len(vectors)))


def test_the_longest_vector_comes_whole(mysql: MySqlServer, database: str) -> None:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, v vector(16383))")
    numbers = [float(i) for i in range(16383)]
    rows = both_ways(mysql, database, f"INSERT INTO {database}.t VALUES (1, STRING_TO_VECTOR('{numbers}'))")
    assert rows.field("v")[0].as_py() == numbers


@pytest.mark.parametrize("native", [*_SHAPES, "geometry"])
def test_the_log_knows_the_spatial_type(mysql: MySqlServer, database: str, native: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, n int, g {native}, v vector(3), e enum('x'))"
    )
    rows = both_ways(mysql, database, f"INSERT INTO {database}.t (id, e) VALUES (1, 'x')")
    assert rows.to_pylist() == [{"id": 1, "n": None, "g": None, "v": None, "e": "x"}]


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_partial_json_updates_beside_them_are_read(mysql: MySqlServer, database: str, metadata: str) -> None:
    mysql.execute(
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        f"CREATE TABLE {database}.t (id int primary key, g point, v vector(2),"
        " k varchar(9) character set gbk, e enum('汉', 'b') character set gbk,"
        " doc json, h linestring, d date)",
    )
    try:
        batches = changes_during(
            mysql,
            database,
            lambda: mysql.execute(
                f"INSERT INTO {database}.t VALUES (1, POINT(1, 2), STRING_TO_VECTOR('[1,2]'), '汉字', '汉',"
                f" JSON_OBJECT('a', 1, 'b', REPEAT('x', 500)), ST_GeomFromText('LINESTRING(0 0,1 1)'), NULL)",
                "SET binlog_row_value_options = PARTIAL_JSON",
                f"UPDATE {database}.t SET doc = JSON_SET(doc, '$.a', 2), g = POINT(3, 4)",
            ),
            schema_of=lambda _: captured(mysql, database)["t"],
        )
    finally:
        mysql.execute("SET GLOBAL binlog_row_metadata = FULL")
    schema = captured(mysql, database)["t"]
    assert {b.table for b in batches} == {schema}
    assert final_rows(batches, "id").equals(selected(mysql, schema, "id"))
