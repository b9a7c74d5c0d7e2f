"""The target side of Iceberg: a table as a batch left it, read in Spark's tasks by pyiceberg.

Each commit of the sink names its batch in the snapshot's summary (`sinks.iceberg`). The table after batch n
is the snapshot right before the first one of a later batch, or the newest: so changes that others make, and
compactions, are included. It stays the same while the pipeline keeps writing.

The driver reads the snapshot's manifests, and a task some data files, one after another, each in batches:
pyiceberg resolves columns that were renamed and widened, and leaves out rows that position deletes and
deletion vectors name. It does not read equality deletes.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.errors import StateError
from tailrace.model.table import TableSchema
from tailrace.sinks.iceberg.catalog import answered, open_catalog
from tailrace.sinks.iceberg.columns import held_columns, without_ids
from tailrace.sinks.iceberg.file_rows import file_rows
from tailrace.sinks.iceberg.names import former_identifier, identifier
from tailrace.sinks.iceberg.sink import BATCH
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import spark_schema
from tailrace.spark.checkpoint import absolute, is_local
from tailrace.spark.jvm import map_in_arrow
from tailrace.verify.checksum import Shards
from tailrace.verify.delta_files import balanced
from tailrace.verify.portion import KeyRanges
from tailrace.verify.target import CHANGELOG_FIELDS, OLD_ROW, TableVersion, VersionFiles, collapse


@dataclass(frozen=True)
class IcebergFiles:
    """Reads data files in tasks.

    Args:
        metadata: the table's.
        io: accesses the files, in tasks.
        schema: the snapshot's.
        shards: the rows that count; None: all.
    """

    metadata: TableMetadata
    io: FileIO
    schema: Schema
    shards: Shards | None = None

    def only(self, shards: Shards) -> IcebergFiles:
        """The same with some of the rows."""
        return replace(self, shards=shards)

    def rows(
        self,
        parts: Iterator[pa.RecordBatch],
        columns: pa.Schema,
        only: KeyRanges | None = None,  # noqa: ARG002 - not told from outside which files have them
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some files.

        Args:
            parts: scans of files, pickled.
            columns: the columns to read, with their types in the table.
            only: see `DataFiles`.
        """
        read = columns
        if self.shards is not None and self.shards.column not in read.names:
            read = read.append(pa.field(self.shards.column, pa.string()))
        reader = ArrowScan(self.metadata, self.io, self.schema.select(*read.names), AlwaysTrue())
        for batch in parts:
            for scan in batch.column(0).to_pylist():
                for rows in file_rows(reader, self.io, pickle.loads(scan)):  # noqa: S301 - of the driver
                    arrays = [rows.column(field.name).cast(field.type) for field in read]
                    found = pa.RecordBatch.from_arrays(arrays, schema=read)
                    if self.shards is not None:
                        found = self.shards.of(found)
                    yield found.select(columns.names)


def table_version(
    spark: SparkSession,
    name: str,
    table: Table,
    snapshot: Snapshot | None,
    without: Collection[str] = (),
) -> TableVersion:
    """The rows of a table at a snapshot; None: it has had no rows yet.

    Args:
        spark: a session.
        name: the target's name.
        table: the table.
        snapshot: the snapshot.
        without: columns that are not read.

    Raises:
        StateError: its files have deletes that pyiceberg does not read.
    """
    schema, tasks, number = table.schema(), list[FileScanTask](), 0
    if snapshot is not None:
        schema = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
        number = snapshot.sequence_number or 0
        try:
            tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        except ValueError as error:
            if "equality deletes" not in str(error):
                raise
            raise StateError(
                f"the Iceberg table of `{name}` cannot be compared",
                "another program has deleted rows of it by equality deletes, which pyiceberg does not read",
                "rewrite its data files, by Spark for example: CALL system.rewrite_data_files(table => ...,"
                " options => map('delete-file-threshold', '1'))",
                code="TR-8109",
            ) from None
    largest_first = sorted(tasks, key=lambda task: task.file.file_size_in_bytes, reverse=True)
    scans = balanced([(pickle.dumps(task),) for task in largest_first], spark.sparkContext.defaultParallelism)
    parts = spark.createDataFrame(scans, "scan binary")
    reader = IcebergFiles(table.metadata, table.io, schema)
    columns = without_ids(column for column in held_columns(schema) if column.name not in without)
    frame = map_in_arrow(parts, lambda batches: reader.rows(batches, columns), spark_schema(columns))
    return TableVersion(frame, number, columns, VersionFiles(reader, parts))


def change_log(log: TableVersion, key: Sequence[str]) -> TableVersion:
    """What a change log adds up to: the newest change of each key, without deletes."""
    frame = collapse(log.frame, key)
    held = arrow_schema(frame.schema)
    columns = pa.schema([field for field in held if field.name not in CHANGELOG_FIELDS])
    return TableVersion(frame, log.version, columns)


class IcebergTargets:
    """The Iceberg tables of a sink after a batch.

    Args:
        settings: the sink's settings.
        batch: number of a committed batch.
        spark: a session.
    """

    def __init__(self, settings: IcebergSettings, batch: int, spark: SparkSession) -> None:
        root = absolute(settings.path)
        self._catalog: Catalog = open_catalog(settings, f"file://{root}" if is_local(root) else root)
        self._batch = batch
        self._spark = spark
        self._settings = settings
        self._mode = settings.mode

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> TableVersion | None:
        """See ComparedTargets.

        Raises:
            StateError: the table no longer has that snapshot, or has deletes that are not read.
        """
        for names in dict.fromkeys((identifier(name), former_identifier(name))):
            try:
                with answered(self._settings):
                    found = None if names is None else self._catalog.load_table(names)
            except NoSuchTableError:
                continue
            if found is not None:
                is_log = self._mode is WriteMode.CHANGELOG
                without = OLD_ROW if is_log else ()
                held = table_version(self._spark, name, found, self._after(name, found), without)
                if is_log:
                    held = change_log(held, table.key if shards is None else (*table.key, shards.column))
                return held if shards is None else held.only(shards)
        return None

    def _after(self, name: str, table: Table) -> Snapshot | None:
        """The snapshot with the state after the batch; None: it had no rows then."""
        newest = snapshot = table.current_snapshot()
        while snapshot is not None:
            number = None if snapshot.summary is None else snapshot.summary.additional_properties.get(BATCH)
            if number is not None and int(number) <= self._batch:
                return newest
            parent = snapshot.parent_snapshot_id
            before = None if parent is None else table.snapshot_by_id(parent)
            if before is None and parent is not None:
                raise StateError(
                    f"the Iceberg table of `{name}` no longer has the snapshot that batch {self._batch} left",
                    f"snapshot {parent} has expired",
                    "run the pipeline until its next batch is committed, then verify again",
                    code="TR-8106",
                )
            if number is not None:
                newest = before
            snapshot = before
        return newest

    def release(self) -> None:
        """See ComparedTargets."""

    def close(self) -> None:
        """See ComparedTargets."""
        self._catalog.close()
