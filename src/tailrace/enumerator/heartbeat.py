"""Heartbeats: a statement that writes something to the source's log at an interval.

The log of a server may grow by what other databases write, while nothing happens in the captured one. With a
heartbeat the stream's position moves on nevertheless, and with it what the server has to keep. Debezium's
`heartbeat.interval.ms` and `heartbeat.action.query`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tailrace.errors import SourceError, TransientSourceError, coded

_log = logging.getLogger(__name__)


class Heartbeat:
    """Runs a statement at an interval.

    Args:
        run: runs the statement at the source.
        interval_s: time between two, seconds.
        clock: monotonic seconds.
    """

    def __init__(self, run: Callable[[], None], interval_s: float, clock: Callable[[], float]) -> None:
        self._run = run
        self._interval_s = interval_s
        self._clock = clock
        self._next_s = float("-inf")

    def beat(self) -> None:
        """Run the statement, if it is time. One that fails is logged: the stream does not depend on it."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        try:
            self._run()
        except TransientSourceError:  # the log has a connection of its own
            return
        except SourceError as error:
            _log.warning(
                "heartbeat.action.query failed: %s: %s", coded(error.message, error.code), error.detail
            )
