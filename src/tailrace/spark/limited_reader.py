"""The reader of a stream for Spark 4.2, which says where a batch begins and how large it may be."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tailrace.enumerator.enumerator import Limits
from tailrace.sources import registry
from tailrace.sources.base import Lag
from tailrace.spark.same_stream import with_shape
from tailrace.spark.stream_reader import TailraceStreamReader
from tailrace.spark.user_errors import in_short


class LimitedReader(TailraceStreamReader, SupportsTriggerAvailableNow):
    """Plans from the offset that Spark gives; see `TailraceStreamReader`."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger` if set, else bytes; `latestOffset` obeys both."""
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadMaxBytes(self._options.batch_bytes[0])

    @in_short
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no transaction that commits from now on."""
        self._open().hold()

    @in_short
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is nothing to read."""
        return self._next(start, Limits() if isinstance(limit, ReadAllAvailable) else self._limits())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The offset of a stream without lag, which Spark's progress reports next to the end offset.

        With it goes the lag, because Spark takes no metrics from a Python source:
        {"ms": 40, "bytes": 512, "files": 0}; bytes is null across log files, ms if it is unknown. And the
        time up to which the stream is complete with the newest batch, `complete_us` of the enumerator, and
        how long the server keeps the log, `room` of `enumerator.log_room`; and why no rows of tables are read
        now, `held_by`, or why slowly, `slowed_by`; and the error with which the server does not answer,
        `unanswered`.
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
        if (error := self._open().unanswered) is not None:
            value["unanswered"] = error.json_values()
        return value
