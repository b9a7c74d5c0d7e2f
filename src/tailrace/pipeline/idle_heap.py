"""Gives memory of the JVM back while a stream is idle.

Garbage of the last batches stays in the heap until the heap is full, which an idle stream never fills. One
full collection, a minute after the last batch, lets it shrink (`-XX:MaxHeapFreeRatio` of `spark.session`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: A stream is idle when it has written no batch for this long, seconds.
IDLE_S = 60.0


class IdleHeap:
    """Collects garbage once in each idle time.

    Args:
        collect: has the JVM collect its garbage.
        clock: monotonic seconds.
    """

    def __init__(self, collect: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._collect = collect
        self._clock = clock
        self._newest: int | None = None
        self._since_s = clock()
        self._collected = False

    def look(self, newest: int | None) -> None:
        """Collect, if it is time. `newest` is the newest batch in the sink, None: none since the start."""
        now_s = self._clock()
        if newest != self._newest:
            self._newest, self._since_s, self._collected = newest, now_s, False
        elif not self._collected and now_s - self._since_s >= IDLE_S and newest is not None:
            self._collected = True
            self._collect()
