"""The end of a stream, by the option `endingPosition`.

    latest       the position at which the stream starts with the option; in the offset from then on
    a position   of the log as it is then; likewise
    a time       the log is read up to the first transaction that was committed later. Once the server's clock
                 has passed it, the end is the log's end, or before that transaction if there is one

The stream never passes its end, and where it has reached it is in its last offset: a restart does nothing.
From when the end is a known position, rows of tables are read once the log is read up to there, as of it.
What begins only behind the log's end, such as the reading of a table that was truncated, cannot begin then:
the stream stops with an error, as targets would lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.enumerator.horizon import Horizon
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, StateError
from tailrace.model.ending import Ending
from tailrace.sources.base import Source

#: How long after a time the log may get transactions that were committed before it, microseconds.
_LATE_US = 1_000_000
#: Least and most time between two questions for the server's clock, seconds.
_ASK_S, _MOST_S = 0.5, 30.0


class StreamEnd:
    """The end of one stream.

    Args:
        options: the stream's options.
        horizon: set to the end.
        clock: monotonic seconds.
    """

    def __init__(self, options: SourceOptions, horizon: Horizon, clock: Callable[[], float]) -> None:
        self._of = options.ending_position
        self._time_us = horizon.before_us = options.ending_time_us
        self._horizon = horizon
        self._clock = clock
        #: When the server is asked for its clock again.
        self._ask_at: float | None = None
        #: The log's end after the time had passed, as JSON.
        self._passed_at: dict[str, Any] | None = None

    def is_reached(self, offset: StreamOffset) -> bool:
        """Whether a stream at `offset` has nothing left to do."""
        return is_reached(offset, self._of)

    def look(self, offset: StreamOffset, source: Source) -> StreamOffset:
        """`offset` with the end as it is known now.

        Raises:
            ConfigError: it is not in the log, or lies before the offset.
            TailraceError: an error of the source.
        """
        if self._of is None or offset.mode == "snapshot":
            return offset if offset.ending is None else replace(offset, ending=None)
        ending = offset.ending
        if ending is None or ending.of != self._of:
            ending = self._found(offset, source)
        if ending.at is None and self._is_past(offset, source):
            if self._passed_at is None:
                self._passed_at = source.log_end().to_json()
            ending = replace(ending, at=self._passed_at)
        self._horizon.fix(None if ending.at is None else source.position(ending.at))
        return replace(offset, ending=ending)

    def advanced(self, offset: StreamOffset, *, log_read: bool) -> StreamOffset:
        """`offset` with whether the log is read up to the end."""
        ending = offset.ending
        if ending is None or ending.at is None or not log_read:
            return offset
        return replace(offset, ending=replace(ending, log_read=True))

    def reached(self, offset: StreamOffset, behind: Collection[str]) -> StreamOffset:
        """`offset` with the end as reached.

        Args:
            offset: the log is read up to the end, and no rows are left.
            behind: what is still to begin, behind the end.

        Raises:
            StateError: there is something.
        """
        assert offset.ending is not None
        if behind:
            raise StateError(
                f"the stream cannot end at `{self._of}`",
                f"targets lack something that can only begin later in the log: {'; '.join(sorted(behind))}",
                "leave endingPosition out, or set a later one: the stream goes on from here",
                code="TR-4008",
            )
        return replace(offset, ending=replace(offset.ending, reached=True))

    def _found(self, offset: StreamOffset, source: Source) -> Ending:
        assert self._of is not None
        assert offset.log is not None
        position = source.position(offset.log)
        if self._time_us is not None:
            self._require_ahead(offset, source)
            return Ending(self._of)
        is_first = offset.ending is None and not offset.done and not offset.tables
        if self._of == "latest" and is_first and offset.mode in ("initial", "latest"):
            return Ending(self._of, dict(offset.log))
        at = source.ending_position(self._of, position)
        if at.order < position.order:
            raise _too_early(self._of, f"the stream is at {position} already")
        return Ending(self._of, at.to_json())

    def _require_ahead(self, offset: StreamOffset, source: Source) -> None:
        assert offset.log is not None
        assert self._time_us is not None
        position = source.position(offset.log)
        if position.ts_ms * 1000 > self._time_us:
            raise _too_early(str(self._of), f"the stream is at {position}, committed later")
        # what the start holds may have been committed at any time until now
        if not position.ts_ms and offset.mode in ("initial", "latest"):
            clock = source.log_clock(position)
            if clock is None or clock.ts_us > self._time_us:
                raise _too_early(str(self._of), "the stream starts later")

    def _is_past(self, offset: StreamOffset, source: Source) -> bool:
        """Whether all transactions until the end's time are in the log."""
        if self._passed_at is not None:
            return True
        now = self._clock()
        if self._ask_at is not None and now < self._ask_at:
            return False
        assert self._time_us is not None
        assert offset.log is not None
        clock = source.log_clock(source.position(offset.log))
        left_s = 0.0 if clock is None else (self._time_us - clock.ts_us) / 2_000_000
        self._ask_at = now + max(_ASK_S, min(left_s, _MOST_S))
        return clock is not None and clock.ts_us > self._time_us + _LATE_US


def is_reached(offset: StreamOffset, of: str | None) -> bool:
    """Whether a stream with this option `endingPosition` has nothing left to do at `offset`."""
    ending = offset.ending
    return ending is not None and ending.reached and ending.of == of


def _too_early(of: str, why: str) -> ConfigError:
    return ConfigError(
        f"the stream cannot end at `{of}`",
        why,
        "set endingPosition to a later position or time, or start a new stream from an earlier one",
        code="TR-4007",
    )
