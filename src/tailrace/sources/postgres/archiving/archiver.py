"""Writing PostgreSQL's log into an archive: one slot, whatever number of pipelines reads the archive.

    slot --stream--> WalSegmentBuilder --whole transactions--> segment --> manifest --> slot is confirmed

The archive has a slot of its own, and the publication of the pipelines: it decides which changes are sent,
and by that the numbers of changes within a transaction. The slot is confirmed only what a manifest names:
after a crash the log is read again from the archive's end, so that nothing is missing or comes twice.

Values are archived as text, and all logical messages with them: every reader understands that, whatever its
options and the tables' types are. What the log does not tell, that a table was altered or dropped, the
archiver sees in the catalog (`sightings`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, TailraceError
from tailrace.failpoints import failpoint
from tailrace.sources.archive.expiry import expire
from tailrace.sources.archive.writing import ArchivingLimits
from tailrace.sources.postgres.archiving.builder import WalSegmentBuilder
from tailrace.sources.postgres.archiving.sightings import Lookout
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection, retrying, translate
from tailrace.sources.postgres.position import PostgresPosition, lsn_text
from tailrace.sources.postgres.replication import publication
from tailrace.sources.postgres.replication.archive.archived import require_same
from tailrace.sources.postgres.replication.archive.segment import WalArchive, WalSegment
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.replication.stream import ReplicationStream
from tailrace.sources.postgres.source import PostgresSource
from tailrace.sources.postgres.starting import begin_slot, drop_lost_slot, log_end_position

T = TypeVar("T")

_POLL_S = 0.2
#: How long to wait before a lost connection is opened again, seconds.
_PAUSE_S = 1.0
#: Errors that say that the server no longer has the log from a position on, or never had it.
_LOST = frozenset({"TR-4102", "TR-4201"})
#: The archive's own store fails.
_UNREACHABLE = "TR-8202"
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"


@dataclass(frozen=True)
class _Start:
    """Where the archive goes on.

    Args:
        position: the position.
        since_us: the newest commit before it, or when the section began.
        begins: whether a section begins there.
    """

    position: PostgresPosition
    since_us: int
    begins: bool


class WalArchiver:
    """Archives the log of a publication.

    Args:
        options: the server.
        archive: the archive; locked by the caller.
        limits: when segments are complete.
        allow_gap: whether to go on behind a part of the log that is lost.
        on_segment: told about each segment that was written.
    """

    def __init__(
        self,
        options: SourceOptions,
        archive: WalArchive,
        limits: ArchivingLimits,
        *,
        allow_gap: bool = False,
        on_segment: Callable[[WalSegment], None] = lambda _: None,
    ) -> None:
        self._given = options
        # what is lost must not come from the archive itself; the slot is there before anything is read
        self._options = replace(
            options,
            slot_name=archive.slot,
            publication_name=options.publication,
            starting_position="earliest",
            archive=None,
            archive_key=None,
        )
        self._archive = archive
        self._limits = limits
        self._allow_gap = allow_gap
        self._on_segment = on_segment

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Archive until `stop` is set; with `once`, until the log's end.

        Raises:
            ConfigError: the archive is of another database or publication.
            PositionLostError: the server no longer has the log from the archive's end on.
            StateError: the archive is damaged, or somebody else writes to it.
            TailraceError: the server refuses.
        """
        self._archive.remove_unfinished()
        require_same(self._archive, self._options)
        self._publish()
        start = self._next()
        upto = self._log_end(once=once)
        with closing(Lookout(self._options, self._archive)) as lookout:
            self._archive_from(start, stop, upto, lookout, once=once)

    def _archive_from(
        self, start: _Start, stop: threading.Event, upto: int | None, lookout: Lookout, *, once: bool
    ) -> None:
        while not stop.is_set():
            try:
                stream = self._opened(start.position, stop)
            except PositionLostError as error:
                if error.code not in _LOST or not self._archive.segments:
                    raise
                if not self._allow_gap:
                    raise self._gap(error) from error
                self._allow_gap = False
                drop_lost_slot(self._options)
                start = self._head()
                upto = self._log_end(once=once)  # behind the slot that was made
                continue
            newest = self._archive.segments[-1:]
            try:
                self._follow(stream, start, stop, upto, lookout)
                return
            except (TailraceError, DatabaseError, InterfaceError, OSError) as error:
                failure = translate(error, "archiving the log")
                if not failure.retryable or failure.code == _UNREACHABLE:
                    raise failure from None if failure is error else error
                stop.wait(_PAUSE_S)
                if self._archive.segments[-1:] != newest:
                    start = self._next()
            finally:
                stream.close()

    def _log_end(self, *, once: bool) -> int | None:
        """LSN at which the archiver ends; None: it does not."""
        return log_end_position(self._options).lsn if once else None

    def _opened(self, start: PostgresPosition, stop: threading.Event) -> ReplicationStream:
        def pause(seconds: float) -> None:
            stop.wait(seconds)

        return retrying(
            self._options,
            lambda: ReplicationStream(self._options, start, binary=False, own_slot=True, all_messages=True),
            "archiving the log",
            sleep=pause,
        )

    def _publish(self) -> None:
        """Publish the captured tables, as a stream does; the log has the changes of published tables only."""
        with closing(PostgresSource(self._given)) as source:
            tables = [table.schema for table in source.tables()]
            refused = source.refusals()
            source.publish([table for table in tables if str(table.id) not in refused])
        name = self._options.publication
        if self._run(lambda c: publication.read(c, name)) is None:
            raise ConfigError(
                f"publication `{name}` does not exist",
                "no captured table can be published, and the log has the changes of published tables only",
                "correct `tables`, or create it: CREATE PUBLICATION ... FOR TABLE ...",
                code="TR-8216",
            )

    # -- where to go on -------------------------------------------------------------------------------

    def _next(self) -> _Start:
        if not self._archive.segments:
            return self._head()
        last = self._archive.segments[-1]
        return _Start(last.history.position(last.end), max(last.since_us, last.last_us), begins=False)

    def _head(self) -> _Start:
        """The begin of the slot, which is created if there is none."""
        position = begin_slot(self._options)
        return _Start(position, int(self._run(lambda c: c.value(_CLOCK))), begins=True)

    def _gap(self, error: TailraceError) -> PositionLostError:
        return PositionLostError(
            "the archive cannot go on: the server does not have the log from "
            f"`{lsn_text(self._archive.segments[-1].end)}` on",
            f"{error.message}; {error.detail}",
            "tailrace archive ... --allow-gap goes on with what the server has: streams that need what is "
            "between end with an error",
            code="TR-8208",
        )

    # -- following ------------------------------------------------------------------------------------

    def _follow(
        self,
        stream: ReplicationStream,
        start: _Start,
        stop: threading.Event,
        upto: int | None,
        lookout: Lookout,
    ) -> None:
        """Archive the log from `start` on, until `stop` is set or `upto` is reached."""
        incoming = Incoming(stream, lambda _: True, start.position.lsn, lambda _: True)
        builder = WalSegmentBuilder(
            self._archive,
            stream.history,
            incoming.index,
            database=self._options.database,
            publication=self._options.publication,
            start=start.position.lsn,
            since_us=start.since_us,
            begins=start.begins,
        )
        try:
            while not stop.is_set() and (upto is None or incoming.head < upto):
                came = incoming.next(_POLL_S)
                if came is not None:
                    builder.take(*came, incoming.head)
                    lookout.look_at_times(stream.history)
                is_old = builder.age_s() > self._limits.seconds
                if builder.size >= self._limits.segment_bytes or is_old or builder.is_far:
                    self._commit(stream, builder.finished(), lookout)
            self._commit(stream, builder.finished(at_end=True), lookout)
            stream.send_feedback()
        finally:
            builder.abandon()

    def _commit(self, stream: ReplicationStream, segment: WalSegment | None, lookout: Lookout) -> None:
        """Make a segment count, then confirm it to the server."""
        if segment is None:
            return
        failpoint("archive.segment")
        self._archive.append(segment)
        failpoint("archive.committed")
        stream.confirm(segment.end)
        self._on_segment(segment)
        lookout.look(stream.history)
        lookout.keep()
        if self._limits.expire_s is not None:
            expire(self._archive, self._limits.expire_s)

    def _run(self, operation: Callable[[Connection], T]) -> T:
        connection = ReconnectingConnection(self._options, "archiving the log")
        try:
            return connection.run(operation, "archiving the log")
        finally:
            connection.close()
