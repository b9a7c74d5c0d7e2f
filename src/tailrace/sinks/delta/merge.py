"""Merges changes into a table with Spark's MERGE: rows, or versions of rows.

Where tasks reach a table's files and it may have deletion vectors, they do the same (`upsert`, `versions`).

**upsert**: the last change of each key counts. Deletes delete, other changes update or insert. A column that
the log left out of an update (PostgreSQL: unchanged TOAST values) has the value of the last change that has
it; if no change has it, the target's row keeps its value. An update that lacks columns, of a row that the
target lacks, is skipped: the row is deleted later (a snapshot that was read again lacks it).

**scd2**: every change of a key ends a version and, unless it is a delete, begins one:

    changes of a key      c(t1)        u(t2)        d(t3)          c(t5)
    versions              [t1, t2)     [t2, t3)                    [t5, ...)

So a version ends at the time of the next change, and the first change closes the table's current version.
That is one MERGE: its source has a row per key that closes a version, and a row per version to be inserted,
which matches nothing. Times are the source's commit times; `_seq` orders changes with the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tailrace.config.sinks import WriteMode
from tailrace.model.change import OP_DELETE, OP_REREAD
from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.transaction import CommitMark

_VIEW = "tailrace_changes"


def merge(
    table: DeltaTable,
    mode: WriteMode,
    changes: DataFrame,
    columns: pa.Schema,
    *,
    key: Sequence[str],
    mark: CommitMark,
) -> None:
    """Merge changes into a table, unless it has a commit with `mark`.

    Args:
        table: the target.
        mode: UPSERT or SCD2.
        changes: rows with the columns and UPSERT_FIELDS or CHANGE_FIELDS, in any order.
        columns: the source's columns.
        key: the key's columns.
        mark: the mark of the commit.
    """
    on = " AND ".join(f"t.{identifier(k)} = s.{identifier(k)}" for k in key)
    on += _bounds(changes, columns.field(key[0]))
    if mode is WriteMode.UPSERT:
        lacking = lacking_in(changes)
        source, actions = last_of_each_key(changes, key, lacking), _upsert(columns.names, on, lacking)
    else:
        new = _without_repeats(changes, table.read(), columns.names, key)
        source, actions = _closing_and_opening(new, key), _versions(columns.names, on)
    source.createOrReplaceTempView(_VIEW)
    with table.marked(mark):
        table.session.sql(f"MERGE INTO {table.sql} AS t USING {_VIEW} AS s {actions}")


def lacking_in(changes: DataFrame) -> list[str]:
    """The columns that some of the changes lack."""
    names = f.array_distinct(f.flatten(f.collect_set("_absent")))
    return sorted(changes.where("_absent IS NOT NULL").agg(names).collect()[0][0])


def last_of_each_key(changes: DataFrame, key: Sequence[str], lacking: Sequence[str] = ()) -> DataFrame:
    """The last change of each key.

    A column of `lacking` has the value of the last change that has it; `_lacks` holds the numbers, in
    `lacking`, of the columns that no change has.
    """
    row = f.struct(*(column(name) for name in changes.columns if name not in (*lacking, "_absent")))
    known = [
        f.max_by(f.struct(column(name).alias("value")), f.when(~_in_absent(name), f.col("_seq")))
        for name in lacking
    ]
    last = changes.groupBy(*(column(name) for name in key)).agg(
        f.max_by(row, "_seq").alias("_last"),
        *(value.alias(f"_tailrace_known{i}") for i, value in enumerate(known)),
    )
    values = [f.col(f"_tailrace_known{i}.value").alias(name) for i, name in enumerate(lacking)]
    lacks = [f.when(f.col(f"_tailrace_known{i}").isNull(), f.lit(i)) for i in range(len(lacking))]
    return last.select(
        "_last.*", *values, f.array_compact(f.array(*lacks)).cast("array<int>").alias("_lacks")
    )


def _in_absent(name: str) -> Column:
    """Whether a row lacks a column."""
    return f.coalesce(f.array_contains("_absent", name), f.lit(False))


def column(name: str) -> Column:
    """The column called `name`, whatever is in the name."""
    return f.col(identifier(name))


def _upsert(columns: Sequence[str], on: str, lacking: Sequence[str]) -> str:
    names = [identifier(name) for name in columns]
    values = {name: f"s.{name}" for name in names}
    for number, name in enumerate(map(identifier, lacking)):
        values[name] = f"if(array_contains(s._lacks, {number}), t.{name}, s.{name})"
    sets = ", ".join(f"t.{name} = {value}" for name, value in values.items())
    return (
        f"ON {on}"
        f" WHEN MATCHED AND s._op = {OP_DELETE} THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {sets}"
        f" WHEN NOT MATCHED AND s._op <> {OP_DELETE} AND size(s._lacks) = 0 THEN INSERT ({', '.join(names)})"
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


def _without_repeats(
    changes: DataFrame, rows: DataFrame, columns: Sequence[str], key: Sequence[str]
) -> DataFrame:
    """`changes` without rows that were read again and equal the version before them.

    Args:
        changes: the changes.
        rows: the target's rows.
        columns: the source's columns.
        key: the key's columns.
    """
    if changes.where(f.col("_op") == OP_REREAD).isEmpty():
        return changes
    values = f.struct(*(column(name) for name in columns))
    held = rows.where("_is_current").select(
        values.alias("_tailrace_held"),
        *(column(name).alias(f"_tailrace_key{i}") for i, name in enumerate(key)),
    )
    same = [changes[identifier(name)].eqNullSafe(held[f"_tailrace_key{i}"]) for i, name in enumerate(key)]
    of_key = Window.partitionBy(*(column(name) for name in key)).orderBy("_seq")
    known = changes.join(held, same, "left").select(
        *(column(name) for name in changes.columns),
        "_tailrace_held",
        f.lag(f.struct(f.col("_op").alias("op"), values.alias("row")))
        .over(of_key)
        .alias("_tailrace_earlier"),
    )
    before = f.when(f.col("_tailrace_earlier").isNull(), f.col("_tailrace_held")).when(
        f.col("_tailrace_earlier.op") != OP_DELETE, f.col("_tailrace_earlier.row")
    )
    repeats = (f.col("_op") == OP_REREAD) & before.isNotNull() & before.eqNullSafe(values)
    return known.where(~repeats).select(*(column(name) for name in changes.columns))


def _closing_and_opening(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    of_key = Window.partitionBy(*(column(name) for name in key)).orderBy("_seq")
    ordered = changes.select(
        "*",
        f.lead("_ts").over(of_key).alias("_until"),
        f.lead("_seq").over(of_key).alias("_until_seq"),
        f.row_number().over(of_key).alias("_number"),
    )
    # Each change becomes one or two rows, without being read twice.
    roles = (
        f.when((f.col("_number") == 1) & (f.col("_op") == OP_DELETE), f.array(f.lit(True)))
        .when(f.col("_number") == 1, f.array(f.lit(True), f.lit(False)))
        .when(f.col("_op") == OP_DELETE, f.array().cast("array<boolean>"))
        .otherwise(f.array(f.lit(False)))
    )
    return ordered.withColumn("_closes", f.explode(roles)).drop("_number")


def _bounds(changes: DataFrame, field: pa.Field) -> str:
    """A condition on the first column of an integer key, by which MERGE skips files."""
    if not pa.types.is_integer(field.type):
        return ""
    low, high = changes.agg(f.min(column(field.name)), f.max(column(field.name))).collect()[0]
    name = identifier(field.name)
    return f" AND t.{name} >= {low} AND t.{name} <= {high}"
