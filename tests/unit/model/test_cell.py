"""Cells decode to the batch that was encoded, and their stored form stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tailrace.model.cell import CELL_SCHEMA, cell_row, decode_cell, encode_cell, table_of_head
from tailrace.model.change import QUERY_TYPE, ChangeBatch
from tests.unit.formats.changes import ORDERS, batch, change, placed

LOG = batch(
    ORDERS,
    [
        change("c", None, {"id": 1, "name": "a"}),
        change("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}),
        change("d", {"id": 1, "name": "b"}, None),
    ],
)
SNAPSHOT = batch(ORDERS, [change("r", None, {"id": n, "name": "a"}) for n in (1, 2)])


def assert_equal(found: ChangeBatch, expected: ChangeBatch) -> None:
    assert found.to_record_batch().equals(expected.to_record_batch())
    assert found.table == expected.table
    assert (found.absent_before, found.absent_after) == (expected.absent_before, expected.absent_after)


def test_cell_decodes_to_the_batch_that_was_encoded() -> None:
    for changes in (LOG, SNAPSHOT, LOG.slice(1), placed(LOG, [(1, 1), (2, 2), (3, 3)])):
        assert_equal(decode_cell(encode_cell(changes)), changes)
    partial = replace(LOG, absent_before=("name",))
    assert_equal(decode_cell(encode_cell(partial)), partial)
    queries = replace(LOG, query=pa.array(["INSERT", None, "DELETE"], QUERY_TYPE))
    for changes in (queries, queries.slice(1), queries.take(pa.array([2, 0]))):
        assert_equal(decode_cell(encode_cell(changes)), changes)


def test_stored_names_of_a_cell_do_not_change() -> None:
    partial = replace(placed(LOG, [(1, 1), (2, 2), (3, 3)]), absent_after=("name",))
    log = pa.ipc.open_stream(encode_cell(partial)).schema
    assert set(log.metadata) == {b"tailrace.table", b"tailrace.absent"}
    assert log.names[:3] == ["op", "before", "after"]
    assert log.names[3:] == [
        *(f"origin.{n}" for n in ("seq", "ts_us", "txn", "file", "pos", "row", "server_id", "thread")),
        "place",
    ]
    snapshot = pa.ipc.open_stream(encode_cell(SNAPSHOT)).schema
    assert set(snapshot.metadata) == {b"tailrace.table", b"tailrace.origin"}
    assert snapshot.names == ["after"]


def test_row_of_a_cell_describes_its_changes() -> None:
    row = cell_row(LOG)
    assert row.schema == CELL_SCHEMA
    (values,) = row.to_pylist()
    head = values.pop("cell")
    seq = LOG.origin.column("seq")
    assert values == {
        "table": "shop.orders",
        "fingerprint": ORDERS.fingerprint,
        "kind": "log",
        "changes": 3,
        "min_seq": seq[0].as_py(),
        "max_seq": seq[2].as_py(),
    }
    length = int.from_bytes(head[4:8], "little")
    assert table_of_head(head[: 8 + length]) == ORDERS
