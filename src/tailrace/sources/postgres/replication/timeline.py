"""Timelines: a promoted standby shares its primary's log up to its promotion.

    timeline 1  ─────────┬─────▶        the old primary; no other server has its log behind the switch
    timeline 2           └───────▶      the promoted standby, from the switch on

Behind a switch the same LSN means different transactions on either side, and the server does not check: asked
to stream from behind its log's end it waits, asked to stream from behind the switch it leaves out the
transactions in between. Both would silently lose changes. So a position names the timeline that it lies on,
and every connection that reads from a position first asks for the server's history.

A timeline's number alone is not enough: two standbys of one primary that are promoted one after the other
both begin number 2. They begin it at different LSNs, so the LSN is part of the name.

Source: PostgreSQL manual, "Timelines", "IDENTIFY_SYSTEM", "TIMELINE_HISTORY".
"""

from __future__ import annotations

from dataclasses import dataclass

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError, SourceError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.position import PostgresPosition, lsn_text, parse_lsn
from tailrace.sources.postgres.protocol.literal import string

_BYTEA = 17
#: The file does not, or no longer, exist; or the server is a PostgreSQL variant without such files.
_NO_HISTORY = frozenset({"58P01", "0A000", "42601", "42501"})


@dataclass(frozen=True)
class History:
    """A server's log: the timelines that it consists of.

    Args:
        server: system identifier.
        switches: number of each earlier timeline and where it ends, oldest first.
        timeline: number of the last one; 0: not known.
        end: where the log ends.
        started: when the server was started: differs between servers, and after a restart.
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
        """Whether `position` lies in this log or in its future, as far as can be known."""
        if not self.timeline or not position.timeline:
            return position.server == self.server
        return position.server == self.server and self._name_at(position.lsn) == position.timeline

    def has(self, position: PostgresPosition, end: int = 0) -> bool:
        """Whether all that lies before `position` is in this log, as far as can be known.

        Args:
            position: a position in any server's log.
            end: a later end of this log, if one is known.
        """
        return self.leads_to(position) and position.lsn <= max(self.end, end)

    def require(self, position: PostgresPosition, options: SourceOptions, end: int = 0) -> None:
        """Check that the log has everything up to `position`.

        Args:
            position: a position in any server's log.
            options: name the server.
            end: a later end of this log, if one is known.

        Raises:
            PositionLostError: it belongs to another server, or to one that had a longer log.
            TransientSourceError: the server is a standby that has not received that much yet.
        """
        if position.server != self.server:
            raise another_server(options, position.server, self.server)
        if self.has(position, end):
            return
        where = f"`{options.host}:{options.port}`"
        if self.in_recovery:
            raise TransientSourceError(
                f"the standby at {where} has not received the log up to the stream's position `{position}`",
                f"it ends at {lsn_text(self.end)}",
                code="TR-4109",
            )
        raise PositionLostError(
            f"the server at {where} lacks changes that the stream has already read, up to `{position}`",
            f"that position is on timeline {_described(position.timeline)}; {self._found_instead(position)}",
            "restore the old primary; or accept losing the changes after that position, and set "
            "onPositionLost: refresh to read every table again. With PostgreSQL 17 and later, "
            "list each standby's slot in synchronized_standby_slots: then the stream reads nothing that a "
            "standby lacks",
            code="TR-4102",
        )

    def is_same_server(self, other: History) -> bool:
        """Whether the same server tells both, and was neither promoted nor restarted between."""
        mine, its = ((h.server, h.switches, h.timeline, h.started) for h in (self, other))
        return mine == its

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

    def _found_instead(self, position: PostgresPosition) -> str:
        """What the log has in place of a position."""
        begin = 0
        for number, end in self.switches:
            if position.timeline == f"{number}@{lsn_text(begin)}":
                return f"the server was promoted at {lsn_text(end)} of it and lacks the log behind"
            begin = end
        if position.timeline in ("", self._name_at(self.end)):
            return f"the server's log ends at {lsn_text(self.end)}"
        return f"the server's log has other timelines, the last from {lsn_text(begin)} on"


@network.sensible("what it is")
def read(connection: Connection, options: SourceOptions) -> History:
    """The history of the server that answers on a walsender's connection.

    Raises:
        TransientSourceError: it is a standby that is not promoted yet and only keeps the stream's slot.

    Raises pg8000's errors too.
    """
    server, timeline, end = connection.rows("IDENTIFY_SYSTEM")[0][:3]
    in_recovery, started = connection.rows("SELECT pg_is_in_recovery(), pg_postmaster_start_time()::text")[0]
    switches: tuple[tuple[int, int], ...] | None = ()
    if in_recovery:
        _require_no_copy(connection, options)
        switches = None  # a promotion while we read would make the names of timelines wrong
    elif timeline > 1:
        switches = _switches(connection, timeline)
    known = int(timeline) if switches is not None else 0
    return History(str(server), switches or (), known, parse_lsn(end), started, in_recovery)


def another_server(options: SourceOptions, expected: str, found: str) -> SourceError:
    """The error for a server that is neither the stream's nor a standby of it."""
    return PositionLostError(
        f"another server answers at `{options.host}:{options.port}`",
        f"the stream's position is of the system {expected}, the server is {found}",
        "point url at that server or a standby of it, or start a new stream with a new checkpoint",
        code="TR-4104",
    )


def _switches(connection: Connection, timeline: int) -> tuple[tuple[int, int], ...] | None:
    """Earlier timelines and where they end; None if the server does not know."""
    connection.take_as_text(_BYTEA)  # up to 14 the file's text has that type
    try:
        text = str(connection.rows(f"TIMELINE_HISTORY {timeline}")[0][1])
    except DatabaseError as error:
        if sqlstate(error) not in _NO_HISTORY:
            raise
        return None
    fields = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((int(number), parse_lsn(end)) for number, end, *_ in fields)


def _require_no_copy(connection: Connection, options: SourceOptions) -> None:
    """Refuse a standby's slot that it only copies from its primary: nobody can read it."""
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
            code="TR-4109",
        )


def _described(timeline: str) -> str:
    number, _, begin = timeline.partition("@")
    return f"{number} (from {begin} on)" if begin else "unknown"
