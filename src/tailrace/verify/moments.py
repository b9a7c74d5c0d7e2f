"""A moment between two batches, at which targets are kept as they are while the stream goes on.

    n = the last committed batch; the sink's notes: every target is at a batch <= n, and none is being written
    the targets are kept as they are, by a means of their system
    the notes once more: the same

*Why that is the state after n.* A sink notes the begin of a batch before its first row is written, and its
end after the last, each durably. The second look shows that no batch behind n had begun: so what was kept
between the looks has no row of one. The first shows that all rows of the others were there. Rows that others
write are reported as differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from tailrace.errors import StateError

#: How often to look whether the stream is between two batches, seconds.
_POLL_S = 0.03


class Noted(Protocol):
    """What a sink has noted of a target."""

    @property
    def begun(self) -> int:
        """The last batch that has begun."""

    @property
    def done(self) -> int:
        """The last batch that the target has as a whole."""


class KeptTargets(Protocol):
    """Targets that are kept as they are."""

    def close(self) -> None:
        """Let go of them."""


N = TypeVar("N", bound=Noted)
K = TypeVar("K", bound=KeptTargets)


def keep_between_batches(
    last: Callable[[], tuple[int, Collection[str]]],
    notes: Callable[[Collection[str]], Mapping[str, N]],
    keep: Callable[[Mapping[str, N]], K],
    patience_s: float,
) -> tuple[K, Mapping[str, N], int]:
    """Keep targets as they are between two batches.

    Args:
        last: asks for the last committed batch, and the targets of the stream then.
        notes: asks for what the sink has noted of targets.
        keep: keeps targets as they are.
        patience_s: how long to wait for a moment between two batches.

    Returns:
        The targets, what the sink had noted of them, and the batch.

    Raises:
        StateError: the stream has been writing them all the time.
    """
    until_s = time.monotonic() + patience_s
    while True:
        batch, targets = last()
        found = notes(targets) if targets else {}
        busy = next((e for e in found.items() if e[1].begun != e[1].done or e[1].done > batch), None)
        if busy is None:
            kept = keep(found)
            if not targets or notes(targets) == found:
                return kept, found, batch
            kept.close()
        if time.monotonic() >= until_s:
            raise _busy(*(busy or next(iter(found.items()))), batch)
        time.sleep(_POLL_S)


def _busy(name: str, noted: Noted, batch: int) -> StateError:
    return StateError(
        f"target `{name}` is being written and cannot be compared",
        f"it has batch {noted.done}, batch {noted.begun} has begun; the checkpoint has {batch}",
        "its system cannot show an earlier state: verify again when the batch is written. If the pipeline"
        " was killed within a batch, start it",
        code="TR-8104",
    )
