"""Row images without all columns, and table maps without names: what is not known is said, never made up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import SchemaMismatchError, SinkError
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE, ChangeBatch
from tailrace.model.split import LogSplit
from tailrace.model.table import TableId
from tailrace.reader.rewind import Rewind
from tailrace.sinks.tables.rows import last_rows, log_rows
from tailrace.sources.mysql.session import MySqlSession
from tailrace.sources.mysql.start.starting import log_end_position
from tailrace_dev.servers import MariaDbServer, MySqlServer
from tests.support.binlog import options_of
from tests.support.databases import global_variable
from tests.support.logged import captured, changes_during, end_of_log, options_for

_ROW = "(1, 'a', REPEAT('t', 900), 7)"


@pytest.fixture
def table(mysql: MySqlServer, database: str) -> str:
    mysql.execute(f"CREATE TABLE {database}.t (id int primary key, v varchar(9), doc text, n int default 5)")
    return f"{database}.t"


def _changes(
    mysql: MySqlServer, table: str, image: str, *statements: str, **decoder: Any
) -> list[ChangeBatch]:
    return changes_during(
        mysql,
        table.partition(".")[0],
        lambda: mysql.execute(
            f"SET SESSION binlog_row_image = {image}", *(s.format(t=table) for s in statements)
        ),
        **decoder,
    )


def test_minimal_images_name_the_columns_they_lack(mysql: MySqlServer, table: str) -> None:
    inserted, updated, deleted = _changes(
        mysql,
        table,
        "MINIMAL",
        "INSERT INTO {t} (id, v) VALUES (1, 'a'), (2, NULL)",
        "UPDATE {t} SET n = NULL WHERE id = 1",
        "DELETE FROM {t} WHERE id = 2",
    )
    assert [b.op.to_pylist() for b in (inserted, updated, deleted)] == [
        [OP_CREATE] * 2,
        [OP_UPDATE],
        [OP_DELETE],
    ]
    assert (inserted.absent_before, inserted.absent_after) == ((), ("doc", "n"))
    assert [r["v"] for r in inserted.image("after").to_pylist()] == ["a", None]
    assert (updated.absent_before, updated.absent_after) == (("v", "doc", "n"), ("v", "doc"))
    # the key is not logged again, but an unchanged column is as it was
    assert updated.image("after").to_pylist() == [{"id": 1, "v": None, "doc": None, "n": None}]
    assert (deleted.absent_before, deleted.absent_after) == (("v", "doc", "n"), ())
    assert deleted.image("before").field("id").to_pylist() == [2]


def test_noblob_images_lack_texts_that_did_not_change(mysql: MySqlServer, table: str) -> None:
    mysql.execute(f"INSERT INTO {table} VALUES {_ROW}")
    number, text = _changes(
        mysql, table, "NOBLOB", "UPDATE {t} SET n = 8", "UPDATE {t} SET doc = 'new', v = 'b'"
    )
    assert (number.absent_before, number.absent_after) == (("doc",), ("doc",))
    assert number.image("after").to_pylist() == [{"id": 1, "v": "a", "doc": None, "n": 8}]
    assert (text.absent_before, text.absent_after) == (("doc",), ())
    assert text.image("after").to_pylist() == [{"id": 1, "v": "b", "doc": "new", "n": 8}]


def test_rows_that_lack_other_columns_never_share_a_batch(mysql: MySqlServer, table: str) -> None:
    mysql.execute(f"INSERT INTO {table} VALUES {_ROW}, (2, 'b', 'u', 1)")
    batches = _changes(
        mysql,
        table,
        "MINIMAL",
        "UPDATE {t} SET n = n + 1",
        "UPDATE {t} SET n = n + 1",
        "UPDATE {t} SET v = 'c'",
        "SET SESSION binlog_row_image = FULL",
        "UPDATE {t} SET v = 'd'",
        "INSERT INTO {t} VALUES (3, 'x', 'y', 0)",
    )
    assert [(len(b), b.absent_after) for b in batches] == [(4, ("v", "doc")), (2, ("doc", "n")), (3, ())]
    seqs = [s for b in batches for s in b.origin.column("seq").to_pylist()]
    assert seqs == sorted(set(seqs))
    for batch in batches:
        again = decode_cell(encode_cell(batch))
        assert again.absent_before == batch.absent_before
        assert again.absent_after == batch.absent_after
        assert again.slice(1).take(pa.array([0])).absent_after == batch.absent_after


def test_a_change_without_its_key_is_refused_with_place_and_remedy(mysql: MySqlServer, table: str) -> None:
    mysql.execute(f"INSERT INTO {table} VALUES {_ROW}")
    keys = {TableId.parse(table): ("v",)}
    with pytest.raises(SchemaMismatchError, match="without the column v") as refused:
        _changes(mysql, table, "MINIMAL", "DELETE FROM {t}", keys=keys)
    assert "binlog.0" in str(refused.value)
    assert "SET PERSIST binlog_row_image = FULL" in str(refused.value)


def test_rewind_takes_no_parts_of_rows_and_upsert_only_those_of_updates(
    mysql: MySqlServer, table: str
) -> None:
    mysql.execute(f"INSERT INTO {table} VALUES {_ROW}")
    (updated,) = _changes(mysql, table, "MINIMAL", "UPDATE {t} SET n = 1")
    with pytest.raises(SchemaMismatchError, match="binlog_row_image"):
        Rewind(updated.table).observe(updated)
    last = last_rows(pa.schema(list(updated.table.arrow)), ("id",))
    (row,) = last(updated).to_pylist()
    assert (row["n"], row["_absent"]) == (1, ["v", "doc"])
    (deleted,) = _changes(mysql, table, "MINIMAL", "DELETE FROM {t}")
    assert last(deleted).num_rows == 1
    (inserted,) = _changes(mysql, table, "MINIMAL", "INSERT INTO {t} (id, v) VALUES (2, 'b')")
    with pytest.raises(SinkError, match="binlog_row_image"):
        last(inserted)


def test_change_log_tells_what_is_absent_from_what_is_null(mysql: MySqlServer, table: str) -> None:
    mysql.execute(f"INSERT INTO {table} VALUES {_ROW}")
    batches = _changes(
        mysql,
        table,
        "MINIMAL",
        "UPDATE {t} SET n = NULL WHERE id = 1",
        "DELETE FROM {t} WHERE id = 1",
    )
    columns = pa.schema(list(batches[0].table.arrow))
    rows = [row for batch in batches for row in log_rows(columns)(batch).to_pylist()]
    assert [(r["_op"], r["id"], r["_absent"], r["_absent_before"]) for r in rows] == [
        ("u", 1, ["v", "doc"], ["v", "doc", "n"]),
        ("d", 1, ["v", "doc", "n"], None),
    ]
    assert rows[0]["_before"] == {"id": 1, "v": None, "doc": None, "n": None}


_UNNAMED = """
    id int primary key, e enum('x', 'ä'), s set('p', 'q'), v varchar(20) character set latin1, u int unsigned,
    d decimal(9, 2), ts timestamp(3) null, j json, b bit(9), bin binary(4), f float unsigned
"""


@pytest.fixture
def unnamed(mysql: MySqlServer) -> Any:
    with global_variable(mysql, "binlog_row_metadata", "MINIMAL"):
        yield


def _session_changes(mysql: MySqlServer, database: str, *statements: str) -> list[ChangeBatch]:
    start = end_of_log(mysql)
    mysql.execute(*statements)
    session = MySqlSession(options_for(mysql, database))
    try:
        return list(session.changes(LogSplit(start.to_json(), end_of_log(mysql).to_json())))
    finally:
        session.close()


def test_table_maps_without_names_are_read_by_the_catalog(
    mysql: MySqlServer, database: str, unnamed: Any
) -> None:
    mysql.execute(f"CREATE TABLE {database}.t ({_UNNAMED})")
    values = "1, 'ä', 'p,q', 'é', 4294967295, -1.5, '2026-01-02', JSON_OBJECT('a', 1), 3, 'ab', 1.5"
    insert = f"INSERT INTO {database}.t VALUES ({values})"
    (batch,) = _session_changes(mysql, database, insert)
    assert batch.table == captured(mysql, database)["t"]
    mysql.execute("SET GLOBAL binlog_row_metadata = FULL", f"DELETE FROM {database}.t")
    (named,) = _session_changes(mysql, database, insert)
    assert batch.image("after").equals(named.image("after"))


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        ("ADD c int", "11 columns, in the catalog 12"),
        ("MODIFY u int", "column `u`"),
        ("MODIFY v varchar(21) character set latin1", "column `v`"),
        ("DROP u, ADD w bigint", "column `"),
    ],
)
def test_table_maps_without_names_of_another_shape_are_refused_with_place(
    mysql: MySqlServer, database: str, unnamed: Any, alter: str, reason: str
) -> None:
    mysql.execute(f"CREATE TABLE {database}.t ({_UNNAMED})")
    with pytest.raises(SchemaMismatchError, match=reason) as refused:
        _session_changes(
            mysql, database, f"INSERT INTO {database}.t (id) VALUES (1)", f"ALTER TABLE {database}.t {alter}"
        )
    assert "at binlog.0" in str(refused.value)
    assert "SET PERSIST binlog_row_metadata = FULL" in str(refused.value)


def test_rows_that_mariadb_writes_without_duplicates_are_whole(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    table = f"{mariadb_database}.t"
    mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(9), doc TEXT)")
    options = options_of(mariadb, tables=rf"{mariadb_database}\.t")
    start = log_end_position(options)
    mariadb.execute(
        "SET SESSION binlog_row_image = FULL_NODUP",
        f"INSERT INTO {table} (id, v) VALUES (1, 'a')",
        f"UPDATE {table} SET doc = 'x'",
        f"UPDATE {table} SET id = 2",
    )
    session = MySqlSession(options)
    try:
        batches = list(session.changes(LogSplit(start.to_json(), log_end_position(options).to_json())))
    finally:
        session.close()
    assert {(b.absent_before, b.absent_after) for b in batches} == {((), ())}
    assert [row for b in batches for row in b.image("after").to_pylist()] == [
        {"id": 1, "v": "a", "doc": None},
        {"id": 1, "v": "a", "doc": "x"},
        {"id": 2, "v": "a", "doc": "x"},
    ]
