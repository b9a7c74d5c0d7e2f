"""TRUNCATEs among the changes of their table, without a broker."""

from __future__ import annotations

import logging

import pytest

from tailrace.model.schema_change import RowsRewritten, SchemaEvent, TableTruncated
from tailrace.sinks.kafka.truncations import is_truncation, parted, places, truncations
from tests.support.changes import changes
from tests.unit.sinks.kafka.test_writer import SCHEMA, row

ORIGIN = {"ts_us": 5000, "txn": "u:9", "file": "binlog.000001", "pos": 450, "server_id": 3}


def gone(**given: object) -> SchemaEvent:
    return SchemaEvent("shop.t", (TableTruncated(),), **{"seq": f"{9:032x}", "origin": ORIGIN, **given})


def test_a_cell_is_parted_where_its_table_is_truncated() -> None:
    batch = changes(SCHEMA, [("c", None, row(i)) for i in range(6)])
    for connector in ("mysql", "postgresql"):
        at = [place for i in (2, 2, 5) for place in places(batch.slice(i, 1), connector)]
        parts = parted(batch, at, connector)
        assert [len(part) for _, part in parts] == [2, 3, 1]
        assert [place for place, _ in parts] == [places(batch, connector)[i] for i in (0, 2, 5)]


def test_only_truncates_with_an_origin_are_written_and_parked_tables_are_left_out() -> None:
    events = [gone(after=SCHEMA), gone(origin=None), SchemaEvent("shop.t", (RowsRewritten("..."),))]
    (change,) = truncations(events, frozenset(), needs_columns=True)
    assert is_truncation(change)
    assert change.table == SCHEMA
    (origin,) = change.origin.to_pylist()
    assert {name: origin[name] for name in ORIGIN} == ORIGIN
    assert (origin["thread"], origin["row"]) == (None, 0)
    assert truncations(events, frozenset(["shop.t"]), needs_columns=True) == []


def test_columns_that_nothing_knows_are_needed_only_where_messages_have_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (change,) = truncations([gone()], frozenset(), needs_columns=False)
    assert change.table.columns == ()
    with caplog.at_level(logging.WARNING):
        assert truncations([gone()], frozenset(), needs_columns=True) == []
    assert "`shop.t` was truncated" in caplog.text
