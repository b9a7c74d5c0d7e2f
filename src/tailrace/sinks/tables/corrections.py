"""What a change log lacks after its table was read again, so that it adds up to the table.

A table that is read again (`model.reread`) brings all of its rows, most of which the change log has. They are
set aside until the reading ends. Then, by key:

    change log ────────────────────▶ the row as the log tells it          ┐
    change log + rows set aside ───▶ the row as the table has it, if seen ┘──▶ equal: nothing
                                                                               another row: `r` with that row
                                                                               not seen: `d` with the old row,
                                                                               or `u`, if it is to be marked

A row read as of P(m) sorts behind the changes up to P(m) and before all later ones, so changes that came
while the table was read are taken into account. The corrections of a reading sort behind everything that the
change log has, and before everything that comes later: their `_seq` is the greatest there is, and a digit.

One aggregation by key over the change log, in Spark, which spills to disk: memory is bounded, and the cost is
one scan of the change log for each reading, however many batches the reading takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from tailrace.model.change import OP_DELETE, OP_LETTERS, OP_REREAD, OP_UPDATE, SEQ_DIGITS
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.sparksql import identifier
from tailrace.sinks.tables.rows import log_fields
from tailrace.spark.cells import spark_schema

#: Where a row comes from, in the order in which rows with one `_seq` count.
_HELD, _READ, _SEEN = range(3)
_DELETED = OP_LETTERS[OP_DELETE]
#: Columns of the aggregation beside the key: no source's column has such a name.
_OLD, _NEW, _FROM = "_tailrace_old", "_tailrace_new", "_tailrace_from"


def corrections(
    held: DataFrame,
    read: DataFrame,
    seen: DataFrame,
    columns: pa.Schema,
    *,
    key: Sequence[str],
    ts_ms: int,
    marks: SoftDelete | None = None,
) -> DataFrame:
    """The rows to append to a change log, with the columns `log_fields(columns)`.

    Args:
        held: the change log's rows of the table.
        read: the rows that the reading has brought, as rows of the change log.
        seen: the keys (columns `key`) that changes of the log have left since the reading began.
        columns: the source's columns.
        key: the key's columns.
        ts_ms: the time of deletions, milliseconds since 1970 UTC; 0: unknown.
        marks: how rows are marked that were not seen; None: they are deleted.
    """
    names = [*columns.names, "_op", "_seq", "_ts_ms", "_position", "_absent"]
    last = held.select("_seq").unionByName(read.select("_seq")).agg(f.max("_seq")).collect()[0][0]
    lacking = _lacking(held)
    rows = (
        held.select(*map(_column, names), f.lit(_HELD).alias(_FROM))
        .unionByName(read.select(*map(_column, names), f.lit(_READ).alias(_FROM)))
        .unionByName(seen.select(*map(_column, key), f.lit(_SEEN).alias(_FROM)), allowMissingColumns=True)
    )
    found = rows.groupBy(*map(_column, key)).agg(
        f.max(_FROM).alias(_FROM),
        *_last(_OLD, rows, lacking, f.col(_FROM) == _HELD),
        *_last(_NEW, rows, lacking, f.col(_FROM) != _SEEN),
    )
    old, new = (_image(side, columns, lacking) for side in (_OLD, _NEW))
    is_seen, was_there = f.col(_FROM) != _HELD, _is_there(_OLD)
    is_there = is_seen & _is_there(_NEW)
    differs = f.lit(False)
    for field, a, b in zip(columns, old, new, strict=True):
        differs |= ~_comparable(a, field).eqNullSafe(_comparable(b, field))
    op = f.when(is_there & (~was_there | differs), f.lit(OP_LETTERS[OP_REREAD]))
    is_gone = ~is_seen & was_there
    if marks is None:
        op = op.when(is_gone, f.lit(_DELETED))
    else:
        # as a soft delete makes an update of a delete
        op = op.when(is_gone & _is_unmarked(marks, columns, old), f.lit(OP_LETTERS[OP_UPDATE]))
        marked = zip(columns, old, strict=True)
        old = [
            f.lit(marks.gone[c.name]).cast(_spark_type(c)) if c.name in marks.gone else a for c, a in marked
        ]
    found = found.withColumn("_op", op).where(f.col("_op").isNotNull())
    deleted = f.col("_op") != OP_LETTERS[OP_REREAD]
    values: dict[str, Column] = {
        field.name: f.when(deleted, a).otherwise(b) for field, a, b in zip(columns, old, new, strict=True)
    }
    values["_op"] = f.col("_op")
    values["_seq"] = f.lit(None if last is None else f"{last}0")
    values["_ts_ms"] = f.when(deleted, f.lit(ts_ms or None)).otherwise(f.col(f"{_NEW}._ts_ms"))
    values["_position"] = f.when(~deleted, f.col(f"{_NEW}._position"))
    schema = spark_schema(log_fields(columns))
    return found.select(*(values.get(c.name, f.lit(None)).cast(c.dataType).alias(c.name) for c in schema))


def _is_unmarked(marks: SoftDelete, columns: pa.Schema, old: Sequence[Column]) -> Column:
    """Whether a row is one that can be marked as deleted, and is not."""
    found = f.lit(False) if marks.of_existing else f.lit(bool(marks.gone))
    for column, value in zip(columns, old, strict=True):
        for there in marks.of_existing.get(column.name, ()):
            found |= value.eqNullSafe(f.lit(there).cast(_spark_type(column)))
    return found


def _spark_type(column: pa.Field) -> DataType:
    return spark_schema(pa.schema([column]))[0].dataType


def _lacking(held: DataFrame) -> list[str]:
    """The columns that some changes of a change log lack."""
    names = f.array_distinct(f.flatten(f.collect_set("_absent")))
    return sorted(held.where("_absent IS NOT NULL").agg(names).collect()[0][0])


def _last(side: str, rows: DataFrame, lacking: Sequence[str], counts: Column) -> list[Column]:
    """The last of the rows that count; for each column of `lacking` the last that has it."""
    # rows read as of a position sort behind the changes up to it, corrections of former readings included
    order = f.struct(f.substring("_seq", 1, SEQ_DIGITS), f.col(_FROM), f.col("_seq"))
    row = f.struct(*(_column(name) for name in rows.columns))
    found = [f.max_by(row, f.when(counts, order)).alias(side)]
    for number, name in enumerate(lacking):
        has = counts & ~f.coalesce(f.array_contains("_absent", name), f.lit(False))
        value = f.struct(_column(name).alias("value"))
        found.append(f.max_by(value, f.when(has, order)).alias(f"{side}{number}"))
    return found


def _image(side: str, columns: pa.Schema, lacking: Sequence[str]) -> list[Column]:
    """The columns of the row that `_last` has found."""
    return [
        f.col(f"{side}{lacking.index(name)}.value")
        if name in lacking
        else f.col(f"{side}.{identifier(name)}")
        for name in columns.names
    ]


def _is_there(side: str) -> Column:
    """Whether the row that `_last` has found exists."""
    return f.coalesce(f.col(f"{side}._op") != _DELETED, f.lit(False))


def _comparable(value: Column, field: pa.Field) -> Column:
    """Values that are equal only if they are the same: for Spark -0.0 equals 0.0."""
    return value.cast("string") if pa.types.is_floating(field.type) else value


def _column(name: str) -> Column:
    """The column called `name`, whatever is in the name."""
    return f.col(identifier(name))
