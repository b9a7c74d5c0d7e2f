"""What a worker reports of a stream, and how it lets batches through.

before a batch     its end is put down in the database, which requires the lease
after a batch      that all sinks have it, likewise
once a second      progress is reported: tables that changed, all of them less often if they are many
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from tailrace.control import leases, progress
from tailrace.control.leases import Lease
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.progress import TableReport
from tailrace.control.stages import stage_of
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.spark_report import latest
from tailrace.pipeline.status import table_statuses
from tailrace.sinks.base import Written
from tailrace.sources import registry

#: Rows of tables that are written a second at most, of those whose position alone is new.
_ROWS_S = 50
#: What the states of `pipeline.status` are called here.
_STAGES = {"streaming": "incremental_log", "parked": "failed"}


class StreamReport:
    """Reports on one stream and lets its batches through: a `Watcher` and a `Fence`.

    Args:
        database: of the control plane.
        lease: under which the stream runs.
        dialect: the source's database.
        source: one of the file's `sources`; "": it has one.
        started: called once the stream has begun to read, or waits for its next try.
    """

    def __init__(
        self, database: ControlDatabase, lease: Lease, dialect: str, source: str, started: Callable[[], None]
    ) -> None:
        self._database = database
        self._lease = lease
        self._position = registry.position_type(dialect)
        self._source = source
        self._started = started
        self._lock = threading.Lock()
        self._news: tuple[StreamOffset, int | None] | None = None
        self._changes = Counter[str]()
        #: The tables as they were reported last, but for their positions; when all of them were.
        self._told: dict[str, TableReport] = {}
        self._whole_s = float("-inf")
        self._before = self._found_changes()
        #: Why the stream does not go on, by who says so: the first counts.
        self._troubles: dict[str, Mapping[str, Any] | None] = {"retry": None, "restart": None, "clock": None}
        #: The one that counts, and whether the database has that, not what an earlier worker put.
        self._trouble: Mapping[str, Any] | None = None
        self._is_trouble_told = False

    @property
    def lease(self) -> int:
        """See `Fence`."""
        return self._lease.in_targets

    def begin(self, batch_id: int, end: Mapping[str, Any]) -> None:
        """See `Fence`."""
        text = json.dumps(end, sort_keys=True, separators=(",", ":"))
        with self._database.begin() as connection:
            leases.begin_batch(connection, self._lease, self._source, batch_id, text)

    def end(self, batch_id: int) -> None:
        """See `Fence`."""
        with self._database.begin() as connection:
            leases.end_batch(connection, self._lease, self._source, batch_id)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        self._started()
        sources = progress.get("sources") or [{}]
        end = sources[0].get("endOffset")
        found = json.loads(end) if isinstance(end, str) else end
        if found and found.get("log"):
            with self._lock:
                said = latest(progress)
                self._news = StreamOffset.from_json(found), said.get("complete_us")
                self._note_trouble(restart=None, clock=said.get("unanswered"))

    def on_written(self, batch_id: int, written: list[Written]) -> None:  # noqa: ARG002
        """See `Watcher`."""
        with self._lock:
            self._changes.update({str(part.table): part.changes for part in written})

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:  # noqa: ARG002
        """See `Watcher`."""
        self._started()
        with self._lock:
            self._note_trouble(restart=error.json_values())

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""
        with self._lock:
            self._note_trouble(retry=None if error is None else error.json_values())

    def on_step(self, step: str) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""

    def report(self, *, whole: bool = False) -> None:
        """Write what is new into the database.

        Args:
            whole: whether to write all tables, however many they are.

        Raises:
            LeaseLostError: another server may run the subscription.
            TransientControlError: the database does not answer; the next report has it.
        """
        with self._lock:
            news, changes = self._news, dict(self._changes)
            trouble, is_told = self._trouble, self._is_trouble_told
        if not is_told and (trouble is not None or news is not None):
            with self._database.begin() as connection:
                progress.in_trouble(connection, self._lease, trouble)
            with self._lock:
                self._is_trouble_told = self._trouble is trouble
        if news is None:
            return
        offset, complete_us = news
        assert offset.log is not None
        position = str(self._position.from_json(offset.log))
        tables = [
            TableReport(
                table.name,
                _STAGES.get(table.state, table.state),
                _last_key(offset, table.name),
                table.rows,
                table.estimated,
                position,
                table.complete_us,
                self._before.get(table.name, 0) + changes.get(table.name, 0),
                None if table.parked is None else asdict(table.parked.reason),
            )
            for table in table_statuses(offset, complete_us)
        ]
        now_s = time.monotonic()
        is_whole = whole or now_s - self._whole_s >= len(tables) / _ROWS_S
        told = {table.table: replace(table, position=None, complete_us=None) for table in tables}
        changed = {name for name, table in told.items() if is_whole or self._told.get(name) != table}
        with self._database.begin() as connection:
            progress.report(
                connection,
                self._lease,
                stage_of(offset),
                tables,
                self._source,
                changed=changed,
                trouble=trouble,
            )
        self._told = told
        if not is_whole:
            return
        self._whole_s = now_s
        with self._lock:
            if self._news is news:
                self._news = None

    def _note_trouble(self, **by: Mapping[str, Any] | None) -> None:
        self._troubles.update(by)
        trouble = next((found for found in self._troubles.values() if found is not None), None)
        if trouble != self._trouble:
            self._trouble, self._is_trouble_told = trouble, False

    def _found_changes(self) -> dict[str, int]:
        """The changes that earlier runs have written, by table."""
        found = self._database.read(lambda c: progress.tables_of(c, self._lease.subscription_id))
        return {table.table: table.changes for table in found if table.source == self._source}


def _last_key(offset: StreamOffset, table: str) -> str | None:
    held = offset.tables.get(table)
    if held is None and table in offset.again and not offset.again[table].done:
        held = offset.again[table].progress
    return None if held is None or held.cursor is None else json.dumps(held.to_json()["c"], default=str)
