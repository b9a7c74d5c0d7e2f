"""The reader of a stream behind Spark's Python data source API: plans batches on the driver, reads splits.

Spark calls the methods that plan in one long-lived process next to the driver, and `read` in tasks, to which
it pickles the reader. So constructors store plain options only; threads and connections are created on
first use. Spark calls `initialOffset` more than once, so it returns a constant. Spark compares offsets as
JSON text. Measured behaviour of the API: docs/design/0005-cells-and-the-spark-source.md.

How Spark asks for the end of the next batch differs by version: `limited_reader`, `remembering_reader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tailrace.config.options import SourceOptions
from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.idle import Idle
from tailrace.enumerator.offset import StreamOffset
from tailrace.failpoints import failpoint
from tailrace.machine import cores
from tailrace.sources import registry
from tailrace.spark.live_sample import SampleWatch, Wanted
from tailrace.spark.partition import SplitPartition, partitions_of, read_partition
from tailrace.spark.requests import RequestDirectory
from tailrace.spark.row_layouts import RowLayout
from tailrace.spark.same_stream import require_same, with_shape
from tailrace.spark.trouble import note_trouble
from tailrace.spark.unread import unread_row
from tailrace.spark.user_errors import in_short


class TailraceStreamReader(DataSourceStreamReader):
    """Plans batches on the driver, reads splits in tasks.

    Args:
        options: the stream's options.
        layout: converts changes to rows.
        compares: whether the process that runs the stream compares tables with their targets.
        leaves_unread: whether tasks yield splits in place of cells (`unread`).
    """

    def __init__(
        self, options: SourceOptions, layout: RowLayout, *, compares: bool, leaves_unread: bool = False
    ) -> None:
        self._options = options
        self._layout = layout
        self._compares = compares
        self._leaves_unread = leaves_unread
        self._enumerator: Enumerator | None = None
        #: The end of the newest batch.
        self._end: StreamOffset | None = None
        self._idle = Idle()
        self._samples: SampleWatch | None = None
        #: Whether the checkpoint is known to belong to this stream.
        self._is_ours = False

    def __getstate__(self) -> dict[str, Any]:
        # A secret may refer to a file or variable of the driver's machine: tasks elsewhere get its value.
        return {
            **self.__dict__,
            "_enumerator": None,
            "_samples": None,
            "_options": self._options.for_tasks(),
        }

    # ---- driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The constant offset before the first batch."""
        return StreamOffset().to_json()

    @in_short
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a batch, planned from the two offsets alone."""
        if start == end:
            return []
        self._require_same(end)
        splits = self._open().splits(StreamOffset.from_json(start), StreamOffset.from_json(end))
        failpoint("batch.planned")
        return list(partitions_of(splits, self._parallelism, self._wanted_sample()))

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
        """The rows of a partition."""
        assert isinstance(partition, SplitPartition)
        if self._leaves_unread:
            yield unread_row(partition, self._options)
            return
        note_trouble()
        yield from read_partition(partition, self._options, self._layout)

    # ---- private ----

    def _require_same(self, stored: dict[str, Any]) -> None:
        """Refuse another stream's checkpoint; all later offsets are this stream's own."""
        if not self._is_ours:
            require_same(stored, self._options)
            self._is_ours = True

    @property
    def _parallelism(self) -> int:
        """Snapshot splits that are read at the same time."""
        return self._options.snapshot_parallelism or cores()

    def _open(self) -> Enumerator:
        """The enumerator, created on first use."""
        if self._enumerator is None:
            note_trouble()
            path = self._options.requests_path
            self._enumerator = Enumerator(
                self._options,
                registry.source(self._options),
                parallelism=self._parallelism,
                requests=None if path is None else RequestDirectory(path),
                compares=self._compares,
            )
        return self._enumerator

    def _wanted_sample(self) -> Wanted | None:
        """What somebody looks at; it is asked for while nothing is read, too, so that samples go in time."""
        path = self._options.sample_path
        if path is None:
            return None
        if self._samples is None:
            self._samples = SampleWatch(path)
        return self._samples.wanted

    def _next(self, start: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """The end of the batch that begins at `start`; `start` itself if there is nothing to read."""
        self._require_same(start)
        self._wanted_sample()
        before = StreamOffset.from_json(start)
        end = self._open().latest(before, limits)
        if end is before:
            # Spark asks again after 10 ms, which costs a tenth of a core
            self._open().wait(before, self._idle.next_s())
            end = self._open().latest(before, limits)
        self._end = end
        if end is before:
            return start
        self._idle = Idle()
        failpoint("offset.planned")
        return with_shape(end, self._options)

    def _limits(self) -> Limits:
        return Limits.of(self._options)
