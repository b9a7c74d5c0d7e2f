"""`format("tailrace")`: the engine behind Spark's Python data source API.

Spark calls `latestOffset` and `partitions` in one long-lived process next to the driver, and `read` in tasks,
to which it pickles the reader. So constructors store plain options only; threads and connections are created
on first use. Spark calls `initialOffset` more than once, so it returns a constant. Spark compares offsets as
JSON text. Measured behaviour of the API: docs/design/0005-cells-and-the-spark-source.md.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
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
from tailrace.enumerator.idle import Idle
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.failpoints import failpoint
from tailrace.sources import registry
from tailrace.sources.base import Lag
from tailrace.spark.batch import TailraceReader
from tailrace.spark.log_records import follow_settings
from tailrace.spark.partition import SplitPartition, partitions_of, read_split
from tailrace.spark.requested_schema import as_requested, schema_of
from tailrace.spark.requests import RequestDirectory
from tailrace.spark.row_layouts import RowLayout, row_layout
from tailrace.spark.same_stream import require_same, with_shape
from tailrace.spark.user_errors import in_short

#: Begins the names of a table's options when CREATE TABLE asks for its columns.
_STORED = "option."


class TailraceDataSource(DataSource):
    """Change data capture as a source of streams and of batch reads. Options: `tailrace.config.options`."""

    #: Whether the process that runs the stream compares tables with their targets (`verify.schedule`).
    compares = False

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace"

    @in_short
    def schema(self) -> StructType:
        """The schema of the rows in the selected shape."""
        return schema_of(self._stream()[1])

    @in_short
    def reader(self, schema: StructType) -> TailraceReader:
        """The reader of the tables as they are now."""
        options, layout = self._stream()
        if options.starting_position not in ("initial", "snapshot"):
            raise ConfigError(
                f"option `startingPosition` cannot be `{options.starting_position}` for `spark.read`",
                "it reads the tables as they are now",
                "leave it out, or read the log with `spark.readStream`",
                code="TR-1008",
            )
        return TailraceReader(options, as_requested(layout, schema))

    @in_short
    def streamReader(self, schema: StructType) -> TailraceStreamReader:  # noqa: N802
        """The reader of the stream."""
        follow_settings()
        options, layout = self._stream()
        return TailraceStreamReader(options, as_requested(layout, schema), compares=self.compares)

    def _options(self) -> SourceOptions:
        if any(name.startswith(_STORED) for name in self.options):
            raise ConfigError(
                "a table cannot be created with `USING tailrace`",
                "Spark 4.2 does not pass the table's options to the source when the table is read",
                "CREATE TEMPORARY VIEW ... USING tailrace OPTIONS (...) shows the rows as they are now; "
                '`spark.readStream.format("tailrace")` reads their changes',
                code="TR-1017",
            )
        return parse_options(dict(self.options))

    def _stream(self) -> tuple[SourceOptions, RowLayout]:
        """The options, of precisely one table if the shape is that of one, and the layout."""
        options = self._options()
        if options.shape not in ("row", "envelope"):
            return options, row_layout(options, None)
        with closing(registry.source(options)) as source:
            tables = source.tables()
            if not tables:
                source.require()  # names the pattern without a table, and what else is wrong
        if len(tables) != 1:
            names = ", ".join(f"`{t.schema.id}`" for t in tables[:10]) or "none"
            raise ConfigError(
                f"shape `{options.shape}` needs exactly one table",
                f"`tables` matches {len(tables)}: {names}",
                "name one table, or use shape `debezium` for many",
                code="TR-1404",
            )
        schema = tables[0].schema
        return replace(options, tables=(re.escape(str(schema.id)),)), row_layout(options, schema)


class PipelineSource(TailraceDataSource):
    """The source of pipelines, registered by name in their session.

    Spark finds `format("tailrace")` itself, and gives its tasks another PYTHONPATH than it gives functions in
    queries: with two environments there are two daemons, each with all our modules.
    """

    compares = True

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "tailrace_pipeline"


class TailraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, reads splits in tasks.

    Args:
        options: the stream's options.
        layout: converts changes to rows.
        compares: whether the process that runs the stream compares tables with their targets.
    """

    def __init__(self, options: SourceOptions, layout: RowLayout, *, compares: bool) -> None:
        self._options = options
        self._layout = layout
        self._compares = compares
        self._enumerator: Enumerator | None = None
        #: The end of the newest batch.
        self._end: StreamOffset | None = None
        self._idle = Idle()
        #: Whether the checkpoint is known to belong to this stream.
        self._is_ours = False

    def __getstate__(self) -> dict[str, Any]:
        # A secret may refer to a file or variable of the driver's machine: tasks elsewhere get its value.
        return {**self.__dict__, "_enumerator": None, "_options": self._options.resolved()}

    # ---- driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The constant offset before the first batch."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger` if set, else `maxBytesPerTrigger`; `latestOffset` obeys both."""
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    @in_short
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no transaction that commits from now on."""
        self._open().hold()

    @in_short
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is nothing to read."""
        self._require_same(start)
        before = StreamOffset.from_json(start)
        end = self._open().latest(before, self._limits(limit))
        if end is before:
            # Spark asks again after 10 ms, which costs a tenth of a core
            self._open().wait(before, self._idle.next_s())
            end = self._open().latest(before, self._limits(limit))
        self._end = end
        if end is before:
            return start
        self._idle = Idle()
        failpoint("offset.planned")
        return with_shape(end, self._options)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The offset of a stream without lag, which Spark's progress reports next to the end offset.

        With it goes the lag, because Spark takes no metrics from a Python source:
        {"ms": 40, "bytes": 512, "files": 0}; bytes is null across log files, ms if it is unknown. And the
        time up to which the stream is complete with the newest batch, `complete_us` of the enumerator, and
        how long the server keeps the log, `room` of `enumerator.log_room`; and why no rows of tables are read
        now, `held_by`, or why slowly, `slowed_by`.
        """
        head = self._open().head()
        if head.is_new:
            return None
        value = with_shape(head, self._options)
        if self._end is not None and self._end.log is not None and head.log is not None:
            type_ = registry.position_type(self._options.dialect)
            end = type_.from_json(self._end.log)
            lag = end.lag_to(type_.from_json(head.log))
            age_ms = max(time.time_ns() // 1_000_000 - end.ts_ms, 0) if end.ts_ms else None
            value["lag"] = {
                "ms": 0 if lag == Lag(0, 0) else age_ms,
                "bytes": None if lag.size is None else max(lag.size, 0),
                "files": max(lag.files, 0),
            }
        if (complete_us := self._open().complete_us) is not None:
            value["complete_us"] = complete_us
        if (room := self._open().log_room.to_json()) is not None:
            value["room"] = room
        if held_by := self._open().held_by:
            value["held_by"] = held_by
        if slowed_by := self._open().slowed_by:
            value["slowed_by"] = slowed_by
        return value

    @in_short
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a batch, planned from the two offsets alone."""
        if start == end:
            return []
        self._require_same(end)
        splits = self._open().splits(StreamOffset.from_json(start), StreamOffset.from_json(end))
        failpoint("batch.planned")
        return list(partitions_of(splits, self._parallelism))

    @in_short
    def commit(self, end: dict[str, Any]) -> None:
        """The sink has everything up to `end`. Spark calls this one batch late, after `latestOffset`."""
        if self._enumerator is not None:
            self._enumerator.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._enumerator is not None:
            self._enumerator.close()

    # ---- tasks ----

    @in_short
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, SplitPartition)
        for split in partition.splits:
            yield from read_split(split, self._options, self._layout, follows=True)

    # ---- private ----

    def _require_same(self, stored: dict[str, Any]) -> None:
        """Refuse another stream's checkpoint; all later offsets are this stream's own."""
        if not self._is_ours:
            require_same(stored, self._options)
            self._is_ours = True

    @property
    def _parallelism(self) -> int:
        """Snapshot splits that are read at the same time."""
        return self._options.snapshot_parallelism or os.cpu_count() or 1

    def _open(self) -> Enumerator:
        """The enumerator, created on first use."""
        if self._enumerator is None:
            path = self._options.requests_path
            self._enumerator = Enumerator(
                self._options,
                registry.source(self._options),
                parallelism=self._parallelism,
                requests=None if path is None else RequestDirectory(path),
                compares=self._compares,
            )
        return self._enumerator

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        return Limits(self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger)
