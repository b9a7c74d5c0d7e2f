"""Checkpoints of tables' logs, which a thread of the sink writes.

Delta writes one with the commit that makes it due: a Spark job of 1 to 2 CPU s, however small the table is,
for which the batch would wait. And tables that are changed with each batch would be due at the same time, as
Delta counts versions. So a process counts its own commits, from another number for each table. One that ends
before that has Delta's rule: then the first checkpoint, which takes 9 CPU s, is seldom.
"""

from __future__ import annotations

import zlib

from tailrace.sinks.delta.transaction import write_checkpoint
from tailrace.spark.sql import OwnSessions


class Checkpoints:
    """The checkpoints that are due; those of a process that is killed are left out.

    Args:
        sessions: sessions of the sink's.
    """

    def __init__(self, sessions: OwnSessions) -> None:
        self._sessions = sessions
        self._due: dict[str, None] = {}
        #: How many commits were made since a table was due.
        self._since: dict[str, int] = {}
        #: Tables that were due.
        self._counted: set[str] = set()

    def committed(self, path: str, version: int, interval: int) -> None:
        """Take note of a commit.

        Args:
            path: the table's directory.
            version: the version that it made.
            interval: after how many commits a checkpoint is due.
        """
        begun_at = zlib.crc32(path.encode()) % max(1, interval // 2)
        self._since[path] = self._since.get(path, begun_at) + 1
        is_due_by_delta = version % interval == 0 and path not in self._counted
        if is_due_by_delta or self._since[path] >= interval:
            self._since[path] = 0
            self._counted.add(path)
            self._due[path] = None

    def write(self) -> None:
        """Write what is due; one thread at a time does so."""
        while self._due:
            path = next(iter(self._due))
            del self._due[path]  # a later commit may make the next one due
            write_checkpoint(self._sessions.current, path)
