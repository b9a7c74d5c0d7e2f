"""Exported snapshots: the database exactly as of a position, for every task that imports one.

A temporary slot's consistent point C and the snapshot that comes with it are the same moment: the snapshot
shows the transactions that commit below C and no other, whether or not the server shows them to others yet (a
commit that waits for a synchronous standby is in the log, and no ordinary SELECT sees it). So a batch that
reads rows ends at C.

    next ──thread: CREATE_REPLICATION_SLOT … EXPORT_SNAPSHOT──▶ pending ──▶ current, until the next is used

An export takes milliseconds, but waits for transactions that write at that moment, and for those that a
long-running one blocks: so a thread does it, and batches without rows continue meanwhile. The connection of
the export must stay idle for as long as the snapshot is kept. It holds back vacuum, so no snapshot is kept
for longer than its batch needs.

Source: PostgreSQL manual, "CREATE_REPLICATION_SLOT", "SET TRANSACTION SNAPSHOT".
"""

from __future__ import annotations

import select
import threading
import time
from dataclasses import dataclass, field

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError, TransientSourceError
from tailrace.sources.postgres.connection import Connection, connect, retrying
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication import slot, timeline
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.replication.waiting import Watch


@dataclass(frozen=True)
class Snapshot:
    """An exported snapshot.

    Args:
        lsn: the snapshot shows the transactions below.
        name: the name to import it by.
        connection: the connection that keeps it.
        history: the log of the server that keeps it.
        made_at: when it was exported, monotonic seconds.
    """

    lsn: int
    name: str
    connection: Connection
    history: History
    made_at: float = field(default_factory=time.monotonic)

    @property
    def position(self) -> PostgresPosition:
        """Where it stands."""
        return self.history.position(self.lsn)

    def shows(self, position: PostgresPosition) -> bool:
        """Whether it is as of `position`."""
        return self.lsn == position.lsn and self.history.leads_to(position)

    @property
    def is_kept(self) -> bool:
        """Whether the server still keeps it, as far as this process knows."""
        if not self.connection.is_open:
            return False
        readable, _, _ = select.select([self.connection.socket], [], [], 0)
        return not readable  # the server sends bytes only to say that it ends the session


class Snapshots:
    """The snapshot that tasks may import now, and the next one, which a thread exports.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._current: Snapshot | None = None
        self._pending: Snapshot | None = None
        self._failure: TailraceError | None = None
        self._thread: threading.Thread | None = None
        self._making: Connection | None = None
        self._watch: Watch | None = None
        #: Counts cancelled requests: a snapshot that was requested before is discarded.
        self._epoch = 0

    def current(self) -> Snapshot | None:
        """The snapshot that was used last, if it is still kept."""
        with self._changed:
            if self._current is not None and not self._current.is_kept:
                self._let_go(self._current)
                self._current = None
            return self._current

    def next(self, timeout_s: float) -> Snapshot | None:
        """The next snapshot; None if it is not ready in time, while its export continues.

        Raises:
            TailraceError: it cannot be exported.
        """
        with self._changed:
            if self._pending is not None and not self._pending.is_kept:
                self._let_go(self._pending)
                self._pending = None
            if self._pending is None and self._thread is None:
                self._thread = threading.Thread(
                    target=self._make, args=(self._epoch,), name="tailrace-snapshot", daemon=True
                )
                self._thread.start()
            self._changed.wait_for(lambda: self._pending is not None or self._failure is not None, timeout_s)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            return self._pending

    def within(self, timeout_s: float) -> Snapshot:
        """The next snapshot.

        Raises:
            TransientSourceError: it is not ready in time.
            TailraceError: it cannot be exported.
        """
        made = self.next(timeout_s)
        if made is None:
            raise self.waits() or TransientSourceError(
                "no snapshot could be exported yet",
                f"it was not ready after {timeout_s:.0f} s",
                code="TR-2209",
            )
        return made

    def waits(self) -> TransientSourceError | None:
        """The error that says whom the export waits for, None if that is not known."""
        with self._changed:
            known = self._watch is not None and self._watch.waits_for is not None
            return self._watch.error() if self._watch is not None and known else None

    def use(self, snapshot: Snapshot) -> Snapshot:
        """Make a snapshot that `next` returned the current one; release the one before."""
        with self._changed:
            if snapshot is self._pending:
                if self._current is not None:
                    self._let_go(self._current)
                self._current, self._pending = snapshot, None
            return snapshot

    def keep_those_of(self, history: History) -> None:
        """Release the snapshots that another server kept: it may be gone without closing its connections."""
        with self._changed:
            held = [s for s in (self._current, self._pending) if s is not None]
        if any(s.history.started != history.started for s in held):
            self.discard()

    def discard(self) -> None:
        """Release all snapshots, also the one that is being exported."""
        with self._changed:
            self._epoch += 1
            for snapshot in (self._current, self._pending):
                if snapshot is not None:
                    self._let_go(snapshot)
            if self._making is not None:
                if self._making.is_open:  # else it waits on, and its slot stays
                    self._making.cancel()
                self._making.break_off()
            self._current = self._pending = self._failure = self._thread = self._making = None

    def _make(self, epoch: int) -> None:
        try:
            made = retrying(self._options, lambda: self._attempt(epoch), "exporting a snapshot")
        except TailraceError as error:
            with self._changed:
                if epoch == self._epoch:
                    self._failure, self._thread = error, None
                    self._changed.notify_all()
            return
        if made is None:
            return
        with self._changed:
            if epoch != self._epoch:
                self._let_go(made)
                return
            self._pending, self._thread, self._making = made, None, None
            self._changed.notify_all()

    def _attempt(self, epoch: int) -> Snapshot | None:
        """A snapshot, None when its request was cancelled."""
        connection = connect(self._options, purpose="exporting a snapshot", replication=True)
        with self._changed:
            if epoch != self._epoch:
                connection.close()
                return None
            self._making = connection
        try:
            history = timeline.read(connection, self._options)
            with Watch(self._options, connection, "exporting a snapshot") as self._watch:
                lsn, name = slot.create_for_snapshot(connection)
        except BaseException:
            connection.close()
            if epoch != self._epoch:
                return None
            raise
        return Snapshot(lsn, name, connection, history)

    @staticmethod
    def _let_go(snapshot: Snapshot) -> None:
        snapshot.connection.break_off()
