"""The bytes received from a replication stream's socket, cut at whole messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tailrace.errors import DecodeError
from tailrace.kernels.memory import SLACK
from tailrace.model.table import TableId
from tailrace.sources.bounds import LONGEST_ROW
from tailrace.sources.postgres.replication.stream import LogStream
from tailrace.sources.postgres.wire.index import Contradicted, Differs, Indexed, LogIndex
from tailrace.sources.postgres.wire.kernels import boundaries as bd

_RECEIVE = 1 << 20


class Incoming:
    """Receives from a stream and indexes the bytes.

    Args:
        stream: the stream.
        captures: whether a table is captured.
        start: LSN where the stream begins.
        wants_message: whether logical messages with a prefix are captured.
        contradicted: see `LogIndex`.
        has_signals: whether a table is that of the signals.
        differs: see `LogIndex`.

    Attributes:
        index: the index of the stream so far, with its relations.
        head: the server has decoded all below this LSN.
    """

    def __init__(
        self,
        stream: LogStream,
        captures: Callable[[TableId], bool],
        start: int,
        wants_message: Callable[[str], bool],
        contradicted: Contradicted = lambda *_: (),
        *,
        has_signals: Callable[[TableId], bool] = lambda _: False,
        differs: Differs = lambda _: False,
    ) -> None:
        self.index = LogIndex(captures, wants_message, contradicted, has_signals=has_signals, differs=differs)
        self.head = start
        self._stream = stream
        self._buffer = np.zeros(2 * _RECEIVE + SLACK, np.uint8)
        self._end = 0
        self._base = 0

    def next(self, timeout_s: float) -> tuple[int, bytes, Indexed] | None:
        """Offset in the stream, bytes and index of the next piece; None on a timeout.

        Raises:
            TailraceError: the server has ended the stream, or sends malformed messages.
            OSError: the connection is lost.
        """
        if self._end >= 5:
            size = int.from_bytes(self._buffer[1:5].tobytes(), "big")
            if size > LONGEST_ROW:
                raise DecodeError(
                    "a message of the replication stream is longer than it may be",
                    f"at offset {self._base} of the stream: it has {size} bytes, allowed: {LONGEST_ROW}",
                    code="TR-5204",
                )
        if len(self._buffer) - SLACK - self._end < _RECEIVE:
            grown = np.zeros(2 * len(self._buffer), np.uint8)
            grown[: self._end] = self._buffer[: self._end]
            self._buffer = grown
        room = self._buffer.data[self._end : len(self._buffer) - SLACK]
        count = self._stream.receive(room, timeout_s)
        if not count:
            return None
        self._end += count
        try:
            found = self.index.feed(self._buffer, 0, self._end, self._base)
        except DecodeError:
            self._raise_refusal()
            raise
        data = self._buffer[: found.used].tobytes()
        self._buffer[: self._end - found.used] = self._buffer[found.used : self._end].copy()
        self._end -= found.used
        offset, self._base = self._base, self._base + found.used
        self.head = max(self.head, found.wal_end, *found.transactions[-1:, bd.END_LSN].tolist())
        self._stream.received(self.head)
        return offset, data, found

    def _raise_refusal(self) -> None:
        """Raise the server's error, or that it has ended the stream, if the bytes say so."""
        at = 0
        while self._end - at >= 5:
            size = 1 + int.from_bytes(self._buffer[at + 1 : at + 5].tobytes(), "big")
            kind = self._buffer[at : at + 1].tobytes()
            if kind == b"E":
                raise self._stream.refusal(self._buffer[at + 5 : at + size].tobytes())
            if kind in b"cC":
                raise ConnectionResetError("the server has ended the stream")
            at += size
