"""What happens to a pipeline, as records of its log: batches, restarts, notices."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.sinks.base import Written

#: A code as messages show it, and the table with which a notice about one begins.
_CODE = re.compile(r"\[(TR-\d{4})\]")
_TABLE = re.compile(r"table `([^`]+)`")
_log = logging.getLogger("tailrace.pipeline")


class EventLog:
    """Logs a stream's events; a `Watcher`. Batches are of level INFO, all else is a WARNING.

    Args:
        batches: whether batches are logged, too.
    """

    def __init__(self, *, batches: bool) -> None:
        self._batches = batches
        if batches:
            _log.setLevel(logging.INFO)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""
        if not self._batches:
            return
        for part in written:
            rows = part.snapshot_rows + part.changes
            more = {"event": "written", "batch": batch_id, "table": str(part.table), "rows": rows}
            kind = "snapshot rows" if part.snapshot_rows else "changes"
            _log.info("%d %s of %s written to %s", rows, kind, part.table, part.target, extra=more)

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""
        more = {"event": "restart", "code": error.code, "table": error.table}
        _log.warning("%s; start %d in %.0f s", error.message, attempt, pause_s, extra=more)

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""
        if error is None:
            _log.warning("the source answers again", extra={"event": "answers"})
            return
        more = {"event": "no-answer", "code": error.code, "table": error.table}
        _log.warning("%s; tried again", error.message, extra=more)

    def on_step(self, step: str) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""
        code, table = _CODE.search(text), _TABLE.match(text)
        more = {"event": "notice", "code": code and code[1], "table": table and table[1]}
        _log.warning("%s", text, extra=more)
