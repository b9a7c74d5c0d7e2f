"""Columns of an Iceberg table become text, in place (`sinks.tables.text_form`): one commit.

Iceberg has no promotion to text. So the columns are dropped and added again under their names, with other
ids, and all data files are written anew. Schema and files change in one commit: a reader sees the values as
they were, or as text. Older snapshots keep the former columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from tailrace.sinks.iceberg.columns import held_columns
from tailrace.sinks.iceberg.compaction import rows_of
from tailrace.sinks.iceberg.files import FileTarget, described
from tailrace.sinks.tables.text_form import rows_as_text
from tailrace.spark.jvm import map_in_arrow


def become_text(session: SparkSession, table: Table, paths: Sequence[tuple[str, ...]]) -> None:
    """Make columns text, with their values as text.

    Args:
        session: runs the tasks.
        table: the table; it has no delete files.
        paths: the columns; of a field of a struct with the struct's name before.

    Raises:
        ValueError: something in the table needs one of the columns (partitioning, a sort order).
        CommitFailedException: another writer has committed meanwhile.
    """
    files = [task.file for task in table.scan().plan_files()]
    old = held_columns(table.schema())
    with table.transaction() as transaction:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for path in paths:
                update.delete_column(path)
        # one after the other: pyiceberg looks for the place of a new column among those that stay
        with transaction.update_schema() as update:
            for path in paths:
                update.add_column(path, StringType())
        new = held_columns(transaction.table_metadata.schema())
        target = FileTarget(table.io, f"{table.location()}/data", new)
        added = _written(session, [file.file_path for file in files], old, target)
        current = table.current_snapshot()
        if current is None or not files:
            return
        # the new snapshot shows the same batch as the newest one
        held = current.summary.additional_properties if current.summary else {}
        ours = {name: value for name, value in held.items() if name.startswith("tailrace.")}
        with transaction.update_snapshot(snapshot_properties=ours).overwrite() as snapshot:
            for name in added:
                snapshot.append_data_file(described(table.io, transaction.table_metadata, name))
            for file in files:
                snapshot.delete_data_file(file)


def _written(session: SparkSession, paths: Sequence[str], old: pa.Schema, target: FileTarget) -> list[str]:
    """Write the rows of files anew, each file by a task; the paths of the new ones."""
    if not paths:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = rows_of(target.io, batch.column(0).to_pylist(), old)
            written = target.write(rows_as_text(found, target.schema) for found in rows)
            yield pa.RecordBatch.from_arrays([pa.array(written, pa.string())], ["path"])

    frame = session.createDataFrame([(path,) for path in paths], "path string").repartition(len(paths))
    return [row[0] for row in map_in_arrow(frame, run, "path string").collect()]
