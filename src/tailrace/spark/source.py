"""`format("tailrace")`: the engine seen through Spark's Python data source API.

Spark calls `latestOffset` and `partitions` in one long-lived process beside the driver, and `read` in tasks
to which the reader is pickled: so constructors hold plain options only, and what has threads or connections
is made on first use. Spark asks for `initialOffset` more than once, so it is a constant; offsets are compared
as JSON text. Measured behaviour of the API: `shared/reference/spark.md` §3.
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
        """The schema of the rows in the shape asked for."""
        return from_arrow_schema(self._shape().schema, prefer_timestamp_ntz=True)

    def streamReader(self, schema: StructType) -> TailraceStreamReader:  # noqa: ARG002, N802
        """The reader of the stream."""
        return TailraceStreamReader(self._options(), self._shape())

    def _options(self) -> SourceOptions:
        return parse_options(dict(self.options))

    def _shape(self) -> RowLayout:
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
            )
        return row_layout(options, tables[0].schema)


class TailraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, reads splits in tasks.

    Args:
        options: the stream's options.
        shape: how changes become rows.
    """

    def __init__(self, options: SourceOptions, shape: RowLayout) -> None:
        self._options = options
        self._shape = shape
        self._enumerator: Enumerator | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What a secret refers to is there on the driver; tasks on other machines get the secret itself.
        secret = self._options.password.resolved()
        return {**self.__dict__, "_enumerator": None, "_options": replace(self._options, password=secret)}

    # ---- driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The constant before the first batch."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger` if it is set, else `maxBytesPerTrigger`; both hold in `latestOffset`."""
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read nothing committed after now."""
        self._plan().hold()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` itself when there is nothing to read."""
        before = StreamOffset.from_json(start)
        end = self._plan().latest(before, self._limits(limit))
        if end is before:
            return start
        failpoint("offset.planned")
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where a stream without lag would be: Spark's progress shows it beside the end offset."""
        head = self._plan().head()
        return None if head.is_new else head.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a batch; from the two offsets alone."""
        if start == end:
            return []
        splits = self._plan().splits(StreamOffset.from_json(start), StreamOffset.from_json(end))
        failpoint("batch.planned")
        return [SplitPartition(split) for split in splits]

    def commit(self, end: dict[str, Any]) -> None:
        """All up to `end` is in the sink. Spark says so one batch late; the next plan has told by then."""
        if self._enumerator is not None:
            self._enumerator.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Drop the driver's connections."""
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
            for rows in self._shape.rows(changes):
                yield rows
                failpoint(point)
        finally:
            session.close()

    # ---- inside ----

    def _plan(self) -> Enumerator:
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
