"""TRUNCATE as Debezium writes it: a message without a key, `op` `t`, in the midst of its table's changes.

A batch's end offset names its TRUNCATEs (`model.schema_change`). Each becomes a cell of one change without
images, which takes part in the order within transactions and in their counts as every change does. All
changes of a truncated table go to one writer then, which writes them in the order of the log: so the message
stands between those before and after it in partition 0, where messages without a key go, and the writer's
marker makes it exactly once.

    MySQL, MariaDB   a TRUNCATE begins its batch: its `seq` sorts before all changes in it
    PostgreSQL       it stands anywhere in a transaction, and its number among the changes is not known, but
                     its LSN is: changes of one transaction are sorted by theirs

Source: debezium/debezium v3.6.1 `Envelope.truncate`, `RelationalChangeRecordEmitter`, `EventDispatcher`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from tailrace.formats.connect.source_block import POSTGRES
from tailrace.model.cell import CELL_SCHEMA, cell_row
from tailrace.model.change import OP_TRUNCATE, ORIGIN, ChangeBatch
from tailrace.model.schema_change import SchemaEvent
from tailrace.model.table import TableId, TableSchema
from tailrace.spark.cells import spark_schema

_log = logging.getLogger(__name__)
#: Digits of PostgreSQL's `seq` that are the same for all changes of a transaction.
_TRANSACTION_DIGITS = 20
_UNKNOWN = {"ts_us": 0, "txn": None, "file": "", "pos": 0, "row": 0, "server_id": 0, "thread": None}


def truncations(
    events: Iterable[SchemaEvent], left_out: frozenset[str], *, needs_columns: bool
) -> list[ChangeBatch]:
    """The TRUNCATEs of a batch as changes.

    Args:
        events: the batch's schema changes, in log order.
        left_out: parked tables.
        needs_columns: whether messages carry the table's columns: then a TRUNCATE whose table has been
            dropped since, so that nothing knows its columns, is left out with a warning.
    """
    found = []
    for event in events:
        if not is_told(event) or event.table in left_out:
            continue
        schema = event.after or event.shown
        if schema is None and needs_columns:
            _log.warning(
                "no message tells that `%s` was truncated: it was dropped since, and its columns are unknown",
                event.table,
            )
            continue
        found.append(_change(schema or TableSchema(TableId.parse(event.table), ()), event))
    return found


def is_told(event: SchemaEvent) -> bool:
    """Whether an event is a TRUNCATE with its place in the log, which offsets of earlier releases lack."""
    return event.truncates and event.origin is not None and event.seq is not None


def _change(table: TableSchema, event: SchemaEvent) -> ChangeBatch:
    row = {**_UNKNOWN, **(event.origin or {}), "seq": event.seq}
    columns = [pa.array([row[field.name]], field.type) for field in ORIGIN]
    rows = pa.RecordBatch.from_arrays(columns, schema=ORIGIN)
    return ChangeBatch(table, pa.array([OP_TRUNCATE], pa.int8()), None, None, rows)


def truncation_cells(changes: Sequence[ChangeBatch]) -> tuple[list[tuple[Any, ...]], StructType]:
    """Truncations as rows of `model.cell.CELL_SCHEMA`, and their schema in Spark."""
    rows = [tuple(column[0].as_py() for column in cell_row(change).columns) for change in changes]
    return rows, spark_schema(CELL_SCHEMA)


def places(batch: ChangeBatch, connector: str) -> list[str]:
    """Where each change stands among those of its table, and of its transaction: sorts as text."""
    seqs: list[str] = batch.origin.column("seq").to_pylist()
    if connector != POSTGRES:
        return seqs
    lsns = batch.origin.column("pos").to_pylist()
    cut = _TRANSACTION_DIGITS
    return [f"{seq[:cut]}{lsn:016x}{seq[cut:]}" for seq, lsn in zip(seqs, lsns, strict=True)]


def is_truncation(batch: ChangeBatch) -> bool:
    """Whether the batch is one of `truncations`."""
    return len(batch) == 1 and batch.op[0].as_py() == OP_TRUNCATE


def keyless(batch: ChangeBatch) -> ChangeBatch:
    """A truncation whose message has no key."""
    return replace(batch, table=replace(batch.table, key=()))


def parted(batch: ChangeBatch, at: Sequence[str], connector: str) -> list[tuple[str, ChangeBatch]]:
    """The parts of a cell between the TRUNCATEs of its table, each with its place.

    Args:
        batch: changes of one table, in log order.
        at: the places of the TRUNCATEs, sorted.
        connector: see `places`.
    """
    where = np.array(places(batch, connector))
    ends = [0, *np.searchsorted(where, np.array(at)).tolist(), len(batch)]
    return [
        (str(where[start]), batch.slice(start, end - start)) for start, end in pairwise(ends) if end > start
    ]
