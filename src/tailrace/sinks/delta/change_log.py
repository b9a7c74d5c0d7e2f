"""Change logs whose tables are read again receive true differences only (`sinks.tables.corrections`).

    <sink>/_tailrace/read/<target>/<id>/batch=<number>    Parquet: the rows of one batch of the reading

They are replaced if the batch comes again, and deleted once the corrections are committed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.delta.seen import SeenKeys
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.transaction import CommitMark
from tailrace.sinks.paths import below
from tailrace.sinks.tables.corrections import corrections
from tailrace.sinks.tables.rows import log_fields
from tailrace.spark.cells import spark_schema
from tailrace.spark.checkpoint import Directory


@dataclass(frozen=True)
class ReadRows:
    """The rows that one reading of a table has brought.

    Args:
        root: the sink's path.
        path: the target's path below it.
        reread: the id of the reading.
    """

    root: str
    path: str
    reread: str

    @property
    def _readings(self) -> str:
        return below(f"{self.root}/_tailrace/read", self.path)

    def add(self, batch: int, rows: DataFrame) -> None:
        """Set the rows of a batch aside.

        Args:
            batch: its number.
            rows: rows of the change log.
        """
        for name in Directory(self._readings).names():
            if name != self.reread:  # of a reading that another one has replaced
                Directory(self._readings).remove_directory(name)
        rows.write.mode("overwrite").parquet(f"{self._readings}/{self.reread}/batch={batch}")

    def correct(
        self,
        table: DeltaTable,
        seen: SeenKeys,
        columns: pa.Schema,
        keys: pa.Schema,
        mark: CommitMark,
        *,
        only: str | None,
        ts_ms: int,
        marks: SoftDelete | None = None,
    ) -> None:
        """Append to the change log what it lacks, in one commit.

        Args:
            table: the change log.
            seen: the keys that the log has left since the reading began.
            columns: the source's columns.
            keys: the key's columns.
            mark: the mark of the commit.
            only: a condition on the change log's rows `t` that belong to the table; None: all do.
            ts_ms: when rows that are gone are deleted, milliseconds since 1970 UTC; 0: unknown.
            marks: how they are marked; None: they are deleted.
        """
        session, schema = table.session, spark_schema(log_fields(columns))
        held = table.read().alias("t")
        held = held if only is None else held.where(only)
        directory = f"{self._readings}/{self.reread}"
        reader = session.read.schema(schema).option("recursiveFileLookup", "true")
        has_rows = bool(Directory(directory).names())
        read = reader.parquet(directory) if has_rows else session.createDataFrame([], schema)
        left = seen.read(session, keys)
        rows = corrections(held, read, left, columns, key=keys.names, ts_ms=ts_ms, marks=marks)
        with table.marked(mark):
            rows.write.format("delta").mode("append").save(table.path)

    def forget(self) -> None:
        """Delete the rows that were set aside."""
        Directory(self._readings).remove_directory(self.reread)
