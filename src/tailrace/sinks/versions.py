"""Versions of rows, for systems that keep of a key's rows the one with the highest version.

A row's version is that of the batch that wrote it last: 2n for snapshot rows of batch n, 2n + 1 for changes.
A batch writes a key once in each way, and writes the same each time that it comes. Versions of two streams
mean different things, so a target belongs to one stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model.change import SNAPSHOT

#: The number of a batch before all others.
NEVER = -1


def version_of(batch: int, kind: str) -> int:
    """The version of the rows that a batch writes.

    Args:
        batch: the batch's number.
        kind: SNAPSHOT, LOG or REREAD.
    """
    return 2 * batch + (kind != SNAPSHOT)


def batch_of(version: int) -> int:
    """The batch that has written a row."""
    return version // 2


@dataclass(frozen=True)
class ReadingStart:
    """When a table began to be read again.

    Args:
        id: the reading's id.
        first: the lowest version of the rows that it writes.
    """

    id: str
    first: int
