"""Finds the changes of a batch that its targets refuse, row by row, and takes them out of its cells.

What a table may refuse in a change is data: `RowRules`. There are two kinds of rules:

    whole    the row must have all of its columns: the log left some out (PostgreSQL: unchanged TOAST values;
             MySQL: partial row images), and the target has no old row that has them
    checks   conditions that the user has given the table (Delta: ALTER TABLE ... ADD CONSTRAINT ... CHECK)

Whether a change is refused depends on it and the rules alone, not on where batches are cut: each change is
checked, also one that a later change of the same batch replaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.errors import concerning
from tailrace.formats.row import to_rows
from tailrace.model.cell import CELL_SCHEMA, cell_row, decode_cell
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_LETTERS, ChangeBatch
from tailrace.model.moments import rows_to_python
from tailrace.sinks.quarantine import QuarantinedRow, violation_reason
from tailrace.sinks.tables.rows import lacks_columns
from tailrace.spark.cells import Unpack, spark_schema
from tailrace.spark.jvm import map_in_arrow

_CELL, _ROW, _FAILED = "_tailrace_cell", "_tailrace_row", "_tailrace_failed"
_REMEDY = "correct the row at the source, or drop the constraint, then: tailrace resync PIPELINE.YAML TABLE"


class Whole(Enum):
    """Which rows must have all of their columns."""

    NONE = "none"
    #: New rows, and those with a new key: an old row has the columns of all others.
    NEW = "new"
    #: All but deleted ones: each is a version of its own.
    ALL = "all"


@dataclass(frozen=True)
class Checks:
    """The conditions of a table.

    Args:
        conditions: SQL conditions, by name. One that is false or null is violated.
        unpack: makes a row of each change, in their order.
        fields: the rows' columns.
        merges: whether the rows are merged: then deletes put no row into the table, and Delta itself checks
            rows that lack columns, once it has composed them.
    """

    conditions: Mapping[str, str]
    unpack: Unpack
    fields: pa.Schema
    merges: bool


@dataclass(frozen=True)
class RowRules:
    """What a target demands of the rows of one table.

    Args:
        target: the target's name.
        whole: which rows must have all of their columns.
        checks: what rows must fulfil; None: nothing.
    """

    target: str
    whole: Whole
    checks: Checks | None = None


@dataclass(frozen=True)
class _Refusals:
    """What is refused, as tasks know it.

    Args:
        rules: by table.
        violated: by the digest of a cell: the numbers of its rows that violate a condition, and which.
        batch: the batch's number.
    """

    rules: Mapping[str, RowRules]
    violated: Mapping[bytes, Mapping[int, str]]
    batch: int

    def split(self, cell: pa.Buffer) -> tuple[ChangeBatch, np.ndarray, Mapping[int, str]]:
        """The changes of a cell; which of them are refused; the conditions that rows violate."""
        changes = decode_cell(cell)
        violated = self.violated.get(_digest(cell), {}) if self.violated else {}
        refused = lacking(changes, self.rules[str(changes.table.id)].whole)
        refused[list(violated)] = True
        return changes, refused, violated


@dataclass(frozen=True)
class Screened:
    """A batch's refused rows, and its cells without them.

    Args:
        counts: number of refused rows by table.
        entries: gives the rows, to be put into quarantine.
        cells: the cells without these rows.
    """

    counts: Mapping[str, int]
    entries: Callable[[], Sequence[QuarantinedRow]] = field(repr=False)
    cells: DataFrame = field(repr=False)


def screen(frame: DataFrame, rules: Mapping[str, RowRules], batch: int) -> Screened:
    """Find the changes that are refused.

    Args:
        frame: the batch's cells, with all of their columns; read several times.
        rules: what targets demand, by table.
        batch: the batch's number.
    """
    violated: dict[bytes, dict[int, str]] = {}
    for table, of_table in rules.items():
        if of_table.checks is not None:
            cells = frame.where(f.col("table") == table).select("cell")
            for found in violations(cells, of_table.checks).collect():
                violated.setdefault(bytes(found[_CELL]), {})[found[_ROW]] = found[_FAILED]
    refusals = _Refusals(rules, violated, batch)
    ours = frame.where(f.col("table").isin(sorted(rules))).select("cell")
    entries = map_in_arrow(ours, lambda batches: _entries(batches, refusals), "table string, entry string")
    counts = {row["table"]: row["count"] for row in entries.groupBy("table").count().collect()}
    return Screened(
        counts,
        lambda: [QuarantinedRow.from_json(row["entry"]) for row in entries.collect()],
        map_in_arrow(
            frame.select(*CELL_SCHEMA.names),
            lambda batches: _kept(batches, refusals, counts),
            spark_schema(CELL_SCHEMA),
        ),
    )


def violations(cells: DataFrame, checks: Checks) -> DataFrame:
    """The rows of `cells` (one column `cell`) that violate a condition.

    Returns:
        The digest of the cell, the row's number in it, and the name of the first condition violated.
    """
    fields = [*checks.fields, pa.field(_CELL, pa.binary()), pa.field(_ROW, pa.int32())]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cell in (cell.as_buffer() for batch in batches for cell in batch.column(0)):
            changes = decode_cell(cell)
            with concerning(changes.table.id, sink=True):
                yield _to_check(changes, _digest(cell), checks, pa.schema(fields))

    rows = map_in_arrow(cells, run, spark_schema(pa.schema(fields)))
    failed = f.coalesce(
        *(
            f.when(~f.coalesce(f.expr(f"({condition})"), f.lit(False)), f.lit(name))
            for name, condition in checks.conditions.items()
        )
    )
    return rows.select(_CELL, _ROW, failed.alias(_FAILED)).where(f.col(_FAILED).isNotNull())


def lacking(changes: ChangeBatch, whole: Whole) -> np.ndarray:
    """Which changes lack columns that they must have."""
    if whole is Whole.NONE or not changes.absent_after:
        return np.zeros(len(changes), bool)
    op = np.asarray(changes.op)
    return np.asarray(op == OP_CREATE if whole is Whole.NEW else op != OP_DELETE)


def _to_check(changes: ChangeBatch, digest: bytes, checks: Checks, schema: pa.Schema) -> pa.RecordBatch:
    rows = checks.unpack(changes)
    numbers = np.arange(len(changes), dtype=np.int32)
    if checks.merges:
        checked = np.asarray(changes.op) != OP_DELETE
        numbers = numbers[checked & (not changes.absent_after)]
    rows = rows.take(pa.array(numbers))
    arrays = [*rows.columns, pa.repeat(pa.scalar(digest, pa.binary()), len(numbers)), pa.array(numbers)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _entries(batches: Iterable[pa.RecordBatch], refusals: _Refusals) -> Iterator[pa.RecordBatch]:
    """The refused rows of cells: their table, and a QuarantinedRow as JSON."""
    for cell in (cell.as_buffer() for batch in batches for cell in batch.column(0)):
        changes, refused, violated = refusals.split(cell)
        if refused.any():
            table = str(changes.table.id)
            rows = [
                entry.to_json() for entry in _described(changes, np.flatnonzero(refused), violated, refusals)
            ]
            yield pa.RecordBatch.from_pydict({"table": [table] * len(rows), "entry": rows})


def _described(
    changes: ChangeBatch, refused: np.ndarray, violated: Mapping[int, str], refusals: _Refusals
) -> Iterator[QuarantinedRow]:
    table = str(changes.table.id)
    target = refusals.rules[table].target
    taken = changes.take(pa.array(refused))
    images = rows_to_python(to_rows(taken).select(changes.table.arrow.names))
    origins = taken.origin.select(["file", "pos"]).to_pylist()
    lacks = lacks_columns(changes)
    for number, image, origin, op in zip(
        refused.tolist(), images, origins, taken.op.to_pylist(), strict=True
    ):
        known = {name: value for name, value in image.items() if name not in changes.absent_after}
        check = violated.get(number)
        reason, remedy, code = f"{lacks.message}: {lacks.detail}", lacks.hint, lacks.code
        if check is not None:
            reason, remedy, code = violation_reason(check), _REMEDY.replace("TABLE", table), "TR-7006"
        yield QuarantinedRow(
            table,
            target,
            refusals.batch,
            OP_LETTERS[op],
            f"{origin['file']}:{origin['pos']}",
            code,
            reason,
            remedy,
            {name: known.get(name) for name in changes.table.key},
            known,
        )


def _kept(
    batches: Iterable[pa.RecordBatch], refusals: _Refusals, tables: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of CELL_SCHEMA without the refused changes."""
    for batch in batches:
        for number, table in enumerate(batch.column("table").to_pylist()):
            if table not in tables:
                yield batch.slice(number, 1)
                continue
            changes, refused, _ = refusals.split(batch.column("cell")[number].as_buffer())
            if not refused.any():
                yield batch.slice(number, 1)
            elif not refused.all():
                yield cell_row(_without(changes, refused))


def _without(changes: ChangeBatch, refused: np.ndarray) -> ChangeBatch:
    kept = changes.take(pa.array(np.flatnonzero(~refused)))
    if changes.absent_after and (np.asarray(kept.op) == OP_DELETE).all():
        return replace(kept, absent_after=())  # no row is left that lacks anything
    return kept


def _digest(cell: Any) -> bytes:
    return hashlib.sha256(cell).digest()
