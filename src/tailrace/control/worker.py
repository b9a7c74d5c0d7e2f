"""A worker: `tailrace run` under a lease. A server starts it, and gives it the lease in its environment.

    before a batch     its end is put down in the database, which requires the lease
    after a batch      that all sinks have it, likewise
    every RENEW_S      the lease is renewed
    when it may end    the process and all its children are killed, by the worker's own clock
    once a second      progress is reported: tables that changed, all of them less often if they are many;
                       at the end, how the run has ended

The worker renews its lease itself: it goes on while its server stands still, and ends when its server has
ended (the server's end of the pipe on its standard input is closed).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Self

from tailrace.config import host_guard
from tailrace.config.secret import Secret
from tailrace.control import leases, progress
from tailrace.control.leases import LEASE_S, RENEW_S, Lease
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.progress import TableReport
from tailrace.control.stages import stage_of
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import (
    LeaseLostError,
    SourceError,
    TablesParkedError,
    TailraceError,
    TransientControlError,
)
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.spark_report import latest
from tailrace.pipeline.status import table_statuses
from tailrace.sinks.base import Written
from tailrace.sources import registry

_log = logging.getLogger(__name__)
#: The variable that makes `tailrace run` a worker.
VARIABLE = "TAILRACE_LEASE"
#: How often progress is reported at most, seconds.
_REPORT_S = 1.0
#: Rows of tables that are written a second at most, of those whose position alone is new.
_ROWS_S = 50
#: How often the worker looks whether its lease may have ended, seconds.
_LOOK_S = 0.1
#: Connections of a worker: one for batches, one for renewing, one for reports.
_CONNECTIONS = 3
#: What the states of `pipeline.status` are called here.
_STAGES = {"streaming": "incremental_log", "parked": "failed"}


def environment(database: ControlDatabase, lease: Lease) -> dict[str, str]:
    """The variables of a worker; the password goes as a reference.

    Args:
        database: of the control plane.
        lease: under which it runs.
    """
    return {
        VARIABLE: json.dumps(
            {
                "url": database.url,
                "password": None if database.password is None else database.password.text,
                "literal": database.password is not None and database.password.is_literal,
                "subscription": lease.subscription_id,
                "name": lease.name,
                "server": lease.server,
                "lease": lease.number,
            }
        )
    }


class Worker:
    """Runs under a lease; a context manager round the run.

    Args:
        database: of the control plane.
        lease: the lease.
    """

    def __init__(self, database: ControlDatabase, lease: Lease) -> None:
        self._database = database
        self._lease = lease
        #: Set when the run was asked to stop: it then has not read everything.
        self._stop = threading.Event()
        self._ended = threading.Event()
        #: Until when the lease surely holds, by a clock that does not stop while the machine sleeps.
        self._until_s = _now_s() + LEASE_S
        self._streams: list[StreamReport] = []
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (
                ("lease", self._renew),
                ("lease-end", self._end_with_lease),
                ("server", self._end_with_server),
                ("report", self._report),
            )
        ]

    @classmethod
    def from_environment(cls) -> Worker:
        """The worker that `environment` describes; the children of this process do not inherit that."""
        host_guard.guard_from_environment()
        given = json.loads(os.environ.pop(VARIABLE))
        text = given["password"]
        password = None if text is None else Secret(text, is_literal=given["literal"])
        lease = Lease(given["subscription"], given["name"], given["server"], given["lease"])
        return cls(ControlDatabase(given["url"], password, connections=_CONNECTIONS), lease)

    def stopping(self) -> None:
        """A stop was requested."""
        self._stop.set()

    def stream(self, dialect: str, source: str = "") -> StreamReport:
        """What reports on a stream of the pipeline, and lets its batches through."""
        found = StreamReport(self._database, self._lease, dialect, source)
        self._streams.append(found)
        return found

    def __enter__(self) -> Self:
        self._renew_once()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if isinstance(error, LeaseLostError):
            return
        try:
            for stream in self._streams:
                stream.report(whole=True)
            with self._database.begin() as connection:
                if error is None and self._stop.is_set():
                    leases.release(connection, self._lease)
                elif error is None or isinstance(error, TablesParkedError):
                    progress.done(connection, self._lease)
                else:
                    told = error if isinstance(error, TailraceError) else _unknown(error)
                    progress.failed(connection, self._lease, told, retries=told.retryable)
        except (LeaseLostError, TransientControlError) as failure:  # the lease ends by itself
            _log.warning("the end of the run could not be reported: %s", failure.message)
        finally:
            self._database.close()

    # ---- lease ----

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                self._renew_once()
            except TransientControlError as error:
                _log.warning("the lease could not be renewed: %s", error.message)
            except LeaseLostError as error:
                self._kill(str(error))

    def _renew_once(self) -> None:
        sent_s = _now_s()
        with self._database.begin() as connection:
            lost = leases.renew(connection, [self._lease])
        if lost and not self._ended.is_set():
            raise leases.lost(self._lease)
        self._until_s = sent_s + LEASE_S

    def _end_with_lease(self) -> None:
        while not self._ended.wait(_LOOK_S):
            if _now_s() >= self._until_s:
                self._kill("the lease could not be renewed in time")

    def _end_with_server(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        if not self._ended.is_set():
            self._kill("the server has ended")

    def _kill(self, why: str) -> None:
        """End at once: whoever owns the subscription now writes the running batch again."""
        _log.error("killed: %s", why)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    # ---- progress ----

    def _report(self) -> None:
        while not self._ended.wait(_REPORT_S):
            for stream in self._streams:
                try:
                    stream.report()
                except TransientControlError as error:
                    _log.warning("progress could not be reported: %s", error.message)
                except LeaseLostError as error:
                    self._kill(str(error))


class StreamReport:
    """Reports on one stream and lets its batches through: a `Watcher` and a `Fence`.

    Args:
        database: of the control plane.
        lease: under which the stream runs.
        dialect: the source's database.
        source: one of the file's `sources`; "": it has one.
    """

    def __init__(self, database: ControlDatabase, lease: Lease, dialect: str, source: str) -> None:
        self._database = database
        self._lease = lease
        self._position = registry.position_type(dialect)
        self._source = source
        self._lock = threading.Lock()
        self._news: tuple[StreamOffset, int | None] | None = None
        self._changes = Counter[str]()
        #: The tables as they were reported last, but for their positions; when all of them were.
        self._told: dict[str, TableReport] = {}
        self._whole_s = float("-inf")
        self._before = self._found_changes()
        #: Why the stream does not go on, and whether the database has that, not what an earlier worker put.
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
        sources = progress.get("sources") or [{}]
        end = sources[0].get("endOffset")
        found = json.loads(end) if isinstance(end, str) else end
        if found and found.get("log"):
            with self._lock:
                said = latest(progress)
                self._news = StreamOffset.from_json(found), said.get("complete_us")
                self._note_trouble(said.get("unanswered"))

    def on_written(self, batch_id: int, written: list[Written]) -> None:  # noqa: ARG002
        """See `Watcher`."""
        with self._lock:
            self._changes.update({str(part.table): part.changes for part in written})

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:  # noqa: ARG002
        """See `Watcher`."""
        with self._lock:
            self._note_trouble(error.json_values())

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
        now_s = _now_s()
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

    def _note_trouble(self, trouble: Mapping[str, Any] | None) -> None:
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


def _unknown(error: BaseException) -> TailraceError:
    # its text may hold a secret
    return SourceError(
        "the pipeline has ended by a bug",
        f"a {type(error).__name__} was raised",
        "the traceback is in the log file; please report it",
        code="TR-8422",
    )


def _now_s() -> float:
    """Seconds of a clock that neither jumps nor stops while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
