"""One attempt to write a batch, as watchers learn of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.errors import TailraceError
from tailrace.sinks.base import Written
from tailrace.sinks.timings import Step


@dataclass(frozen=True)
class BatchRun:
    """An attempt that has ended.

    Args:
        batch: the batch's number.
        start_ns: when the sinks were given the batch, nanoseconds since 1970 UTC.
        end_ns: when they had it, or the attempt failed.
        steps: what was done meanwhile, in the order in which it ended.
        written: what the first sink has written; empty if the attempt failed.
        error: why it failed; None if it did not.
        quarantined: number of changes put into quarantine, by sink and table.
    """

    batch: int
    start_ns: int
    end_ns: int
    steps: Sequence[Step]
    written: Sequence[Written]
    error: TailraceError | None = None
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
