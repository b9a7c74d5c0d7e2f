"""The order of changes within their transactions, for the envelope's `transaction` block: counted by Spark.

The changes of a transaction are in several cells, at least one for each table, and only `seq` gives their
order in the log. So all of them are sorted once:

    cells ──tasks──► each change's cell, row, `txn`, `seq` ──by txn──► its order ──by cell──► cells with it

This costs a shuffle of some 100 bytes per change, and is done only if the setting requires it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import LOG, TRANSACTION_ORDER, ChangeBatch
from tailrace.sinks.kafka.skipped import SkippedOperations
from tailrace.sinks.kafka.truncations import places
from tailrace.spark.cells import changes_of, spark_schema
from tailrace.spark.jvm import map_in_arrow

#: A change: its table, the `min_seq` of its cell, its row in the cell.
_CHANGES = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("min_seq", pa.string()),
        pa.field("row", pa.int32()),
        pa.field("txn", pa.string()),
        pa.field("seq", pa.string()),
    ]
)
_ORDERED = pa.schema([pa.field("min_seq", pa.string()), pa.field("cell", pa.binary())])
_ROWS_PER_BATCH = 8192


def with_order(cells: DataFrame, skipped: SkippedOperations) -> DataFrame:
    """Columns `min_seq` and `cell` of a batch's cells; log cells get the order of their changes.

    Changes that are left out are not counted, as by Debezium.
    """

    def listed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _listed(batches, skipped)

    log = cells.where(f.col("kind") == LOG).select("cell")
    in_transaction = Window.partitionBy("txn").orderBy("seq")
    in_table = Window.partitionBy("txn", "table").orderBy("seq")
    orders = map_in_arrow(log, listed, spark_schema(_CHANGES)).select(
        "table",
        "min_seq",
        f.struct(
            "row",
            f.row_number().over(in_transaction).cast("long").alias("total"),
            f.row_number().over(in_table).cast("long").alias("own"),
        ).alias("order"),
    )
    of_cell = orders.groupBy("table", "min_seq").agg(f.sort_array(f.collect_list("order")).alias("orders"))
    joined = cells.join(of_cell, ["table", "min_seq"], "left").select("min_seq", "cell", "orders")
    return map_in_arrow(joined, _ordered, spark_schema(_ORDERED))


def _listed(batches: Iterator[pa.RecordBatch], skipped: SkippedOperations) -> Iterator[pa.RecordBatch]:
    for batch in changes_of(batches):
        txn, seq = batch.origin.column("txn").dictionary_decode(), batch.origin.column("seq")
        rows = pa.array(np.arange(len(batch), dtype=np.int32))
        first = pc.min(seq).as_py()
        cell = [pa.repeat(pa.scalar(value), len(batch)) for value in (str(batch.table.id), first)]
        counted = pc.and_(txn.is_valid(), pa.array(skipped.counted(batch)))
        if skipped.has_truncates:
            seq = pa.array(places(batch, skipped.connector), pa.string())
        made = pa.RecordBatch.from_arrays([*cell, rows, txn, seq], schema=_CHANGES).filter(counted)
        for start in range(0, made.num_rows, _ROWS_PER_BATCH):
            yield made.slice(start, _ROWS_PER_BATCH)


def _ordered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for seq, cell, orders in zip(*batch.columns, strict=True):
            data = cell.as_buffer()
            if orders.is_valid:
                data = encode_cell(ordered(decode_cell(data), orders.values))
            ends = pa.py_buffer(np.array([0, data.size], np.int32))
            one = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
            yield pa.RecordBatch.from_arrays([pa.array([seq.as_py()]), one], schema=_ORDERED)


def ordered(batch: ChangeBatch, orders: pa.StructArray) -> ChangeBatch:
    """`batch` with the order of those of its changes that belong to a transaction.

    Args:
        batch: changes of one table.
        orders: structs of a row's number, and its number in the transaction and in the table; sorted.
    """
    rows, total, own = orders.flatten()
    known = np.zeros(len(batch), bool)
    known[rows.to_numpy()] = True
    at = pa.array(np.cumsum(known) - 1, mask=~known)
    fields = [numbers.take(at) for numbers in (total, own)]
    return replace(
        batch, order=pa.StructArray.from_arrays(fields, fields=list(TRANSACTION_ORDER), mask=pa.array(~known))
    )
