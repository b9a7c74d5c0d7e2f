"""`format("tailrace")`: the engine behind Spark's Python data source API.

Spark calls `latestOffset` and `partitions` in one long-lived process next to the driver, and `read` in tasks,
to which it pickles the reader. So constructors store plain options only; threads and connections are created
on first use. Spark calls `initialOffset` more than once, so it returns a constant. Spark compares offsets as
JSON text. Measured behaviour of the API: docs/design/0005-cells-and-the-spark-source.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.config.options import SourceOptions, parse_options
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.failpoints import failpoint
from tailrace.model.split import SnapshotSplit
from tailrace.reader.hash_partition import in_share
from tailrace.reader.log import read_log
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tailrace.spark.partition import SplitPartition
from tailrace.spark.row_layouts import RowLayout, row_layout


class TailraceDataSource(DataSource):
    """Change data capture as a streaming source. Options: `tailrace.config.options`."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace"

    def schema(self) -> StructType:
        """The schema of the rows in the selected shape."""
        return from_arrow_schema(self._layout().schema, prefer_timestamp_ntz=True)

    def streamReader(self, schema: StructType) -> TailraceStreamReader:  # noqa: ARG002, N802
        """The reader of the stream."""
        return TailraceStreamReader(self._options(), self._layout())

    def _options(self) -> SourceOptions:
        return parse_options(dict(self.options))

    def _layout(self) -> RowLayout:
        options = self._options()
        if options.shape not in ("row", "envelope"):
            return row_layout(options, None)
        with closing(registry.source(options)) as source:
            tables = source.tables()
        if len(tables) != 1:
            names = ", ".join(f"`{t.schema.id}`" for t in tables[:10]) or "none"
            raise ConfigError(
                f"shape `{options.shape}` needs exactly one table",
                f"`tables` matches {len(tables)}: {names}",
                "name one table, or use shape `debezium` for many",
                code="TR-1404",
            )
        return row_layout(options, tables[0].schema)


class TailraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, reads splits in tasks.

    Args:
        options: the stream's options.
        layout: converts changes to rows.
    """

    def __init__(self, options: SourceOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout
        self._enumerator: Enumerator | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A secret may refer to a file or variable of the driver's machine: tasks elsewhere get its value.
        secret = self._options.password.resolved()
        return {**self.__dict__, "_enumerator": None, "_options": replace(self._options, password=secret)}

    # ---- driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The constant offset before the first batch."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger` if set, else `maxBytesPerTrigger`; `latestOffset` obeys both."""
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no transaction that commits from now on."""
        self._open().hold()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is nothing to read."""
        before = StreamOffset.from_json(start)
        end = self._open().latest(before, self._limits(limit))
        if end is before:
            return start
        failpoint("offset.planned")
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The offset of a stream without lag, which Spark's progress reports next to the end offset."""
        head = self._open().head()
        return None if head.is_new else head.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a batch, planned from the two offsets alone."""
        if start == end:
            return []
        splits = self._open().splits(StreamOffset.from_json(start), StreamOffset.from_json(end))
        failpoint("batch.planned")
        return [SplitPartition(split) for split in splits]

    def commit(self, end: dict[str, Any]) -> None:
        """The sink has everything up to `end`. Spark calls this one batch late, after `latestOffset`."""
        if self._enumerator is not None:
            self._enumerator.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._enumerator is not None:
            self._enumerator.close()

    # ---- tasks ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, SplitPartition)
        split = partition.split
        session = registry.session(self._options)
        try:
            if isinstance(split, SnapshotSplit):
                exact = self._options.exactly_once
                point, changes = "snapshot.batch", read_snapshot(session.located(split), session, exact=exact)
            else:
                changes = in_share(read_log(session.located(split), session), split.share)
                point = "log.batch"
            for rows in self._layout.rows(changes):
                yield rows
                failpoint(point)
        finally:
            session.close()

    # ---- private ----

    def _open(self) -> Enumerator:
        """The enumerator, created on first use."""
        if self._enumerator is None:
            parallelism = self._options.snapshot_parallelism or os.cpu_count() or 1
            self._enumerator = Enumerator(
                self._options, registry.source(self._options), parallelism=parallelism
            )
        return self._enumerator

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        return Limits(self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger)
