"""A worker: a process that runs subscriptions in one Spark session, each under its lease.

A server starts it, tells it which subscriptions to run, and when to stop one:

    ──▶ {"start": {"lease": ..., "file": ...}}    a line each, on standard input, which is a socket
    ──▶ {"stop": 7}                               after the running batch
    ◀── {"ended": 7}                              how, it has written into the database
    ──▶ the end                                   if nothing runs, it ends; else the server has died

Each subscription has a thread, a session of its own in Spark, a log and a printed output. As many start at a
time as there are cores: fifty at once would take so much CPU that leases end. The worker renews its leases
itself (`control.held_leases`): it goes on while its server stands still, and is killed when its server has
ended. A subscription that fails or is stopped leaves the others alone, unless it has taken Spark's JVM with
it: then the process is killed, and the server starts all of them again.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from tailrace.config import host_guard
from tailrace.config.model import Pipeline
from tailrace.config.secret import Secret
from tailrace.control import leases, progress
from tailrace.control.groups import require_same
from tailrace.control.held_leases import HeldLeases, kill_worker
from tailrace.control.leases import Lease
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.start_turns import StartTurns
from tailrace.control.stream_report import StreamReport
from tailrace.errors import (
    LeaseLostError,
    SourceError,
    TablesParkedError,
    TailraceError,
    TransientControlError,
    TransientSourceError,
)
from tailrace.machine import cores
from tailrace.pipeline.file import load_pipelines
from tailrace.pipeline.host import Host
from tailrace.pipeline.log_output import LogOutput
from tailrace.pipeline.run_view import run_with_view
from tailrace.pipeline.session import session_of
from tailrace.pipeline.signals import stop_on_signals
from tailrace.pipeline.source_views import run_with_views
from tailrace.private import open_private
from tailrace.spark.jvm import is_stopped
from tailrace.spark.session import stop_session
from tailrace.verify.schedule import Verifications

_log = logging.getLogger(__name__)
#: The variable that tells a worker which database it belongs to.
VARIABLE = "TAILRACE_LEASE"
#: How often progress is reported at most, seconds.
_REPORT_S = 1.0
#: How long one that starts keeps others from it at most, seconds.
_START_S = 60.0
#: Connections of a worker to the control plane's database: batches wait for a free one.
_CONNECTIONS = 4
#: Size from which on a log is emptied, bytes.
_LOG_BYTES = 20_000_000


def environment(database: ControlDatabase, group: str | None) -> dict[str, str]:
    """The variables of a worker; the password goes as a reference.

    Args:
        database: of the control plane.
        group: of its subscriptions; None: it runs one that is in none.
    """
    return {
        VARIABLE: json.dumps(
            {
                "url": database.url,
                "password": None if database.password is None else database.password.text,
                "literal": database.password is not None and database.password.is_literal,
                "group": group,
            }
        )
    }


def start_command(lease: Lease, home: Path, hosts: Collection[str] = ()) -> Mapping[str, object]:
    """What tells a worker to run a subscription.

    Args:
        lease: its lease.
        home: the directory of its file and its log.
        hosts: that pipeline files name, beyond those that the worker knows.
    """
    given = [lease.subscription_id, lease.name, lease.server, lease.number]
    return {"start": {"lease": given, "home": str(home), "hosts": sorted(hosts)}}


@dataclass
class Member:
    """A subscription that a worker runs.

    Args:
        lease: its lease.
        home: the directory of its file and its log.
    """

    lease: Lease
    home: Path
    stop: threading.Event = field(default_factory=threading.Event)
    streams: list[StreamReport] = field(default_factory=list)
    is_lost: bool = False


class Worker:
    """Runs subscriptions.

    Args:
        database: of the control plane.
        group: of all of them; None: there is one, in none.
        channel: the server's end of which tells it what to do.
        log: where Spark logs, and what belongs to no subscription.
    """

    def __init__(
        self, database: ControlDatabase, group: str | None, channel: socket.socket, log: LogOutput
    ) -> None:
        self._database = database
        self._group = group
        self._channel = channel
        self._log = log
        self._leases = HeldLeases(database, self._lost)
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        self._turns = StartTurns(cores(), _START_S)
        self._to_start = queue.SimpleQueue[Member | None]()
        self._session: SparkSession | None = None
        #: The pipeline that the session was started for.
        self._first: Pipeline | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Run until the server has nothing to do for it."""
        with ExitStack() as stack:
            stack.callback(self._database.close)
            stack.callback(self._leases.close)
            stack.callback(self._ended.set)
            stack.enter_context(stop_on_signals(self._stop_all))
            for work, name in ((self._obey, "server"), (self._report, "report")):
                threading.Thread(target=work, name=name, daemon=True).start()
            while (member := self._to_start.get()) is not None:
                try:
                    pipelines = load_pipelines(member.home / "pipeline.yaml")
                    for pipeline in pipelines:
                        pipeline.require_extras()
                    session = self._session_for(pipelines)
                except Exception as error:  # noqa: BLE001 - it is reported
                    if self._session is None and isinstance(error, TransientSourceError):
                        kill_worker(error.message)  # this process cannot start another JVM
                    self._finish(member, error)
                    continue
                threading.Thread(
                    target=self._run,
                    args=(member, pipelines, session),
                    name=f"subscription-{member.lease.name}",
                    daemon=True,
                ).start()
            if self._session is not None:
                stop_session(self._session)

    def _session_for(self, pipelines: Sequence[Pipeline]) -> SparkSession:
        """The session that all share.

        Raises:
            ConfigError: it cannot be started, or lacks what this pipeline needs.
        """
        pipeline = pipelines[0]
        if self._session is None or self._first is None:
            shared = self._group is not None or len(pipelines) > 1
            name = self._group or (pipeline.named.pipeline if pipeline.named else pipeline.settings.name)
            self._session = session_of(pipeline, name, self._log.file, shared=shared)
            self._first = pipeline
        elif self._group is not None:
            require_same(self._group, pipeline, self._first)
        return self._session

    def _run(self, member: Member, pipelines: Sequence[Pipeline], session: SparkSession) -> None:
        error = None
        with (
            self._log.of(member.home / "tailrace.log"),
            open(member.home / "worker.out", "a", encoding="utf-8", opener=open_private) as printed,
        ):

            def stream(dialect: str, source: str = "") -> StreamReport:
                made = StreamReport(
                    self._database, member.lease, dialect, source, partial(self._turns.end, member.lease)
                )
                member.streams.append(made)
                return made

            console = Console(file=printed, width=120)
            host = Host(session, self._group is None, member.stop, console, stream)
            self._turns.take(member.lease, member.stop)
            try:
                if not member.stop.is_set():
                    _run_whole(pipelines, host)
            except BaseException as failure:  # noqa: BLE001 - it is reported
                error = failure
                _log.error("the pipeline has ended", exc_info=failure)
                console.print(str(failure) if isinstance(failure, TailraceError) else type(failure).__name__)
            self._turns.end(member.lease)
            self._finish(member, error)

    def _finish(self, member: Member, error: BaseException | None) -> None:
        """Report how a subscription's run has ended."""
        if error is not None and self._session is not None and is_stopped(self._session):
            kill_worker("Spark has ended")
        self._leases.remove(member.lease)
        if not member.is_lost:  # a target may refuse a lease that this database holds, as it was restored
            try:
                self._report_end(member, error)
            except (LeaseLostError, TransientControlError) as failure:  # the lease ends by itself
                _log.warning("the end of the run could not be reported: %s", failure.message)
        with self._lock, suppress(OSError):  # the server has died: `_obey` finds out
            del self._members[member.lease.subscription_id]
            self._channel.sendall(json.dumps({"ended": member.lease.subscription_id}).encode() + b"\n")

    def _report_end(self, member: Member, error: BaseException | None) -> None:
        for stream in member.streams:
            stream.report(whole=True)
        with self._database.begin() as connection:
            if error is None and member.stop.is_set():
                leases.release(connection, member.lease)
            elif error is None or isinstance(error, TablesParkedError):
                progress.done(connection, member.lease)
            else:
                told = error if isinstance(error, TailraceError) else _unknown(error)
                progress.failed(connection, member.lease, told, retries=told.retryable)

    # ---- the server ----

    def _obey(self) -> None:
        """Do what the server says."""
        with self._channel.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                given = json.loads(line)
                if "start" in given:
                    start = given["start"]
                    host_guard.named(*start["hosts"])
                    member = Member(Lease(*start["lease"]), Path(start["home"]))
                    with self._lock:
                        self._members[member.lease.subscription_id] = member
                    self._leases.add(member.lease)
                    self._to_start.put(member)
                elif (stopped := self._members.get(given["stop"])) is not None:
                    stopped.stop.set()
        if self._members:
            kill_worker("the server has ended")
        self._to_start.put(None)

    def _stop_all(self) -> None:
        for member in list(self._members.values()):
            member.stop.set()

    def _lost(self, lease: Lease) -> None:
        member = self._members.get(lease.subscription_id)
        if member is not None and member.lease == lease:
            member.is_lost = True
            member.stop.set()

    def _report(self) -> None:
        while not self._ended.wait(_REPORT_S):
            for member in list(self._members.values()):
                try:
                    for stream in list(member.streams):
                        stream.report()
                except LeaseLostError:
                    self._leases.lose({member.lease})
                except TailraceError as error:
                    _log.warning("progress could not be reported: %s", error.message)


def _run_whole(pipelines: Sequence[Pipeline], host: Host) -> None:
    if pipelines[0].named is not None:
        run_with_views(pipelines, None, Verifications, host=host)
    else:
        run_with_view(pipelines[0], None, Verifications, host=host)


def _unknown(error: BaseException) -> TailraceError:
    # its text may hold a secret
    return SourceError(
        "the pipeline has ended by a bug",
        f"a {type(error).__name__} was raised",
        "the traceback is in the log file; please report it",
        code="TR-8422",
    )


def main() -> None:
    """Run as a server's worker: its log file is the argument."""
    host_guard.guard_from_environment()
    given = json.loads(os.environ.pop(VARIABLE))  # the children of this process do not inherit it
    text = given["password"]
    password = None if text is None else Secret(text, is_literal=given["literal"])
    database = ControlDatabase(given["url"], password, connections=_CONNECTIONS)
    channel = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:  # children read no commands
        os.dup2(nothing.fileno(), 0)
    path = Path(sys.argv[1])
    if given["group"] is not None:
        host_guard.keep_names_in(path.with_name("hosts.json"))
    with LogOutput(path, given["group"] or "", is_json=False, max_bytes=_LOG_BYTES) as log:
        Worker(database, given["group"], channel, log).run()


if __name__ == "__main__":
    main()
