"""A range of the log that a task reads by itself: through a copy of the stream's slot, or from an archive.

For events that the driver does not hold: a transaction that is larger than its memory, a batch that is
repeated after a crash, the log between a batch and the later snapshot that its rows are reconstructed from.
The copy begins where the slot begins, so the server decodes from there again; memory stays bounded whatever
the range holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.kernels.memory import SLACK
from tailrace.sources.postgres.connection import retrying, translate
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication.archive.archived import open_log
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.wire.kernels import messages as ms

_PATIENCE_S = 1.0


class LogReader:
    """The bytes of the transactions in (start, end], piece by piece, each of whole messages.

    Args:
        options: the server.
        start: transactions that commit below it are left out.
        end: transactions that commit at or above it are left out.
        binary: whether to request values in binary form.

    Attributes:
        history: the log that is read.
    """

    def __init__(
        self, options: SourceOptions, start: PostgresPosition, end: PostgresPosition, *, binary: bool
    ) -> None:
        self._end = end.lsn
        self._stream = retrying(
            options,
            lambda: open_log(options, start, binary=binary, own_slot=False),
            "reading the log by a copy of the slot",
        )
        self.history = self._stream.history
        self._incoming = Incoming(self._stream, lambda _: True, start.lsn, options.wants_message)

    def __iter__(self) -> Iterator[bytes]:
        """The pieces.

        Raises:
            TailraceError: the server has ended the stream, or the connection is lost: Spark retries the task.
        """
        while self._incoming.head < self._end:
            try:
                came = self._incoming.next(_PATIENCE_S)
            except (DatabaseError, InterfaceError, OSError) as error:
                raise translate(error, self._stream.doing) from error
            if came is None:
                continue
            data = came[1]
            cut = self._first_behind(data)
            yield data if cut is None else data[:cut]
            if cut is not None:
                return

    def _first_behind(self, data: bytes) -> int | None:
        """Offset of the first transaction that commits at or above the end."""
        memory = np.zeros(len(data) + SLACK, np.uint8)
        memory[: len(data)] = np.frombuffer(data, np.uint8)
        base = memory.ctypes.data
        at, stop = base, base + len(data)
        while True:
            at = int(ms.seek(at, stop, ms.BEGIN))
            if at >= stop:
                return None
            front = at - base + ms.FRAME + ms.XLOG + 1
            if int.from_bytes(data[front : front + 8], "big") >= self._end:
                return at - base
            at += 1 + int.from_bytes(data[at - base + 1 : at - base + 5], "big")

    def close(self) -> None:
        """End the stream; the copy goes with it."""
        self._stream.close()
