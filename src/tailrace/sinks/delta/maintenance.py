"""Small files joined, dropped files deleted: OPTIMIZE and VACUUM when they are due.

Both are off unless set. OPTIMIZE costs what the table is large, at a time that only who runs the pipeline can
judge; VACUUM takes away old versions that a reader may still be at. Neither touches what makes the
stream exactly-once: OPTIMIZE changes no row and carries no mark, VACUUM deletes only files that no version of
the retention's time names, and both run between batches, never beside one.

When they last ran is read from the table's history, so it outlasts the process: a pipeline that is
started once an hour keeps to a daily interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import functions as f

from tailrace.config.sinks import DeltaSettings
from tailrace.sinks.delta.table import DeltaTable

_UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True)
class _Work:
    """Something done now and then.

    Args:
        operation: its name in the history.
        interval_s: pause between two.
        run: does it.
    """

    operation: str
    interval_s: int
    run: Callable[[DeltaTable], None]


class Maintenance:
    """What is due of a sink's tables.

    Args:
        settings: the sink's.
    """

    def __init__(self, settings: DeltaSettings) -> None:
        hours = settings.vacuum_retention_hours
        self._work = []
        if settings.optimize_interval is not None:
            self._work.append(_Work("OPTIMIZE", settings.optimize_interval, _optimize))
        if settings.vacuum_interval is not None:
            self._work.append(
                _Work("VACUUM END", settings.vacuum_interval, lambda table: _vacuum(table, hours))
            )
        #: When work was done last, by path and operation, seconds since 1970.
        self._done: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        return bool(self._work)

    def run(self, table: DeltaTable, now: float | None = None) -> bool:
        """Do what is due of a table; whether there was anything.

        Args:
            table: the table.
            now: seconds since 1970; default: the clock's.
        """
        now = time.time() if now is None else now
        worked = False
        for work in self._work:
            key = (table.path, work.operation)
            if key not in self._done:
                self._done[key] = _last(table, work.operation)
            if now - self._done[key] >= work.interval_s:
                work.run(table)
                self._done[key] = now
                worked = True
        return worked


def _last(table: DeltaTable, operation: str) -> float:
    """When the table's last commit of an operation was; if there is none, the oldest that is known."""
    history = table.session.sql(f"DESCRIBE HISTORY {table.sql}").select("timestamp", "operation")
    at = f.unix_micros("timestamp") / 1e6
    row = history.agg(f.max(f.when(f.col("operation") == operation, at)), f.min(at)).collect()[0]
    found: float = row[1] if row[0] is None else row[0]
    return found


def _optimize(table: DeltaTable) -> None:
    table.session.sql(f"OPTIMIZE {table.sql}")


def _vacuum(table: DeltaTable, hours: int) -> None:
    # The retention is the pipeline's own, and nothing else writes to its tables.
    table.session.conf.set(_UNCHECKED, "false")
    table.session.sql(f"VACUUM {table.sql} RETAIN {hours} HOURS")
