r"""Writing a server's log into an archive: one dump connection, whatever number of pipelines reads it.

    dump --blocks--> SegmentBuilder --whole transactions--> segment --> manifest

A segment is complete when it is large or old enough, and with its log file. Where the archive ends is read
from its newest manifest: after a crash the log is read again from there, so that nothing is missing and
nothing comes twice. What the server has purged meanwhile is a gap: the archiver stops, and begins a new
section only where `allow_gap` asks for it.

After a failover the archiver continues in the other server's log: it looks for the point by the GTIDs, and
begins a section at the head of that log file, so that what is in it before the point is archived once more,
under the other server's name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError, ServerChangedError, StateError, TailraceError
from tailrace.failpoints import failpoint
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.expiry import expire
from tailrace.sources.archive.segment import FILE_HEAD, Segment
from tailrace.sources.archive.writing import ArchivingLimits
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.binlog.history import require_history
from tailrace.sources.mysql.binlog.logfiles import binary_logs, no_log
from tailrace.sources.mysql.binlog.segment_builder import LogStart, SegmentBuilder
from tailrace.sources.mysql.connection import ReconnectingConnection, folds_names, server_facts
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.start.starting import position_by_gtids
from tailrace.sources.mysql.wire.block import EventBlock

T = TypeVar("T")

_POLL_S = 0.2
#: Errors that say that the server no longer has the log from a position on, or never had it.
_LOST = frozenset({"TR-4101", "TR-4102"})


class BinlogArchiver:
    """Archives a server's log.

    Args:
        options: the server.
        archive: the archive; locked by the caller.
        limits: when segments are complete.
        begin: where a new archive begins: `earliest` or `latest` log file that the server has.
        allow_gap: whether to go on behind a part of the log that is lost.
        on_segment: told about each segment that was written.
    """

    def __init__(
        self,
        options: SourceOptions,
        archive: Archive,
        limits: ArchivingLimits,
        *,
        begin: str = "earliest",
        allow_gap: bool = False,
        on_segment: Callable[[Segment], None] = lambda _: None,
    ) -> None:
        # what is purged must not come from the archive itself
        self._options = replace(options, archive=None, archive_key=None)
        self._archive = archive
        self._limits = limits
        self._begin = begin
        self._allow_gap = allow_gap
        self._on_segment = on_segment
        self._connection = ReconnectingConnection(self._options, "archiving the log")
        self._lock = threading.Lock()

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Archive until `stop` is set; with `once`, until the log's end.

        Raises:
            PositionLostError: the server no longer has the log from the archive's end on.
            StateError: the archive is damaged, or somebody else writes to it.
            TailraceError: as `DumpStream.blocks`.
        """
        self._archive.remove_unfinished()
        try:
            start = self._next()
            while not stop.is_set():
                try:
                    self._follow(start, stop, once=once)
                    return
                except ServerChangedError:
                    start = self._next()
                except PositionLostError as error:
                    if error.code not in _LOST or not self._archive.segments:
                        raise
                    if not self._allow_gap:
                        raise self._gap(error) from error
                    self._allow_gap = False
                    start = self._head("earliest")
        finally:
            self._connection.close()

    # -- where to go on -------------------------------------------------------------------------------

    def _next(self) -> LogStart:
        """Where the log goes on behind the archive's end, in the log of the server that answers."""
        if not self._archive.segments:
            return self._head(self._begin)
        last = self._archive.segments[-1]
        server = self._run(lambda c: server_facts(c).server_uuid)
        if server == last.server:
            return LogStart(server, *last.behind, GtidSet.parse(last.gtids_after), begins=False)
        if not last.gtids_after:
            raise StateError(
                "the archive cannot go on in the log of another server",
                f"it is of server `{last.server}`, `{server}` answers; without GTIDs no position means the "
                "same on both",
                "begin another archive",
                code="TR-8209",
            )
        found = position_by_gtids(self._options, GtidSet.parse(last.gtids_after))
        return LogStart(found.server, found.file, FILE_HEAD, GtidSet(), begins=True)

    def _head(self, which: str) -> LogStart:
        """The head of the oldest or the newest log file that the server has."""
        files = self._run(binary_logs)
        if not files:
            raise no_log()
        file = files[0 if which == "earliest" else -1]
        server = self._run(lambda c: server_facts(c).server_uuid)
        return LogStart(server, file.name, FILE_HEAD, GtidSet(), begins=True)

    def _gap(self, error: TailraceError) -> PositionLostError:
        last = self._archive.segments[-1]
        file, pos = last.behind
        return PositionLostError(
            f"the archive cannot go on: the server does not have the log from `{file}:{pos}` on",
            f"{error.message}; {error.detail}",
            "tailrace archive ... --allow-gap goes on with the oldest log file that the server has: streams "
            "that need what is between end with an error; with --base, tables can be restored behind it",
            code="TR-8208",
        )

    # -- following ------------------------------------------------------------------------------------

    def _follow(self, start: LogStart, stop: threading.Event, *, once: bool) -> None:
        """Archive the log from `start` on, until `stop` is set; with `once`, until the log's end."""
        builder = SegmentBuilder(self._archive, start, lambda: self._run(folds_names))
        # called by the thread that adds GTIDs
        stream = DumpStream(
            self._options,
            start.file,
            start.pos,
            blocking=not once,
            server=start.server,
            verify=lambda connection: require_history(connection, builder.gtids),
        )
        failures: list[Exception] = []

        def read() -> None:
            try:
                for block in stream.blocks():
                    with self._lock:
                        self._take(builder, block)
            except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
                failures.append(error)

        thread = threading.Thread(target=read, name="archiver", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not stop.is_set():
                thread.join(_POLL_S)
                with self._lock:
                    if not failures and builder.age_s() > self._limits.seconds:
                        self._commit(builder)
        finally:
            stream.close()
            thread.join()
        try:
            self._commit(builder)
        finally:
            builder.abandon()
        if failures:
            raise failures[0]

    def _take(self, builder: SegmentBuilder, block: EventBlock) -> None:
        if builder.file != block.file:
            builder.end_of_file()
            self._commit(builder)
            builder.enter(block)
        builder.take(block)
        if builder.size >= self._limits.segment_bytes:
            self._commit(builder)

    def _commit(self, builder: SegmentBuilder) -> None:
        """Make the present segment count, if it is whole."""
        segment = builder.finished()
        if segment is None:
            return
        failpoint("archive.segment")
        self._archive.append(segment)
        failpoint("archive.committed")
        self._on_segment(segment)
        if self._limits.expire_s is not None:
            expire(self._archive, self._limits.expire_s)

    def _run(self, operation: Callable[[BoundedConnection], T]) -> T:
        return self._connection.run(operation, "archiving the log")
