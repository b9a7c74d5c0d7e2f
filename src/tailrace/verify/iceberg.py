"""The target side of Iceberg: a table as a batch left it, by the driver; a change log in Spark's tasks.

Each commit of the sink names its batch in the snapshot's summary (`sinks.iceberg`). The table after batch n
is the snapshot right before the first one of a later batch, or the newest: so changes that others make, and
compactions, are included. It stays the same while the pipeline keeps writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.errors import StateError
from tailrace.model.table import TableSchema
from tailrace.sinks.iceberg.catalog import answered, open_catalog
from tailrace.sinks.iceberg.columns import held_columns, without_ids
from tailrace.sinks.iceberg.names import former_identifier, identifier
from tailrace.sinks.iceberg.sink import BATCH
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import spark_schema
from tailrace.spark.checkpoint import absolute, is_local
from tailrace.spark.jvm import map_in_arrow
from tailrace.verify.checksum import Checksums, Shards, rows_in
from tailrace.verify.portion import KeyRanges, limited
from tailrace.verify.target import CHANGELOG_FIELDS, OLD_ROW, DeltaTableVersion, collapse


@dataclass(frozen=True)
class IcebergTableVersion:
    """An Iceberg table at one snapshot.

    Args:
        table: the table.
        snapshot: the snapshot; None: the table has had no rows yet.
        shards: the rows that count; None: all.
    """

    table: Table
    snapshot: Snapshot | None
    shards: Shards | None = None

    @property
    def version(self) -> int:
        """See ComparedTarget: the snapshot's sequence number."""
        return 0 if self.snapshot is None else self.snapshot.sequence_number or 0

    @cached_property
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""
        schema = self.table.schema()
        if self.snapshot is not None and self.snapshot.schema_id is not None:
            schema = self.table.schemas()[self.snapshot.schema_id]
        return without_ids(held_columns(schema))

    def checksums(self, names: Sequence[str], key: Sequence[str], only: KeyRanges | None = None) -> Checksums:
        """See ComparedTarget."""
        return Checksums.of(limited(self._batches(names), only), key)

    def rows(
        self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray, only: KeyRanges | None = None
    ) -> pa.Table:
        """See ComparedTarget."""
        kept = [rows_in(rows, key, buckets) for rows in limited(self._batches(names), only)]
        return pa.Table.from_batches(kept, self._select(names))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.snapshot is None:
            return
        scan = self.table.scan(selected_fields=tuple(names), snapshot_id=self.snapshot.snapshot_id)
        schema = self._select(names)
        for rows in scan.to_arrow_batch_reader():
            columns = [rows.column(field.name).cast(field.type) for field in schema]
            found = pa.RecordBatch.from_arrays(columns, schema=schema)
            yield found if self.shards is None else self.shards.of(found)

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


def change_log(spark: SparkSession, log: IcebergTableVersion, key: Sequence[str]) -> DeltaTableVersion:
    """What a change log adds up to: the newest change of each key, without deletes.

    The log is read in Spark's tasks, a file each, by pyiceberg: it resolves columns that were renamed.
    """
    assert log.snapshot is not None
    schema = pa.schema([field for field in log.columns if field.name not in OLD_ROW])
    scan = log.table.scan(selected_fields=tuple(schema.names), snapshot_id=log.snapshot.snapshot_id)
    files = list(scan.plan_files())
    reader = ArrowScan(log.table.metadata, log.table.io, scan.projection(), AlwaysTrue())

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in reader.to_record_batches([files[number]]):
                    columns = [rows.column(field.name).cast(field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    numbers = spark.range(len(files)).repartition(max(1, len(files)))
    frame = collapse(map_in_arrow(numbers, read, spark_schema(schema)), key)
    held = arrow_schema(frame.schema)
    columns = pa.schema([field for field in held if field.name not in CHANGELOG_FIELDS])
    return DeltaTableVersion(frame, log.version, columns)


class IcebergTargets:
    """The Iceberg tables of a sink after a batch.

    Args:
        settings: the sink's settings.
        batch: number of a committed batch.
        spark: a session, for change logs.
    """

    def __init__(self, settings: IcebergSettings, batch: int, spark: SparkSession | None = None) -> None:
        root = absolute(settings.path)
        self._catalog: Catalog = open_catalog(settings, f"file://{root}" if is_local(root) else root)
        self._batch = batch
        self._spark = spark
        self._settings = settings
        self._mode = settings.mode

    def target(
        self, name: str, table: TableSchema, shards: Shards | None
    ) -> IcebergTableVersion | DeltaTableVersion | None:
        """See ComparedTargets.

        Raises:
            StateError: the table no longer has that snapshot.
        """
        for names in dict.fromkeys((identifier(name), former_identifier(name))):
            try:
                with answered(self._settings):
                    found = None if names is None else self._catalog.load_table(names)
            except NoSuchTableError:
                continue
            if found is not None:
                held = IcebergTableVersion(found, self._after(name, found), shards)
                if self._mode is WriteMode.UPSERT or held.snapshot is None:
                    return held
                assert self._spark is not None
                key = table.key if shards is None else (*table.key, shards.column)
                rows = change_log(self._spark, held, key)
                return rows if shards is None else rows.only(shards)
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
