"""Spark's reports on a query, fetched without asking the JVM while there can be no new one.

Each look takes several calls into the JVM, and an idle stream reports every ten seconds only: fifty idle
streams of a process spent more on looks than on anything else. A report between two batches bears the number
of the next one. After it nothing comes until that batch has begun, of which this process learns first, or
until the next such report is due.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.spark.jvm import idle_report_s, reports_after


class QueryReports:
    """The reports on a query.

    Args:
        query: the query.
        clock: monotonic seconds.
    """

    def __init__(self, query: StreamingQuery, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._idle_s = idle_report_s(query)
        #: The newest report, and when the JVM was asked last.
        self._seen = ""
        self._looked_s = float("-inf")
        #: The number of the newest report's batch, and until when no report of an idle stream follows it.
        self._batch = -1
        self._quiet_until_s = float("-inf")

    @property
    def are_there(self) -> bool:
        """Whether there has been one."""
        return bool(self._seen)

    def new(self, begun: int | None) -> Sequence[dict[str, Any]]:
        """Those that have come since the last look, oldest first.

        Args:
            begun: the newest batch that has begun to be written; None: none has.
        """
        now_s = self._clock()
        if self.is_idle(begun) and now_s < self._quiet_until_s:
            return []
        return self._look(now_s)

    def rest(self) -> Sequence[dict[str, Any]]:
        """Those that are left of a query that has ended."""
        return self._look(self._clock())

    def is_idle(self, begun: int | None) -> bool:
        """Whether the newest report is of a stream between two batches, and none has begun since.

        Args:
            begun: see `new`.
        """
        return self.are_there and self._batch > (-1 if begun is None else begun)

    def _look(self, now_s: float) -> Sequence[dict[str, Any]]:
        found = reports_after(self._query, self._seen)
        reports = [json.loads(text) for text in found]
        if found:
            self._seen, self._batch = found[-1], int(reports[-1]["batchId"])
            # it was made after the last look
            self._quiet_until_s = self._looked_s + self._idle_s
        self._looked_s = now_s
        return reports
