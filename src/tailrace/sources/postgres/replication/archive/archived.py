"""The log from a position on: the server's, and an archive's where no slot holds it any longer.

    archive   0/1000000 ... 0/9000000
    slot                        0/8000000 ... 0/A000000      it was lost, and is made anew
    read      <------------------------->|------------->

The archive has what the server sent for the same publication, so a position means the same in both, and so do
the numbers of changes in their transactions. The border is where the archive ends; the stream's new slot is a
copy of the archive's, which holds the log from there on.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import replace

import pyarrow.compute as pc

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, TailraceError
from tailrace.sources.postgres.connection import Connection, connect
from tailrace.sources.postgres.position import PostgresPosition, lsn_text
from tailrace.sources.postgres.replication import mark, slot, timeline
from tailrace.sources.postgres.replication.archive.segment import WalArchive, WalSegment
from tailrace.sources.postgres.replication.archive.session import Descriptions
from tailrace.sources.postgres.replication.stream import LogStream, ReplicationStream
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.waits.notices import say

#: The slot does not hold the log.
_LOST = "TR-4201"
_NEITHER = "TR-4120"
#: A keepalive: `d`, length, `k`, the end of the log, the clock, whether an answer is requested.
_KEEPALIVE = struct.Struct("!cicQQB")


def open_log(options: SourceOptions, start: PostgresPosition, *, binary: bool, own_slot: bool) -> LogStream:
    """The log from a position on, wherever it is.

    Args:
        options: the server, with its archive.
        start: where it begins.
        binary: whether to request values of the server in binary form.
        own_slot: read the stream's slot; else a temporary copy of it.

    Raises:
        PositionLostError: neither the server nor the archive has it.
        TailraceError: as `ReplicationStream`; the archive cannot be read.
    """
    try:
        return ReplicationStream(options, start, binary=binary, own_slot=own_slot)
    except PositionLostError as error:
        if error.code != _LOST or options.archive is None:
            raise
        return ArchivedStream(options, start, error, binary=binary, own_slot=own_slot)


class ArchivedLog:
    """What an archive has of the log from a position on.

    Args:
        archive: the archive.
        history: the log that the server has.
        start: the position.

    Attributes:
        segments: those that hold the log from there on, up to where the archive ends or has a gap.
    """

    def __init__(self, archive: WalArchive, history: History, start: PostgresPosition) -> None:
        self.archive, self.history = archive, history
        self.segments: list[WalSegment] = []
        for segment in reversed(archive.segments):  # a newer section counts where both have it
            if self._is_of_server(segment) and segment.start <= start.lsn <= segment.end:
                self.segments = [segment]
                break
        for segment in archive.segments:
            if not self.segments or segment.number <= self.segments[-1].number:
                continue
            if not segment.continues(self.segments[-1]) or not self._is_of_server(segment):
                break
            self.segments.append(segment)

    def _is_of_server(self, segment: WalSegment) -> bool:
        """Whether a segment is wholly of the log that the server has."""
        return self.history.has(segment.history.position(segment.end))

    @property
    def end(self) -> int | None:
        """LSN up to which it has the log; None: it does not have the position."""
        return self.segments[-1].end if self.segments else None

    def bytes_after(self, start: PostgresPosition) -> Generator[bytes]:
        """What a session gets that begins at a position, up to the end.

        Raises:
            StateError: a segment is damaged.
        """
        described = Descriptions()
        for number, segment in enumerate(self.segments):
            cut = segment.preamble if number else self._first_of(segment, start)
            at = 0
            for piece in self.archive.pieces(segment):
                skipped = min(max(cut - at, 0), len(piece))
                if skipped:
                    described.learn(piece[:skipped])
                if skipped < len(piece):
                    yield from filter(None, described.sent(piece[skipped:]))
                at += len(piece)
            yield _keepalive(segment.end)

    def _first_of(self, segment: WalSegment, start: PostgresPosition) -> int:
        """Offset in a segment of the first transaction that is not before a position."""
        table = self.archive.transactions(segment)
        later = table.filter(pc.greater_equal(table.column("commit_lsn"), start.lsn))
        return int(later.column("start")[0].as_py()) if len(later) else segment.content


class ArchivedStream:
    """The log from a position on, first an archive's, then the server's: see `LogStream`.

    Args:
        options: the server, with its archive.
        start: where it begins.
        lost: why the slot does not do.
        binary: whether to request values of the server in binary form.
        own_slot: whether the stream's slot is read behind the archive's end, and made anew if it is lost.

    Raises:
        PositionLostError: the archive does not have the log either, or no slot leads on from its end.
    """

    def __init__(
        self,
        options: SourceOptions,
        start: PostgresPosition,
        lost: PositionLostError,
        *,
        binary: bool,
        own_slot: bool,
    ) -> None:
        self.doing = f"reading the archived log of `{options.database}` from {start}"
        self._options, self._binary, self._own_slot = options, binary, own_slot
        self._server: LogStream | None = None
        self._confirmed = 0
        with connect(options, purpose="reading the archived log", replication=True) as connection:
            log = archived_log(connection, options, start)
            log.history.require(start, options)
            if log.end is None or (log.end == start.lsn and not own_slot):
                raise not_in_archive(log, start, lost)
            if own_slot:
                ensure_slot(connection, options, log.archive, start)
                # it may have grown before the slot was copied
                log = archived_log(connection, options, start)
            if (end := log.end) is None:
                raise not_in_archive(log, start, lost)
            if own_slot:
                _require_reached(slot.read(connection, options.slot), end)
            self.history = log.history
            self._archive, self._end = log.archive, log.history.position(end)
        self._chunks = log.bytes_after(start)
        self._ready = memoryview(b"")

    def refusal(self, payload: bytes) -> TailraceError:
        """The error for an ErrorResponse within the stream."""
        assert self._server is not None  # an archive has none
        return self._server.refusal(payload)

    def receive(self, room: memoryview, timeout_s: float) -> int:
        """Receive into `room`; return the number of bytes, 0 on a timeout or when `wake` was called."""
        if self._server is not None:
            return self._server.receive(room, timeout_s)
        if not self._ready:
            self._ready = memoryview(next(self._chunks, b""))
        if not self._ready:
            self._server = self._behind()
            if not self.history.is_same_server(self._server.history):
                raise ConnectionResetError("the server was replaced or restarted while the archive was read")
            self._server.confirm(self._confirmed)
            return 0
        count = min(len(room), len(self._ready))
        room[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _behind(self) -> LogStream:
        """The log from the archive's end on."""
        try:
            return open_log(self._options, self._end, binary=self._binary, own_slot=self._own_slot)
        except PositionLostError as error:
            if self._own_slot or error.code not in (_LOST, _NEITHER):
                raise
            options = replace(
                self._options, slot_name=self._archive.slot, publication_name=self._options.publication
            )
            return ReplicationStream(options, self._end, binary=self._binary, own_slot=False)

    def received(self, lsn: int) -> None:
        """Note that all below `lsn` has been received."""
        if self._server is not None:
            self._server.received(lsn)

    def confirm(self, lsn: int) -> None:
        """Confirm that nothing below `lsn` is needed."""
        self._confirmed = max(self._confirmed, lsn)
        if self._server is not None:
            self._server.confirm(lsn)

    def wake(self) -> None:
        """End a waiting `receive`; may be called by another thread."""
        if self._server is not None:
            self._server.wake()

    def send_feedback(self) -> None:
        """Send our position to the server, if it is read."""
        if self._server is not None:
            self._server.send_feedback()

    def close(self) -> None:
        """End the stream."""
        self._chunks.close()
        if self._server is not None:
            self._server.close()


def _require_reached(found: slot.Slot | None, end: int) -> None:
    """Refuse a slot that begins behind the archive's end."""
    if found is not None and found.confirmed is not None and found.confirmed > end:
        raise PositionLostError(
            "neither the server nor the archive holds the log behind the archive's end",
            f"the archive ends at {lsn_text(end)}, replication slot `{found.name}` begins at "
            f"{lsn_text(found.confirmed)}",
            "let `tailrace archive` catch up; or remove the slot: it is made anew",
            code="TR-4120",
        )


def _keepalive(end: int) -> bytes:
    """What says that the log was sent up to an LSN."""
    return _KEEPALIVE.pack(b"d", _KEEPALIVE.size - 1, b"k", end, 0, 0)


def archived_log(connection: Connection, options: SourceOptions, start: PostgresPosition) -> ArchivedLog:
    """What the archive of a stream has from a position on.

    Args:
        connection: a replication connection to the server.
        options: the server, with its archive.
        start: the position.

    Raises:
        ConfigError: the archive is of another database or publication.
        StateError: it is damaged.
    """
    assert options.archive is not None
    archive = WalArchive(options.archive, options.archive_key)
    require_same(archive, options)
    # asked for last: it has all that is archived
    return ArchivedLog(archive, timeline.read(connection, options), start)


def ranges(archive: WalArchive) -> str:
    """What an archive has, for people."""
    found: list[list[WalSegment]] = []
    for segment in archive.segments:
        if found and segment.continues(found[-1][-1]):
            found[-1].append(segment)
        else:
            found.append([segment])
    texts = [f"`{r[0].bounds[0]}` to `{r[-1].bounds[1]}`" for r in found]
    return ", ".join(texts) or "nothing"


def require_same(archive: WalArchive, options: SourceOptions) -> None:
    """Refuse an archive of another database or publication. Raises ConfigError."""
    if not archive.segments:
        return
    last = archive.segments[-1]
    for what, found, needed in (
        ("database", options.database, last.database),
        ("publication", options.publication, last.publication),
    ):
        if found != needed:
            raise ConfigError(
                f"the archive is of another {what}",
                f"it is of {what} `{needed}`, the source has `{found}`",
                "give another archive, or let the pipelines share a publication: `publicationName`",
                code="TR-8215",
            )


def not_in_archive(log: ArchivedLog, start: PostgresPosition, lost: PositionLostError) -> PositionLostError:
    """The error for a position that neither the server nor the archive has."""
    return PositionLostError(
        f"neither the server nor the archive holds the log from `{start}` on",
        f"the archive has {ranges(log.archive)}; {lost.message}: {lost.detail}",
        "let `tailrace archive` catch up if it is behind; if the range is lost: set onPositionLost: refresh "
        "to read every table again",
        code="TR-4120",
    )


def ensure_slot(
    connection: Connection, options: SourceOptions, archive: WalArchive, start: PostgresPosition
) -> None:
    """Make the stream's slot anew if it is lost or missing: a copy of the archive's.

    It then begins at or below the end of the archive as it is read next.

    Args:
        connection: a replication connection.
        options: with the slot's name.
        archive: the archive.
        start: the stream's position.

    Raises:
        ConfigError: the slot cannot serve the stream, or is not marked as a stream's.
        PositionLostError: the archive's slot does not exist, is lost, or begins behind what the archive has.
    """
    existing = slot.read(connection, options.slot)
    if existing is not None:
        slot.require_ours(existing, options)
        if not existing.is_lost:
            return
    source = slot.read(connection, archive.slot)
    end = archived_log(connection, options, start).end  # its slot is confirmed what it has
    if source is None or source.is_lost or source.confirmed is None or source.confirmed > (end or 0):
        raise PositionLostError(
            "no replication slot holds the log behind the archive's end",
            f"the archive has {ranges(archive)}; its slot `{archive.slot}` does not exist, is lost or begins "
            "behind a gap",
            "let `tailrace archive` catch up; if it ends with TR-8208, that part of the log is lost: set "
            "onPositionLost: refresh to read every table again",
            code="TR-4120",
        )
    if existing is not None:
        mark.require(mark.read(connection, options.publication), options.slot, start.server)
        slot.drop(connection, options.slot)
    mark.add(connection, options.publication, options.slot, start.server)
    slot.copy(connection, archive.slot, options.slot)
    say(f"replication slot `{options.slot}` is made anew, from where the archive ends")
