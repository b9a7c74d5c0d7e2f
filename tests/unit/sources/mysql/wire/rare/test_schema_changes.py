"""Statements of the log as typed schema changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    SchemaChange,
    TableCreated,
    TableDropped,
    TableRenamed,
    TableTruncated,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sources.mysql.wire.rare.rewrites import rewrites_rows
from tailrace.sources.mysql.wire.rare.schema_changes import Catalog, applied, schema_changes
from tests.unit.sources.mysql.wire.rare.test_rewrites import HARMLESS, REWRITES

INT = ColumnType(Kind.INTEGER, "int", bits=32)
BIGINT = ColumnType(Kind.INTEGER, "bigint", bits=64)
ID, A, B, C = Column("id", INT, nullable=False), Column("a", INT), Column("b", INT), Column("c", INT)
T = TableSchema(TableId("d", "t"), (ID, A, B), ("id",))


def typed(
    text: str, *, after: TableSchema = T, before: TableSchema | None = T
) -> dict[str, list[SchemaChange]]:
    catalog = Catalog({} if before is None else {"d.t": before}, {"d.t": after})
    found = schema_changes(text, "d", lambda _: True, catalog)
    return {str(table): list(changes) for table, changes in found.items()}


def with_columns(*columns: Column) -> TableSchema:
    return replace(T, columns=columns)


@pytest.mark.parametrize(
    ("definition", "default"),
    [
        ("INT", None),
        ("INT DEFAULT NULL", None),
        ("INT DEFAULT 5", "5"),
        ("INT NOT NULL DEFAULT -1.5 COMMENT 'DEFAULT 7'", "-1.5"),
        ("INT DEFAULT 'it''s, \\'so\\'' AFTER a", "'it''s, \\'so\\''"),
        ("INT DEFAULT b'101'", "b'101'"),
        ("INT DEFAULT 0x1F, ALGORITHM=INSTANT", "0x1F"),
        ("INT DEFAULT TRUE", "TRUE"),
    ],
)
def test_added_column_has_the_constant_that_old_rows_have(definition, default):
    after = with_columns(ID, A, B, C)
    added = [ColumnAdded(C, default)]
    assert typed(f"ALTER TABLE t ADD c {definition}", after=after) == {"d.t": added}
    assert typed(f"ALTER TABLE d.t ADD COLUMN `c` {definition}", after=after) == {"d.t": added}


@pytest.mark.parametrize(
    "definition",
    ["INT NOT NULL", "INT DEFAULT (1 + 2)", "DATETIME DEFAULT CURRENT_TIMESTAMP", "INT AS (a + 1) STORED"],
)
def test_added_column_with_other_values_in_old_rows_rewrites_them(definition):
    added, rewritten = typed(f"ALTER TABLE t ADD c {definition}", after=with_columns(ID, A, B, C))["d.t"]
    assert added == ColumnAdded(C)
    assert isinstance(rewritten, RowsRewritten)


def test_several_alterations_of_one_statement_come_in_its_order():
    text = "ALTER TABLE t RENAME COLUMN a TO z, DROP b, ADD COLUMN (c INT, INDEX (c)), COMMENT 'x'"
    after = with_columns(ID, Column("z", INT), C)
    assert typed(text, after=after) == {"d.t": [ColumnRenamed("a", "z"), ColumnDropped("b"), ColumnAdded(C)]}


def test_names_swapped_in_one_statement_are_two_renames():
    assert typed("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a") == {
        "d.t": [ColumnRenamed("a", "b"), ColumnRenamed("b", "a")]
    }


def test_column_is_spelled_as_the_table_has_it():
    assert typed("ALTER TABLE t DROP COLUMN A") == {"d.t": [ColumnDropped("a")]}


def test_redefined_column_has_its_type_before_and_after():
    after = with_columns(ID, Column("a", BIGINT), B)
    altered = ColumnAltered(A, Column("a", BIGINT))
    assert typed("ALTER TABLE t MODIFY a BIGINT", after=after) == {"d.t": [altered]}
    after = with_columns(ID, Column("x", BIGINT), B)
    altered = ColumnAltered(Column("x", INT), Column("x", BIGINT))
    found = typed("ALTER TABLE t CHANGE COLUMN a x BIGINT", after=after)
    assert found == {"d.t": [ColumnRenamed("a", "x"), altered]}


def test_redefined_column_whose_types_are_not_known_rewrites_rows():
    (change,) = typed("ALTER TABLE t MODIFY a BIGINT", before=None)["d.t"]
    assert isinstance(change, RowsRewritten)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)",
        "ALTER TABLE t DROP PRIMARY KEY, ADD CONSTRAINT p PRIMARY KEY USING BTREE (`a`, B(10))",
    ],
)
def test_another_primary_key_is_one_change(text):
    assert typed(text) == {"d.t": [KeyAltered(("id",), ("a", "b"))]}


def test_key_that_an_index_makes_is_the_catalogs():
    before, after = replace(T, key=()), replace(T, key=("a",))
    for text in ("ALTER TABLE t ADD UNIQUE (a)", "CREATE UNIQUE INDEX i ON t (a)"):
        assert typed(text, before=before, after=after) == {"d.t": [KeyAltered((), ("a",))]}


def test_renamed_key_column_is_no_other_key():
    after = replace(with_columns(Column("k", INT, nullable=False), A, B), key=("k",))
    assert typed("ALTER TABLE t RENAME COLUMN id TO k", after=after) == {"d.t": [ColumnRenamed("id", "k")]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DROP TABLE IF EXISTS t, s.u", {"d.t": [TableDropped()], "s.u": [TableDropped()]}),
        ("DROP DATABASE IF EXISTS `d`", {"d.t": [TableDropped()]}),
        (
            "ALTER TABLE p CONVERT TABLE t TO PARTITION p1 VALUES LESS THAN (9)",
            {"d.p": [RowsRewritten("CONVERT TABLE")], "d.t": [TableDropped()]},
        ),
        ("TRUNCATE t", {"d.t": [TableTruncated()]}),
        ("TRUNCATE TABLE s.u", {"s.u": [TableTruncated()]}),
        ("CREATE TABLE x LIKE t", {"d.x": [TableCreated()]}),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", {"d.t": []}),
        ("RENAME TABLE t TO s.u", {"d.t": [TableRenamed("s.u")], "s.u": [TableCreated()]}),
        ("ALTER TABLE t RENAME TO u", {"d.t": [TableRenamed("d.u")], "d.u": [TableCreated()]}),
        ("ALTER TABLE t RENAME AS u", {"d.t": [TableRenamed("d.u")], "d.u": [TableCreated()]}),
        ("DROP TEMPORARY TABLE t", {}),
    ],
)
def test_change_of_whole_tables(text, found):
    assert typed(text) == found


def test_swap_is_one_change_of_the_table():
    found = typed("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert found["d.t"] == [RowsRewritten("`d._t_gho` was renamed to its name")]
    assert found["d._t_gho"] == [TableRenamed("d.t")]
    assert found["d._t_del"] == [TableCreated()]


def test_two_tables_that_swap_names_are_both_rewritten():
    found = typed("RENAME TABLE t TO x, u TO t, x TO u")
    assert found == {
        "d.t": [RowsRewritten("`d.u` was renamed to its name")],
        "d.u": [RowsRewritten("`d.t` was renamed to its name")],
    }


@pytest.mark.parametrize("text", [t for t in HARMLESS if not t.startswith("DROP VIEW")])
def test_statement_that_rewrites_nothing_has_no_rewrite(text):
    for changes in typed(text, before=None).values():
        assert not any(isinstance(change, RowsRewritten) for change in changes)


@pytest.mark.parametrize("text", REWRITES)
def test_statement_that_rewrites_rows_has_a_change(text):
    assert rewrites_rows(text)
    assert any(typed(text).values())


def test_changes_lead_from_one_schema_to_the_next():
    changes = [ColumnRenamed("id", "k"), ColumnDropped("b"), ColumnAdded(C)]
    assert applied(T, changes) == TableSchema(T.id, (Column("k", INT, nullable=False), A, C), ("k",))
    assert applied(T, [TableRenamed("d.u")]) is None
