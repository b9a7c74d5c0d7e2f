"""The transactions of a batch, with the number of changes of each table: for Debezium's transaction topic.

They are counted from the columns `txn` and `seq` of the batch's cells (model.change.ORIGIN), in two steps:

    in tasks     counts(batch)     one row per transaction of a cell, which has one table
    anywhere     merged(counts)    the transactions of all these rows, in log order

Only the contents of cells can be counted: not transactions without an id (MySQL without GTIDs), nor those
that changed no captured table (Debezium writes a BEGIN and an END for them, too), nor rows that a snapshot
reads. Batches end between transactions, so each transaction is counted as a whole. A transaction larger than
a batch is counted in parts, one for each batch with some of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch

#: A transaction's changes of one table, or a part of them.
#:
#: id          the source's transaction id
#: seq         `seq` of the first of these changes
#: ts_us       commit time, microseconds since 1970 UTC; 0 if unknown
#: collection  the table, `database.table`
#: events      number of changes
COUNTS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("seq", pa.string()),
        pa.field("ts_us", pa.int64()),
        pa.field("collection", pa.string()),
        pa.field("events", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Transaction:
    """A transaction and its number of changes.

    Args:
        id: the source's transaction id.
        ts_ms: commit time, milliseconds since 1970 UTC; 0 if unknown.
        events: number of changes by table, `database.table`, sorted.
    """

    id: str
    ts_ms: int
    events: tuple[tuple[str, int], ...]


def counts(batch: ChangeBatch) -> pa.RecordBatch:
    """One row with schema COUNTS per transaction with an id; none for rows of a snapshot."""
    if batch.is_read or not len(batch):
        return _nothing()
    origin = batch.origin
    rows = pa.table(
        {
            "id": origin.column("txn").dictionary_decode(),
            "seq": origin.column("seq"),
            "ts_us": origin.column("ts_us"),
        }
    )
    rows = rows.filter(pc.is_valid(rows["id"]))
    grouped = rows.group_by("id", use_threads=False).aggregate(
        [("seq", "min"), ("ts_us", "max"), ("id", "count")]
    )
    collection = pa.repeat(pa.scalar(str(batch.table.id), pa.string()), grouped.num_rows)
    columns = [grouped["id"], grouped["seq_min"], grouped["ts_us_max"], collection, grouped["id_count"]]
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=COUNTS)


def merged(parts: Iterable[pa.RecordBatch]) -> list[Transaction]:
    """The transactions in rows with schema COUNTS, in log order."""
    rows = pa.Table.from_batches(list(parts), COUNTS)
    by_table = rows.group_by(["id", "collection"], use_threads=False).aggregate(
        [("seq", "min"), ("ts_us", "max"), ("events", "sum")]
    )
    found: dict[str, tuple[str, int, list[tuple[str, int]]]] = {}
    for row in by_table.to_pylist():
        seq, ts_us, events = found.get(row["id"], (row["seq_min"], row["ts_us_max"], []))
        events.append((row["collection"], row["events_sum"]))
        found[row["id"]] = (min(seq, row["seq_min"]), max(ts_us, row["ts_us_max"]), events)
    in_order = sorted(found.items(), key=lambda item: item[1][0])
    return [Transaction(id_, ts_us // 1000, tuple(sorted(events))) for id_, (_, ts_us, events) in in_order]


def _nothing() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in COUNTS], schema=COUNTS)
