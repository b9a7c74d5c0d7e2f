"""Connections of one kind that threads share: each is used by one thread at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

C = TypeVar("C")


class ConnectionPool(Generic[C]):
    """Connections that are opened at once, and not again.

    Args:
        number: how many.
        connect: opens one.
        disconnect: closes one.

    Raises what `connect` raises; none is open, then.
    """

    def __init__(self, number: int, connect: Callable[[], C], disconnect: Callable[[C], None]) -> None:
        self._disconnect = disconnect
        self._all: list[C] = []
        self._free: queue.SimpleQueue[C] = queue.SimpleQueue()
        try:
            for _ in range(number):
                self._all.append(connect())
                self._free.put(self._all[-1])
        except BaseException:
            self.close()
            raise

    @contextmanager
    def taken(self) -> Iterator[C]:
        """A connection that no other thread uses; waits for one."""
        connection = self._free.get()
        try:
            yield connection
        finally:
            self._free.put(connection)

    def close(self) -> None:
        """Close them, even those in use."""
        for connection in self._all:
            self._disconnect(connection)
