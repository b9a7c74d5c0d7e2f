"""The keys that a target has received while its table is read again, and the deletion of all other rows.

    <sink>/_tailrace/seen/<target>/<id>/batch=<number>    Parquet; replaced if the batch comes again

The keys are those of the rows that were read again and of the changes of the log since the reading began,
without deletes (`model.reread`). In the batch that ends the reading, one MERGE deletes the rows of all other
keys, or ends their versions, or marks them as deleted (`model.soft_delete`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tailrace.config.sinks import WriteMode
from tailrace.model.change import OP_UPDATE
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.merge import merge
from tailrace.sinks.delta.table import DeltaTable, text
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.transaction import CommitMark
from tailrace.sinks.paths import below
from tailrace.sinks.tables.rows import remaining_keys
from tailrace.sinks.tables.text_form import as_text
from tailrace.spark.cells import spark_schema, unpacked
from tailrace.spark.checkpoint import Directory

_VIEW = "tailrace_seen"


class SeenKeys:
    """The keys seen by one reading of a table.

    Args:
        root: the sink's path.
        path: the target's path below it.
        reread: the id of the reading.
    """

    def __init__(self, root: str, path: str, reread: str) -> None:
        self._readings = below(f"{root}/_tailrace/seen", path)
        self._reread = reread

    @property
    def path(self) -> str:
        """The directory of the keys."""
        return f"{self._readings}/{self._reread}"

    def add(self, batch: int, cells: Sequence[DataFrame], keys: pa.Schema) -> None:
        """Note the keys of a batch.

        Args:
            batch: its number.
            cells: the cells (one column `cell`) of the table's changes.
            keys: the key's columns.
        """
        for name in Directory(self._readings).names():
            if name != self._reread:  # of a reading that another one has replaced
                Directory(self._readings).remove_directory(name)
        for number, frame in enumerate(cells):
            rows = unpacked(frame, remaining_keys(keys), keys)
            rows.write.mode("overwrite").parquet(f"{self.path}/batch={batch}/part={number}")

    def read(self, session: SparkSession, keys: pa.Schema) -> DataFrame:
        """The noted keys, some perhaps more than once."""
        if not Directory(self.path).names():
            return session.createDataFrame([], spark_schema(keys))
        reader = session.read.schema(spark_schema(keys)).option("recursiveFileLookup", "true")
        return reader.parquet(self.path)

    def delete_others(
        self,
        table: DeltaTable,
        mode: WriteMode,
        keys: pa.Schema,
        mark: CommitMark,
        *,
        only: str | None,
        ts_ms: int,
        marks: SoftDelete | None = None,
    ) -> None:
        """Delete the rows of keys that were not seen, or end their versions; or mark them as deleted.

        Args:
            table: the target.
            mode: UPSERT or SCD2.
            keys: the key's columns.
            mark: the mark of the commit.
            only: a condition on the target's rows `t` that belong to the table; None: all do.
            ts_ms: when ended versions end, milliseconds since 1970 UTC; 0: unknown.
            marks: how the rows are marked; None: they are deleted.
        """
        if marks is not None and not marks.gone:
            return
        if marks is not None and mode is WriteMode.SCD2:
            self._mark_versions(table, keys, mark, only=only, ts_ms=ts_ms, marks=marks)
            return
        session = table.session
        self.read(session, keys).distinct().createOrReplaceTempView(_VIEW)
        on = " AND ".join(f"t.{identifier(k)} <=> s.{identifier(k)}" for k in keys.names)
        conditions = [*(["t._is_current"] if mode is WriteMode.SCD2 else []), *([only] if only else [])]
        condition = "".join(f" AND {c}" for c in conditions)
        action = "DELETE"
        if mode is WriteMode.SCD2:
            ended = f"timestamp_millis({ts_ms})" if ts_ms else "NULL"
            action = f"UPDATE SET t._valid_to = {ended}, t._is_current = false"
        if marks is not None:
            types = {c.name: c.dataType.simpleString() for c in table.read().schema}
            values = ", ".join(
                f"t.{identifier(name)} = {literal(value, types[name])}" for name, value in marks.gone.items()
            )
            condition += f" AND {of_existing(marks, types)}"
            action = f"UPDATE SET {values}"
        with table.marked(mark):
            session.sql(
                f"MERGE INTO {table.sql} AS t USING {_VIEW} AS s ON {on}"
                f" WHEN NOT MATCHED BY SOURCE{condition} THEN {action}"
            )

    def _mark_versions(
        self,
        table: DeltaTable,
        keys: pa.Schema,
        mark: CommitMark,
        *,
        only: str | None,
        ts_ms: int,
        marks: SoftDelete,
    ) -> None:
        """Begin versions that are marked as deleted, as a soft delete makes updates of deletes."""
        rows = table.read()
        types = {c.name: c.dataType.simpleString() for c in rows.schema}
        columns = TableLayout(WriteMode.SCD2).columns(table.schema())
        last = rows.agg(f.max("_seq")).collect()[0][0]
        seen = self.read(table.session, keys).distinct()
        held = rows.alias("t").where("t._is_current").where(of_existing(marks, types))
        held = held if only is None else held.where(only)
        on = [f.col(f"t.{identifier(k)}").eqNullSafe(seen[identifier(k)]) for k in keys.names]
        listed = [
            f.expr(literal(marks.gone[name], types[name])).alias(name)
            if name in marks.gone
            else f.col(identifier(name))
            for name in columns.names
        ]
        gone = held.join(seen, on, "left_anti").select(
            *listed,
            f.lit(OP_UPDATE).cast("tinyint").alias("_op"),
            f.lit(None if last is None else f"{last}0").alias("_seq"),
            f.expr(f"timestamp_millis({ts_ms or 'NULL'})").alias("_ts"),
        )
        merge(table, WriteMode.SCD2, gone, columns, key=keys.names, mark=mark)

    def forget(self) -> None:
        """Delete the noted keys."""
        Directory(self._readings).remove_directory(self._reread)


def of_existing(marks: SoftDelete, types: Mapping[str, str]) -> str:
    """The condition on the target's rows `t` that are not marked as deleted.

    Args:
        marks: the marks.
        types: the types of the target's columns, in SQL.
    """
    conditions = [
        f"t.{identifier(name)} <=> {literal(value, types[name])}"
        for name, values in marks.of_existing.items()
        for value in values
    ]
    return f"({' OR '.join(conditions)})" if conditions else "true"


def literal(value: object, type_: str) -> str:
    """A value of a type in SQL."""
    if value is None:
        return f"CAST(NULL AS {type_})"
    (shown,) = as_text(pa.array([value])).to_pylist()
    return f"CAST({text(shown)} AS {type_})"


def of_shard(column: str, table: str) -> str:
    """The condition on the rows of one of several tables that share a target."""
    return f"t.{identifier(column)} = {text(table)}"
