"""What the targets of a sink hold, asked from outside: no pipeline need run, and nothing is written.

A checkpoint says which batch all sinks have for certain. The targets say more: whether a later batch is half
written, and whether changes that a sink has received are not yet visible to readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TargetStanding:
    """What a target holds of a stream.

    Args:
        batch: the newest batch that it has something of; None: nothing yet.
        waiting: batches that it has received and readers do not see yet.
        waiting_rows: number of changes in them.
    """

    batch: int | None = None
    waiting: Sequence[int] = ()
    waiting_rows: int = 0


@dataclass(frozen=True)
class SinkStanding:
    """What a sink's targets hold.

    Args:
        targets: by the target's name; of a sink that keeps no account of each, one entry for all.
    """

    targets: Mapping[str, TargetStanding] = field(default_factory=dict)

    def visible(self, received: int | None) -> int | None:
        """The newest batch up to which readers see everything.

        Args:
            received: the newest batch that all targets have; None: none.
        """
        waiting = [batch for target in self.targets.values() for batch in target.waiting]
        if received is None or not waiting:
            return received
        first = min(waiting) - 1
        return None if first < 0 else min(first, received)

    def begun(self, received: int | None) -> int | None:
        """The batch above `received` of which targets have a part; None: there is none."""
        batches = [target.batch for target in self.targets.values() if target.batch is not None]
        newest = max(batches, default=-1)
        return newest if newest > (-1 if received is None else received) else None
