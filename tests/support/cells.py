"""Batches of cells made by hand, as the source would yield them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from tailrace.model.cell import encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.sinks.base import CellBatch, StreamId

CELL_SCHEMA = (
    "table string, fingerprint string, kind string, changes int, min_seq string, max_seq string, cell binary"
)
STREAM = StreamId("test", "11111111-2222-3333-4444-555555555555")


def cell_row(kind: str, batch: ChangeBatch) -> tuple[str, str, str, int, str, str, bytes]:
    seqs = batch.origin.column("seq").to_pylist()
    table = batch.table
    return (
        str(table.id),
        table.fingerprint,
        kind,
        len(batch),
        min(seqs),
        max(seqs),
        encode_cell(batch).to_pybytes(),
    )


def cell_batch(
    spark: SparkSession,
    batch_id: int,
    cells: Iterable[tuple[str, ChangeBatch]],
    stream: StreamId = STREAM,
) -> CellBatch:
    frame = spark.createDataFrame([cell_row(kind, batch) for kind, batch in cells], CELL_SCHEMA)
    return CellBatch(stream, batch_id, frame, {"v": 1, "log": {"file": "binlog.000001", "pos": batch_id}})
