"""How fast tables are read while others use the server (option `snapshotProtection`).

A thread looks at the sessions of others some times a second, by a connection of its own, for as long as the
stream has rows to read. While they run at least one statement at a time on average, the server is busy:

    one small chunk in a batch          no scan is long, and the pace follows the load
    a share of the time for its rows    the reader pauses between small statements (`sources.pausing`)

Statements that share a server's processors and disk take longer by as much as ours add to the load. Their own
load is the number of others' sessions, ours is the share of the time in which the server works for us. So a
share that is a twentieth of their number makes them about a twentieth slower, and more at the tail.

A server that is not busy is read at full speed. What we read makes others' statements longer, so that more of
them show: the server is busy until clearly fewer run than made it so.

Only how far cursors move, and pauses, depend on all this, never what a range of keys holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing

from tailrace.errors import TailraceError
from tailrace.sources.base import LoadWatch

_log = logging.getLogger(__name__)

#: Seconds over which the sessions of others are averaged, and between two looks.
WINDOW_S, EVERY_S = 5.0, 0.2
#: Looks before the first rows are read, and seconds between them, and most seconds to wait for them.
FIRST_LOOKS, FIRST_EVERY_S, FIRST_MOST_S = 8, 0.025, 2.0
#: Seconds until the next look at a server that did not answer.
_RETRY_S = 1.0
#: Sessions of others from which on a server is busy, and below which it no longer is.
BUSY, NOT_BUSY = 1.0, 0.5
#: Our share of the time for each session of others, and its limits.
SHARE, LEAST_SHARE, MOST_SHARE = 0.05, 0.05, 0.5
#: Rows of the chunk that a batch reads from a busy server.
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 1_000, 8_000, 50_000
#: A batch shorter than the one lets the next read twice the rows, one longer than the other half; seconds.
SHORT_S, LONG_S = 1.0, 4.0


class Load:
    """The sessions of others over the last seconds, and whether the server is busy with them.

    Attributes:
        mean: sessions on average; None: not known.
        is_busy: whether the server is busy.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()
        self.mean: float | None = None
        self.is_busy = False

    def add(self, at: float, others: float) -> None:
        """Others ran statements in so many sessions at a time, monotonic seconds."""
        self._seen.append((at, others))
        while self._seen[0][0] < at - WINDOW_S:
            self._seen.popleft()
        self.mean = sum(n for _, n in self._seen) / len(self._seen)
        self.is_busy = self.mean >= (NOT_BUSY if self.is_busy else BUSY)

    @property
    def share(self) -> float | None:
        """The share of the time in which the server may work for our rows; None: all of it."""
        if not self.is_busy or self.mean is None:
            return None
        return min(max(SHARE * self.mean, LEAST_SHARE), MOST_SHARE)


class SnapshotLoad:
    """The protection of one stream's server.

    Args:
        watch: makes what looks at the server; None: nothing can be known of it.
        clock: monotonic seconds.

    Attributes:
        share: of the time in which the server may work for a batch's rows, by the last call of `chunks`;
            None: all of it.
        slowed_by: why rows are read slowly; "": they are not.
    """

    def __init__(self, watch: Callable[[], LoadWatch | None], clock: Callable[[], float]) -> None:
        self._watch = watch
        self._clock = clock
        self._lock = threading.Lock()
        self._load = Load()
        self._looks: _Looks | None = None
        self._rows = FIRST_ROWS
        self._begun: float | None = None
        self.share: float | None = None
        self.slowed_by = ""

    def look(self, *, wanted: bool) -> None:
        """Look at the server from now on, or no longer.

        Args:
            wanted: whether the stream has rows to read.
        """
        if not wanted:
            self.close()
        elif self._looks is None:
            found = self._watch()
            if found is not None:
                self._looks = _Looks(found, self._add)

    def chunks(self, chunk_rows: int, splits: int) -> tuple[int, int]:
        """The rows of a chunk and the number of chunks of the batch being planned; call it once per batch.

        Args:
            chunk_rows: rows of a chunk of a server that is not busy.
            splits: chunks then.
        """
        if self._looks is not None:
            self._looks.wait_for_first()
        with self._lock:
            self.share, mean = self._load.share, self._load.mean
        if self.share is None:
            self._rows, self._begun, self.slowed_by = FIRST_ROWS, None, ""
            return chunk_rows, splits
        self.slowed_by = (
            f"others run {mean:.1f} statements at a time, and rows have {self.share:.0%} of the time "
            "(snapshotProtection)"
        )
        now = self._clock()
        if self._begun is not None:
            if now - self._begun < SHORT_S:
                self._rows = min(MOST_ROWS, 2 * self._rows)
            elif now - self._begun > LONG_S:
                self._rows = max(LEAST_ROWS, self._rows // 2)
        self._begun = now
        return min(chunk_rows, self._rows), 1

    def close(self) -> None:
        """Look no longer, and forget what was seen."""
        if self._looks is None:
            return
        self._looks.close()
        self._looks = None
        with self._lock:
            self._load = Load()
        self.share, self.slowed_by, self._begun = None, "", None

    def _add(self, others: float) -> None:
        with self._lock:
            was_busy = self._load.is_busy
            self._load.add(self._clock(), others)
            if was_busy != self._load.is_busy:
                how = "a small share of the time" if self._load.is_busy else "full speed"
                _log.info("others run %.1f statements at a time: rows have %s", self._load.mean, how)


class _Looks:
    """A thread that looks at a server until it is closed.

    Args:
        watch: looks; closed by the thread.
        add: receives the number of sessions of others.
    """

    def __init__(self, watch: LoadWatch, add: Callable[[float], None]) -> None:
        self._watch = watch
        self._add = add
        self._stop = threading.Event()
        self._first = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="tailrace-load", daemon=True)
        self._thread.start()

    def wait_for_first(self) -> None:
        """Return once the server has been looked at some times, or does not answer."""
        self._first.wait(max(0.0, self._begun + FIRST_MOST_S - time.monotonic()))

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(FIRST_MOST_S)

    def _run(self) -> None:
        with closing(self._watch):
            looks, said = 0, False
            pause_s = FIRST_EVERY_S
            while not self._stop.wait(pause_s):
                try:
                    others = self._watch.others()
                except TailraceError as error:
                    self._first.set()  # a stream does not wait for a server that does not answer
                    if not said:
                        _log.warning("what others do on the server is not known: %s", error.message)
                    if not error.retryable:
                        return
                    said, pause_s = True, _RETRY_S
                    continue
                looks += 1
                if others is not None and not self._stop.is_set():
                    self._add(others)
                is_known = looks >= FIRST_LOOKS
                if is_known:
                    self._first.set()
                pause_s = EVERY_S if is_known else FIRST_EVERY_S
