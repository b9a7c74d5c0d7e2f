"""Runs OPTIMIZE and VACUUM when they are due.

Both are off by default. OPTIMIZE costs in proportion to the table's size, and only the operator knows a good
time for it; VACUUM removes old versions that a reader may still use. Neither affects exactly-once delivery:
OPTIMIZE changes no row and carries no mark, VACUUM deletes only files that no version within the retention
names, and both run between batches.

The table's history tells when they last ran, so a pipeline that is started once an hour keeps to a daily
interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import functions as f

from tailrace.config.sinks import DeltaSettings
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.vacuum import vacuum


@dataclass(frozen=True)
class _Work:
    """A regular job.

    Args:
        operation: its name in the history.
        interval_s: the time between two runs.
        run: runs it.
    """

    operation: str
    interval_s: int
    run: Callable[[DeltaTable], None]


class Maintenance:
    """The maintenance of a sink's tables.

    Args:
        settings: the sink's settings.
    """

    def __init__(self, settings: DeltaSettings) -> None:
        hours = settings.vacuum_retention_hours
        self._work = []
        if settings.optimize_interval is not None:
            self._work.append(_Work("OPTIMIZE", settings.optimize_interval, _optimize))
        if settings.vacuum_interval is not None:
            self._work.append(
                _Work("VACUUM END", settings.vacuum_interval, lambda table: vacuum(table, hours))
            )
        #: The last run, by path and operation, seconds since 1970.
        self._done: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        return bool(self._work)

    def run(self, table: DeltaTable, now: float | None = None) -> bool:
        """Run what is due on a table.

        Args:
            table: the table.
            now: the time, seconds since 1970; default: the clock's.

        Returns:
            Whether anything was due.
        """
        now = time.time() if now is None else now
        worked = False
        for work in self._work:
            key = (table.path, work.operation)
            if key not in self._done:
                self._done[key] = _last(table, work.operation)
            if now - self._done[key] >= work.interval_s:
                work.run(table)
                table.note_change()
                self._done[key] = now
                worked = True
        return worked


def _last(table: DeltaTable, operation: str) -> float:
    """When the last commit of an operation was; if there is none, when the oldest known commit was."""
    history = table.session.sql(f"DESCRIBE HISTORY {table.sql}").select("timestamp", "operation")
    at = f.unix_micros("timestamp") / 1e6
    row = history.agg(f.max(f.when(f.col("operation") == operation, at)), f.min(at)).collect()[0]
    found: float = row[1] if row[0] is None else row[0]
    return found


def _optimize(table: DeltaTable) -> None:
    table.session.sql(f"OPTIMIZE {table.sql}")
