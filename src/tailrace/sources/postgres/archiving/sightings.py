"""What the archiver has seen of tables: up to where each is known to have been the same.

A base counts only where something later shows that its table has been the same since (`table_state`). So that
a table can be restored that was dropped or altered, and of which nobody took a base shortly before, the
archiver looks at the catalog now and then, and notes what it sees as of a position:

    clock C, the log on disk ends at L    our own transaction X    a snapshot: all before X have ended

What commits below L, or is stamped before C, had its number before X. So the snapshot shows all of that, and
perhaps more: a table that is there what it was in a base was so at L and at C, as no identity comes back.
The log below L is on disk: a crash takes nothing from it.

A table has a list of sightings, one for each identity that it has had. They are kept in one file of the
archive, which is replaced; without it restoring needs other evidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableId
from tailrace.sources.archive.sealing import HEADER, SealedReader, SealedWriter, damaged
from tailrace.sources.postgres.archiving.moment import read_tables, state_of
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.postgres.replication.timeline import History

#: The file in the archive, its version, and how large it can be.
_NAME, _VERSION, _MOST_BYTES = "sightings", 1, 256 << 20
#: How often to look while the log grows, seconds.
_PAUSE_S = 5.0
_DOING = "looking at the captured tables"
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"


@dataclass(frozen=True)
class Sighting:
    """A table as it was from one position to another.

    Args:
        identity: `TableState.identity`; "" where it was not there, or not in the log.
        oid: its object id, 0 likewise.
        since: where it was seen first.
        until: where it was seen last.
        clock_us: the server's clock before that, microseconds since 1970 UTC.
    """

    identity: str
    oid: int
    since: PostgresPosition
    until: PostgresPosition
    clock_us: int

    @classmethod
    def of(cls, state: TableState | None, position: PostgresPosition, clock_us: int) -> Sighting:
        """A state at a position."""
        identity, oid = ("", 0) if state is None else (state.identity, state.oid)
        return cls(identity, oid, position, position, clock_us)

    def joined(self, later: Sighting, history: History) -> Sighting | None:
        """This and a later sighting as one; None if the table may have been another between."""
        if self.identity != later.identity or not history.leads_to(self.until):
            return None
        return replace(later, since=self.since)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        positions = {"since": self.since.to_json(), "until": self.until.to_json()}
        return {"identity": self.identity, "oid": self.oid, **positions, "clock_us": self.clock_us}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sighting:
        """What `to_json` wrote. Raises KeyError, TypeError, ValueError or AttributeError."""
        since, until = (PostgresPosition.from_json(value[name]) for name in ("since", "until"))
        if not all(isinstance(text, str) for p in (since, until) for text in (p.server, p.timeline)):
            raise TypeError
        return cls(str(value["identity"]), int(value["oid"]), since, until, int(value["clock_us"]))


def sightings(archive: WalArchive) -> dict[str, list[Sighting]]:
    """The sightings of each table, in the order in which they were made.

    Raises:
        StateError: the file is damaged.
    """
    data = archive.store.read(_NAME, _MOST_BYTES)
    if data is None:
        return {}
    frames = list(SealedReader(BytesIO(data), _NAME, archive.key).frames(_MOST_BYTES))
    try:
        (frame,) = frames
        value = json.loads(frame.data or b"")
        if value["v"] != _VERSION:  # a newer version wrote it
            return {}
        return {str(name): [Sighting.from_json(s) for s in of] for name, of in value["tables"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged(_NAME, "it does not list what was seen of tables") from None


class Lookout:
    """Looks at the captured tables, and keeps in the archive what it sees.

    Args:
        options: the server.
        archive: the archive; locked by the caller.
    """

    def __init__(self, options: SourceOptions, archive: WalArchive) -> None:
        self._options, self._archive = options, archive
        self._connection = ReconnectingConnection(options, _DOING)
        self._seen = sightings(archive)
        self._is_kept = True
        #: Of a look that waits for others to end: the server's start time, its clock, the end of its log and
        #: the number of our own transaction.
        self._waiting: tuple[str, int, int, int] | None = None
        self._looked = -_PAUSE_S

    def look_at_times(self, history: History) -> None:
        """Look, if the last look was some time ago."""
        if time.monotonic() - self._looked >= _PAUSE_S:
            self.look(history)

    def look(self, history: History) -> None:
        """Look at the catalog; what is seen counts once all transactions of then have ended.

        Args:
            history: the log that is archived.

        Raises:
            TailraceError: the server refuses, or cannot be reached.
        """
        self._looked = time.monotonic()
        self._connection.run(lambda connection: self._look(connection, history), _DOING)

    def _look(self, connection: Connection, history: History) -> None:
        in_recovery, started = connection.rows(
            "SELECT pg_is_in_recovery(), pg_postmaster_start_time()::text"
        )[0]
        if in_recovery or started != history.started:
            self._waiting = None
            return
        if self._waiting is None or self._waiting[0] != started:  # a promoted standby has another log
            clock_us = int(connection.value(_CLOCK))
            flushed = parse_lsn(connection.value("SELECT pg_current_wal_flush_lsn()::text"))
            self._waiting = started, clock_us, flushed, int(connection.value("SELECT txid_current()"))
        _, clock_us, flushed, own = self._waiting
        connection.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        oldest = int(connection.value("SELECT txid_snapshot_xmin(txid_current_snapshot())"))
        if oldest >= own:
            published, tables = read_tables(connection, self._options)
            states = {id_: state_of(table, published) for id_, table in tables.items()}
            self._note(states, history.position(flushed), clock_us, history)
            self._waiting = None
        connection.rows("ROLLBACK")

    def _note(
        self,
        states: Mapping[TableId, TableState | None],
        position: PostgresPosition,
        clock_us: int,
        history: History,
    ) -> None:
        by_name = {str(table): state for table, state in states.items()}
        for name in self._seen.keys() | by_name.keys():
            of = self._seen.get(name, [])
            now = Sighting.of(by_name.get(name), position, clock_us)
            if of and (joined := of[-1].joined(now, history)) is not None:
                of = [*of[:-1], joined]
            elif of or now.identity:
                of = [*of, now]
            self._seen[name] = of
        self._is_kept = False

    def keep(self) -> None:
        """Write what was seen; what lies below the archive's begin is left out."""
        if self._is_kept or not self._archive.segments:
            return
        oldest = self._archive.segments[0]
        kept = {}
        for name, of in self._seen.items():
            left = [s for s in of if s.until.server != oldest.server or s.until.lsn >= oldest.start]
            if any(s.identity for s in left):
                kept[name] = left
        self._seen = kept
        value = {"v": _VERSION, "tables": {name: [s.to_json() for s in of] for name, of in kept.items()}}
        buffer = BytesIO()
        writer = SealedWriter(buffer, _NAME, self._archive.key)
        writer.write(HEADER, json.dumps(value).encode())
        writer.end()
        self._archive.store.write(_NAME, buffer.getvalue())
        self._is_kept = True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
