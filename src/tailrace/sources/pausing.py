"""Pauses of a reader of rows, so that the server works for it only in a share of the time.

    statement, d seconds ─▶ pause of d · (1/share - 1) ─▶ statement ─▶ …

The share is bounded without knowing what a row costs. Statements are short, because all that the server does
meanwhile waits for them: a long one would show in the longest times of others, however rare it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

#: Rows of the first statement, most rows and about the most bytes of each.
FIRST_ROWS, MOST_ROWS, MOST_BYTES = 50, 200, 64 << 10
#: Most seconds of the first pause, and of others. What takes longest at first is the reader itself, which
#: loads what decodes rows.
FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 5.0


class Pauses:
    """The pauses of one reader.

    Args:
        share: of the time in which the server may work, below 1.
        sleep: waits for some seconds.
        clock: monotonic seconds.

    Attributes:
        rows: of the next statement.
    """

    def __init__(
        self,
        share: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._sleep = sleep
        self._clock = clock
        self._most_s = FIRST_PAUSE_S
        self.rows = FIRST_ROWS

    @contextmanager
    def after(self) -> Iterator[None]:
        """Pause after the statements within; not if they fail."""
        begun = self._clock()
        yield
        took = self._clock() - begun
        self._sleep(min(self._most_s, took * (1 / self._share - 1)))
        self._most_s = MOST_PAUSE_S

    def read(self, rows: pa.StructArray) -> None:
        """A statement gave these rows: the next one asks for as many as their size allows."""
        if len(rows):
            size = max(1, rows.nbytes // len(rows))
            self.rows = max(1, min(MOST_ROWS, MOST_BYTES // size))


def pauses(share: float | None) -> Pauses | None:
    """The pauses of a reader with a share of the time; None: it has all of it."""
    return None if share is None else Pauses(share)
