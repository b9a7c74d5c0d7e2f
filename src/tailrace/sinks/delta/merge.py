"""Changes into a table: MERGE, for rows and for versions of rows.

**upsert**: of each key the last change counts. Deletes delete, the rest updates or inserts.

**scd2**: every change of a key is the end of a version and, but for a delete, the beginning of one:

    changes of a key      c(t1)        u(t2)        d(t3)          c(t5)
    versions              [t1, t2)     [t2, t3)                    [t5, ...)

So a version's end is the next change's time, and the first change closes the version that is current in the
table. That is one MERGE: its source has a row per key that closes and a row per version that is inserted,
which matches nothing. Times are the source's commit times; where several changes have the same one `_seq`
keeps the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tailrace.config.sinks import WriteMode
from tailrace.model.change import OP_DELETE
from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.table import DeltaTable
from tailrace.spark.jvm import Mark

_VIEW = "tailrace_changes"


def merge(
    table: DeltaTable,
    mode: WriteMode,
    changes: DataFrame,
    columns: pa.Schema,
    *,
    key: Sequence[str],
    mark: Mark,
) -> None:
    """Bring changes into a table, unless a commit with `mark` is in it.

    Args:
        table: the target.
        mode: UPSERT or SCD2.
        changes: rows of the columns and of MERGE_FIELDS or CHANGE_FIELDS, in any order.
        columns: the source's columns.
        key: those that tell rows apart.
        mark: what the commit carries.
    """
    if mode is WriteMode.UPSERT:
        statement, source = _upsert, last_of_each_key(changes, key)
    else:
        statement, source = _versions, _closing_and_opening(changes, key)
    source.createOrReplaceTempView(_VIEW)
    on = " AND ".join(f"t.{identifier(k)} = s.{identifier(k)}" for k in key)
    on += _bounds(changes, columns.field(key[0]))
    with table.marked(mark):
        table.session.sql(f"MERGE INTO {table.sql} AS t USING {_VIEW} AS s {statement(columns.names, on)}")


def last_of_each_key(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """The change of each key that comes last."""
    row = f.struct(*(column(name) for name in changes.columns))
    last = changes.groupBy(*(column(name) for name in key)).agg(f.max_by(row, "_seq").alias("_last"))
    return last.select("_last.*")


def column(name: str) -> Column:
    """The column called `name`, whatever is in the name."""
    return f.col(identifier(name))


def _upsert(columns: Sequence[str], on: str) -> str:
    names = [identifier(name) for name in columns]
    return (
        f"ON {on}"
        f" WHEN MATCHED AND s._op = {OP_DELETE} THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in names)}"
        f" WHEN NOT MATCHED AND s._op <> {OP_DELETE} THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{n}' for n in names)})"
    )


def _versions(columns: Sequence[str], on: str) -> str:
    names = [identifier(name) for name in columns]
    return (
        f"ON s._closes AND t._is_current AND {on}"
        " WHEN MATCHED THEN UPDATE SET t._valid_to = s._ts, t._is_current = false"
        f" WHEN NOT MATCHED AND NOT s._closes THEN INSERT"
        f" ({', '.join(names)}, _valid_from, _valid_to, _is_current, _seq)"
        f" VALUES ({', '.join(f's.{n}' for n in names)}, s._ts, s._until, s._until_seq IS NULL, s._seq)"
    )


def _closing_and_opening(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    of_key = Window.partitionBy(*(column(name) for name in key)).orderBy("_seq")
    ordered = changes.select(
        "*",
        f.lead("_ts").over(of_key).alias("_until"),
        f.lead("_seq").over(of_key).alias("_until_seq"),
        f.row_number().over(of_key).alias("_number"),
    )
    # Each change once or twice, without reading them twice.
    roles = (
        f.when((f.col("_number") == 1) & (f.col("_op") == OP_DELETE), f.array(f.lit(True)))
        .when(f.col("_number") == 1, f.array(f.lit(True), f.lit(False)))
        .when(f.col("_op") == OP_DELETE, f.array().cast("array<boolean>"))
        .otherwise(f.array(f.lit(False)))
    )
    return ordered.withColumn("_closes", f.explode(roles)).drop("_number")


def _bounds(changes: DataFrame, field: pa.Field) -> str:
    """A condition that keys which begin with an integer fulfil: MERGE passes over files by it."""
    if not pa.types.is_integer(field.type):
        return ""
    low, high = changes.agg(f.min(column(field.name)), f.max(column(field.name))).collect()[0]
    name = identifier(field.name)
    return f" AND t.{name} >= {low} AND t.{name} <= {high}"
