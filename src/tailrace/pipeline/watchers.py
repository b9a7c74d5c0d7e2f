"""Several watchers of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.supervisor import Watcher
from tailrace.sinks.base import Written


@dataclass(frozen=True)
class Watchers:
    """A `Watcher` that passes each event on to others."""

    watchers: Sequence[Watcher]

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_progress(progress)

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_written(batch_id, written)

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_batch(run)

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_restart(error, attempt, pause_s)

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_trouble(error)

    def on_step(self, step: str) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_step(step)

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""
        for watcher in self.watchers:
            watcher.on_notice(text)
