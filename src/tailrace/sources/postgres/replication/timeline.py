"""Which log a server has: a promoted standby shares its primary's up to where it was promoted.

    timeline 1  ─────────┬─────▶        the old primary; nobody has what it wrote behind the switch
    timeline 2           └───────▶      the promoted standby, from the switch on

Behind a switch the same LSN means other transactions on either side, and the server takes an LSN for what it
is: told to stream from behind its log's end it waits, told to stream from behind the switch it leaves out
what lies between. Both would lose changes without a word. So a position names the timeline that it lies on,
and every connection that is to read from a position first asks for the server's history.

A timeline's number alone would not do: two standbys of one primary that are promoted one after the other both
begin number 2. They begin it at different places, so the place is part of the name.

Source: PostgreSQL manual, "Timelines", "IDENTIFY_SYSTEM", "TIMELINE_HISTORY".
"""

from __future__ import annotations

from dataclasses import dataclass

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError, SourceError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.literal import string
from tailrace.sources.postgres.position import PostgresPosition, lsn_text, parse_lsn

_BYTEA = 17
#: The file is not there (any more), or it is no PostgreSQL that has such files.
_NO_HISTORY = frozenset({"58P01", "0A000", "42601", "42501"})


@dataclass(frozen=True)
class History:
    """A server's log: the timelines that it consists of.

    Args:
        server: system identifier.
        switches: number of each earlier timeline and where it ends, oldest first.
        timeline: number of the last one; 0: not known.
        end: where the log ends.
        started: when the server was started: tells one from another, and from itself before a restart.
        in_recovery: whether the server is a standby.
    """

    server: str
    switches: tuple[tuple[int, int], ...]
    timeline: int
    end: int
    started: str = ""
    in_recovery: bool = False

    def position(self, lsn: int, ts_ms: int = 0) -> PostgresPosition:
        """An LSN of this log."""
        return PostgresPosition(lsn, self.server, ts_ms, self._name_at(lsn))

    def leads_to(self, position: PostgresPosition) -> bool:
        """Whether `position` lies in this log, or where it may come to, as far as can be known."""
        if not self.timeline or not position.timeline:
            return position.server == self.server
        return position.server == self.server and self._name_at(position.lsn) == position.timeline

    def has(self, position: PostgresPosition, end: int = 0) -> bool:
        """Whether all that lies before `position` is in this log, as far as can be known.

        Args:
            position: on whatever server's log.
            end: how far this log is known to have come meanwhile.
        """
        return self.leads_to(position) and position.lsn <= max(self.end, end)

    def require(self, position: PostgresPosition, options: SourceOptions, end: int = 0) -> None:
        """Raise what it means that the log does not have `position`, unless it has.

        Args:
            position: on whatever server's log.
            options: name the server.
            end: how far this log is known to have come meanwhile.

        Raises:
            PositionLostError: it is of another server, or was read from one that had more.
            TransientSourceError: the server is a standby that has not received so much yet.
        """
        if position.server != self.server:
            raise another_server(options, position.server, self.server)
        if self.has(position, end):
            return
        where = f"`{options.host}:{options.port}`"
        if self.in_recovery:
            raise TransientSourceError(
                f"the standby at {where} has not received the log up to the stream's position {position}",
                f"it ends at {lsn_text(self.end)}",
            )
        raise PositionLostError(
            f"the server at {where} lacks changes that the stream has read already, up to {position}",
            f"that position is of timeline {_spoken(position.timeline)}; {self._told(position)}",
            "let the server answer again that had them; or take what was committed behind there for lost: "
            "tailrace drop, then begin a new stream with a new checkpoint. With PostgreSQL 17 and later name "
            "each standby's slot in synchronized_standby_slots: then nothing is read that a standby lacks",
        )

    def goes_beyond(self, position: PostgresPosition) -> bool:
        """Whether the server has been promoted behind `position`."""
        return bool(self.timeline and position.timeline) and position.timeline != self._name_at(self.end)

    def _name_at(self, lsn: int) -> str:
        """The timeline that holds an LSN, "" if it is not known."""
        if not self.timeline:
            return ""
        begin = 0
        for number, end in self.switches:
            if lsn <= end:
                return f"{number}@{lsn_text(begin)}"
            begin = end
        return f"{self.timeline}@{lsn_text(begin)}"

    def _told(self, position: PostgresPosition) -> str:
        """What there is in place of it."""
        begin = 0
        for number, end in self.switches:
            if position.timeline == f"{number}@{lsn_text(begin)}":
                return f"the server was promoted at {lsn_text(end)} of it, and what came behind is not there"
            begin = end
        if position.timeline in ("", self._name_at(self.end)):
            return f"the server's log ends at {lsn_text(self.end)}"
        return f"the server's log has other timelines, the last from {lsn_text(begin)} on"


@network.sensible("what it is")
def read(connection: Connection, options: SourceOptions) -> History:
    """The history of the server that answers on a walsender's connection.

    Raises:
        TransientSourceError: it is a standby that only keeps the stream's slot until it is promoted.

    Raises pg8000's errors too.
    """
    server, timeline, end = connection.rows("IDENTIFY_SYSTEM")[0][:3]
    in_recovery, started = connection.rows("SELECT pg_is_in_recovery(), pg_postmaster_start_time()::text")[0]
    switches: tuple[tuple[int, int], ...] | None = ()
    if in_recovery:
        _require_no_copy(connection, options)
        switches = None  # it may be promoted while we read, and then names of timelines would be wrong
    elif timeline > 1:
        switches = _switches(connection, timeline)
    known = int(timeline) if switches is not None else 0
    return History(str(server), switches or (), known, parse_lsn(end), started, in_recovery)


def another_server(options: SourceOptions, wanted: str, found: str) -> SourceError:
    """What to raise when a server answers that is neither the stream's nor a standby of that."""
    return PositionLostError(
        f"another server answers at `{options.host}:{options.port}`",
        f"the stream's position is of the system {wanted}, found {found}",
        "point url at that server or a standby of it, or begin a new stream with a new checkpoint",
    )


def _switches(connection: Connection, timeline: int) -> tuple[tuple[int, int], ...] | None:
    """Earlier timelines and where they end; None if the server does not know."""
    connection.take_as_text(_BYTEA)  # up to 14 the file's text comes under that type
    try:
        text = str(connection.rows(f"TIMELINE_HISTORY {timeline}")[0][1])
    except DatabaseError as error:
        if sqlstate(error) not in _NO_HISTORY:
            raise
        return None
    fields = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((int(number), parse_lsn(end)) for number, end, *_ in fields)


def _require_no_copy(connection: Connection, options: SourceOptions) -> None:
    """Nobody can read a slot that the standby only copies from its primary."""
    if connection.version < 17:
        return
    copied = connection.value(
        f"SELECT synced FROM pg_catalog.pg_replication_slots WHERE slot_name = {string(options.slot)}"
    )
    if copied:
        raise TransientSourceError(
            f"the server at `{options.host}:{options.port}` is a standby that is not promoted yet",
            f"it holds replication slot `{options.slot}` for its primary",
            "promote it: SELECT pg_promote(); or point url at the primary",
        )


def _spoken(timeline: str) -> str:
    number, _, begin = timeline.partition("@")
    return f"{number} (from {begin} on)" if begin else "unknown"
