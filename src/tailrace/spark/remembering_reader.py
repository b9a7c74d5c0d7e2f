"""The reader of a stream for Spark 4.1, which asks for the end of the next batch and says nothing else.

    first batch        the newest offset of the checkpoint ─▶ end      (Spark has run that batch by then)
    each further one   the end of the one before ─▶ end

Every end that differs from the one before becomes a batch, so the reader remembers what it has returned.
After a restart it reads the checkpoint, whose path Spark keeps for itself: the option `checkpointPath` has
it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError
from tailrace.spark.checkpoint import Checkpoint, absolute
from tailrace.spark.stream_reader import TailraceStreamReader
from tailrace.spark.user_errors import in_short


class RememberingReader(TailraceStreamReader):
    """Plans from the offset that it planned last; see `TailraceStreamReader`."""

    #: Whether the stream ends at what is committed when it starts: Spark 4.1 does not say so.
    reads_until_now = False
    _last: dict[str, Any] | None = None
    #: The start and the end of the newest batch that was planned here.
    _planned: tuple[dict[str, Any], dict[str, Any]] | None = None

    @in_short
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - of 4.2 in the stubs
        """The end of the next batch; that of the last one if there is nothing to read."""
        if self._last is None:
            self._last = self._stored()
            if self.reads_until_now:
                self._open().hold()
        start = self._last
        self._last = self._next(start, self._limits())
        self._planned = (start, self._last)
        return self._last

    @in_short
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a batch, planned from the two offsets alone."""
        if self._planned is None:
            is_own = not _begins_anew(StreamOffset.from_json(start), StreamOffset.from_json(end))
        else:
            is_own = end != self._planned[1] or start in self._planned
        if not is_own:
            raise StateError(
                "the checkpoint of the query is not that of the option `checkpointPath`",
                f"`{self._options.checkpoint_path}` has another last offset",
                "give the path of the writer's `checkpointLocation`, and remove the newest file in its "
                "`offsets`, which was planned from the wrong one",
                code="TR-1234",
            )
        return super().partitions(start, end)

    def _stored(self) -> dict[str, Any]:
        """The newest offset of the checkpoint; that before the first batch if it has none."""
        assert self._options.checkpoint_path is not None  # see `source`
        checkpoint = Checkpoint(absolute(self._options.checkpoint_path))
        last = checkpoint.last()
        if last is None:
            return self.initialOffset()
        if checkpoint.sources_of(last.id) != 1:
            raise StateError(
                "a query on Spark 4.1 cannot have other sources beside a stream of Tailrace",
                f"the checkpoint `{checkpoint.path}` has offsets of {checkpoint.sources_of(last.id)}",
                "write each stream by a query of its own, or use Spark 4.2",
                code="TR-1235",
            )
        return last.end


def _begins_anew(start: StreamOffset, end: StreamOffset) -> bool:
    """Whether `end` was not planned from `start`: it reads all tables again for the first time."""
    forgot = end.forgot and not start.forgot  # a table that was dropped and created again
    return bool(start.done) and not (end.done or forgot) and start.done.keys() <= end.tables.keys()
