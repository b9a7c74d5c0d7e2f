"""Updates logged as differences of JSON values come out as the server's own new values."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.model.change import OP_UPDATE
from tailrace.sources.mysql.wire.rare.jsondiff import apply_diffs
from tailrace_dev.servers import MySqlServer
from tests.support.binlog import file_bytes
from tests.support.logged import changes_between, changes_during, end_of_log

_PARTIAL_EVENT = 39

_keys = st.one_of(
    st.sampled_from(["a", "b", "key", "$", "é", "a b", 'q"uote', "back\\slash", "", "[0]", "x.y", "\n\x01"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 32767, 32768, 65535, 65536, -32769, 2**31, -(2**31) - 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=200),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=20,
)
_documents = st.dictionaries(_keys, _values, max_size=6) | st.lists(_values, max_size=6)
_functions = st.sampled_from(
    ["JSON_SET", "JSON_REPLACE", "JSON_REMOVE"] * 3
    + ["JSON_INSERT", "JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT"]
)


@st.composite
def _paths(draw: st.DrawFn, document: Any) -> str:
    """A path that leads into the document, and perhaps one step out of it."""
    path, node = "$", document
    for _ in range(draw(st.integers(1, 4))):
        if isinstance(node, dict):
            key = draw(st.sampled_from([*node, "new"]) if node else st.just("new"))
            path += "." + json.dumps(key, ensure_ascii=False)
            node = node.get(key)
        else:
            size = len(node) if isinstance(node, list) else 1
            cell = draw(st.integers(0, size))
            path += f"[{cell}]"
            node = node[cell] if isinstance(node, list) and cell < size else None
        if not isinstance(node, dict | list):
            break
    return path


@st.composite
def _updates(draw: st.DrawFn) -> tuple[str, list[tuple[str, list[str]]]]:
    """A document, and calls of functions with their arguments."""
    document = draw(_documents)
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        function, arguments = draw(_functions), []
        for _ in range(draw(st.integers(1, 3))):
            path = draw(_paths(document))
            if function == "JSON_ARRAY_INSERT" and not path.endswith("]"):
                path += "[0]"
            arguments.append(path)
            if function != "JSON_REMOVE":
                arguments.append(json.dumps(draw(_values), ensure_ascii=False))
        calls.append((function, arguments))
    return json.dumps(document, ensure_ascii=False), calls


def _statement(function: str, arguments: list[str]) -> str:
    if function == "JSON_REMOVE":
        return f"{function}(doc{', %s' * len(arguments)})"
    return f"{function}(doc{', %s, CAST(%s AS JSON)' * (len(arguments) // 2)})"


@pytest.fixture(scope="module")
def table(mysql: MySqlServer) -> Any:
    name = "partial_json"
    mysql.execute(
        f"DROP DATABASE IF EXISTS {name}",
        f"CREATE DATABASE {name}",
        # a second document, so that the partial bits are more than one; long, so that differences are shorter
        f"CREATE TABLE {name}.t (id int primary key auto_increment, other json, v varchar(9), doc json)",
    )
    yield f"{name}.t"
    mysql.execute(f"DROP DATABASE {name}")


@given(st.lists(_updates(), min_size=1, max_size=30))
@settings(max_examples=15, suppress_health_check=list(HealthCheck), print_blob=True)
def test_differences_give_the_documents_that_the_server_has(
    mysql: MySqlServer, table: str, updates: list[tuple[str, list[tuple[str, list[str]]]]]
) -> None:
    database = table.partition(".")[0]
    expected: list[str] = []
    with closing(mysql.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
        cursor.execute(f"DELETE FROM {table}")
        start = end_of_log(mysql)
        for document, calls in updates:
            cursor.execute(
                f"INSERT INTO {table} (other, doc) VALUES ('[1, 2]', JSON_ARRAY(%s, CAST(%s AS JSON)))",
                ("filler " * 200, document),
            )
            id_ = (cursor.lastrowid,)
            wrapped = "JSON_OBJECT('f', doc->'$[0]', 'd', doc->'$[1]')"
            cursor.execute(f"UPDATE {table} SET doc = {wrapped} WHERE id = %s", id_)
            for function, arguments in calls:
                moved = ["$.d" + a[1:] if a[0] == "$" else a for a in arguments]
                sql = f"UPDATE {table} SET doc = {_statement(function, moved)} WHERE id = %s"
                if cursor.execute(sql, (*moved, *id_)):
                    cursor.execute(f"SELECT CAST(doc AS CHAR) FROM {table} WHERE id = %s", id_)
                    expected += cursor.fetchone()
    end = end_of_log(mysql)
    found = []
    for batch in changes_between(mysql, database, start, end):
        before = batch.image("before").field("doc").to_pylist()
        after = batch.image("after").field("doc").to_pylist()
        rows = zip(batch.op.to_pylist(), before, after, strict=True)
        found += [new for op, old, new in rows if op == OP_UPDATE and not old.startswith("[")]
    assert found == expected


def _types(mysql: MySqlServer, start: Any, end: Any) -> set[int]:
    """Types of the events in a range of one file."""
    data, at, found = file_bytes(mysql, start.file), start.pos, set()
    assert start.file == end.file
    while at < end.pos:
        found.add(data[at + 4])
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found


def test_the_server_writes_the_event_that_is_meant(mysql: MySqlServer, database: str) -> None:
    start = end_of_log(mysql)
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, doc json)",
        f"INSERT INTO {database}.t VALUES (1, JSON_OBJECT('a', 1, 'long', REPEAT('x', 900)))",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        f"UPDATE {database}.t SET doc = JSON_SET(doc, '$.a', 2)",
    )
    assert _PARTIAL_EVENT in _types(mysql, start, end_of_log(mysql))


@pytest.mark.parametrize("compression", ["OFF", "ON"])
def test_documents_beyond_64_kb_and_many_rows_come_whole(
    mysql: MySqlServer, database: str, compression: str
) -> None:
    numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 50)"
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, doc json, n int, again json)",
        f"INSERT INTO {database}.t {numbers} SELECT n, "
        "JSON_OBJECT('long', REPEAT('x', 70000 * (n % 3)), 'a', "
        "JSON_ARRAY(1.5, NOW(6), CAST('2026-01-02' AS DATE), 12.25, 0x00ff, n)), n, "
        "IF(n % 4, JSON_ARRAY(REPEAT('y', 300), n), NULL) FROM r",
    )
    batches = changes_during(
        mysql,
        database,
        lambda: mysql.execute(
            "SET SESSION binlog_row_value_options = PARTIAL_JSON",
            f"SET SESSION binlog_transaction_compression = {compression}",
            f"UPDATE {database}.t SET doc = JSON_SET(doc, '$.a[1]', 'now', '$.b', n), "
            "again = JSON_SET(again, '$[1]', -n)",
        ),
    )
    found = {r["id"]: r for b in batches for r in b.image("after").to_pylist()}
    with closing(mysql.connect(charset="utf8mb4")) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id, CAST(doc AS CHAR), n, CAST(again AS CHAR) FROM {database}.t")
        assert {r["id"]: (r["doc"], r["n"], r["again"]) for r in found.values()} == {
            row[0]: row[1:] for row in cursor.fetchall()
        }
    seqs = [s for b in batches for s in b.origin.column("seq").to_pylist()]
    assert len(set(seqs)) == 50


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")
def test_differences_without_the_document_before_are_refused_with_column_and_remedy(
    mysql: MySqlServer, database: str
) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id int primary key, doc json)",
        f"INSERT INTO {database}.t VALUES (1, JSON_OBJECT('a', 1, 'long', REPEAT('x', 900)))",
    )

    def work() -> None:
        mysql.execute(
            "SET SESSION binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL",
            f"UPDATE {database}.t SET doc = JSON_SET(doc, '$.a', 2)",
        )

    with pytest.raises(SchemaMismatchError, match="column `doc`") as refused:
        changes_during(mysql, database, work)
    assert "binlog_row_image = FULL" in str(refused.value)


_DOCUMENT = bytes([0, 1, 0, 12, 0, 11, 0, 1, 0, 5, 7, 0]) + b"a"  # {"a": 7}


@pytest.mark.parametrize(
    ("diffs", "reason"),
    [
        (b"\x07\x01$", "operation 7"),
        (b"\x00\x03$.b\x03\x05\x01\x00", "does not exist in its document"),
        (b"\x01\x03$.a\x03\x05\x01\x00", "that exists already"),
        (b"\x02\x01$", "whole document"),
        (b"\x02\x03x.a", "a path that is none"),
        (b"\x02\x05$.a[9", "a path that is none"),
        (b"\x00\x03$.a\xfd\xff\xff\xff", "cut off"),
        (b"\x00", "cut off"),
        (b"\x00\x03$.a\x01\x63", "type 99"),
    ],
)
def test_broken_differences_are_refused(diffs: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        apply_diffs(_DOCUMENT, diffs)
