"""Restoring a table of PostgreSQL: its rows as of a time, from a base of the archive and the log behind it.

    base B ----------- P (the time) ------- W a later base, a sighting, or now
      |---- the log ---->|                  |
      |---------- the table is the same ----|

The log of PostgreSQL does not tell schema changes, nor that a table was not published for a time. So a base
counts only where something later than P shows that the table has been the same since (`table_state`): another
base, what the archiver has seen (`sightings`), or the catalog as of now. Then the log from B to P has all
changes, and they lead from the rows of B to those of P (`reader.forward`; `reader.forward_rows` without a
key), or there is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError
from tailrace.model.table import TableId
from tailrace.pipeline.restored_table import Restored
from tailrace.reader.forward import carried_forward
from tailrace.reader.forward_rows import rows_carried_forward
from tailrace.sources.archive.bases import Base, base_rows, bases
from tailrace.sources.archive.sealing import damaged
from tailrace.sources.postgres.archiving.at_time import TimeInLog, server_history, time_in_log
from tailrace.sources.postgres.archiving.keeping import CLOCK, STATES
from tailrace.sources.postgres.archiving.moment import Moment
from tailrace.sources.postgres.archiving.sightings import Sighting, sightings
from tailrace.sources.postgres.archiving.table_log import KeptTable, table_changes
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.position import PostgresPosition, lsn_text
from tailrace.sources.postgres.replication.archive.archived import require_same
from tailrace.sources.postgres.replication.archive.segment import WalArchive, time_text


def restored(options: SourceOptions, table: TableId, at_us: int) -> Restored:
    """A table as of a time; the log is read while the rows are taken.

    Args:
        options: the source, with its archive.
        table: the table.
        at_us: the rows are as of the first transaction, in the order of commits, that was committed then or
            later, without it; microseconds since 1970 UTC.

    Raises:
        ConfigError: the archive does not have the time; or it is of another database or publication.
        SourceError: nothing is there from which the rows could be made for certain.
        StateError: the archive is damaged.
        TailraceError: the server refuses, or cannot be reached.
    """
    if options.archive is None:
        raise _nothing(table, "", ["there is no archive: set `source.archive`"])
    archive = WalArchive(options.archive, options.archive_key)
    require_same(archive, options)
    at = time_in_log(options, at_us)
    history = server_history(options)
    found = [base for base in map(_KeptBase, bases(archive)) if history.leads_to(base.position)]
    seen = [s for s in sightings(archive).get(str(table), ()) if history.leads_to(s.until)]
    seen += [Sighting.of(base.state(table), base.position, base.clock_us) for base in found]
    witness = _Witness(options, table, at, seen)
    reasons = []
    for base in sorted(found, key=lambda base: base.position.lsn, reverse=True):
        its, state = base.base.table(str(table)), base.state(table)
        if its is None or base.position.lsn > at.position.lsn:
            continue
        if base.position.lsn < at.since:
            why = f"behind it, the log up to `{lsn_text(at.since)}` is not, or not wholly, in the archive"
        elif state is None:
            why = "another version of Tailrace wrote it"
        elif (sure := witness.sure(state)) is None:
            why = witness.reason(state)
        else:
            kept = KeptTable(its.schema, state, base.position)
            only = options.capturing_only(str(table))
            changes = table_changes(only, kept, at.position, slot=archive.slot, sure=sure)
            carried = carried_forward if its.schema.key else rows_carried_forward
            rows = carried(base_rows(archive, base.base, its), its.schema, changes)
            return Restored(its.schema, rows, at.position, f"the base at `{base.position}`")
        reasons.append(f"the base at `{base.position}`: {why}")
    raise _nothing(table, f"`{at.position}`", reasons or ["no base of the archive from before has it"])


class _KeptBase:
    """A base, with what it says of its tables.

    Raises:
        StateError: it is damaged.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        try:
            self.position = PostgresPosition.from_json(base.position)
            self.clock_us = int(base.state[CLOCK])
            self._states = {
                str(name): TableState.from_json(value) for name, value in base.state[STATES].items()
            }
            if not isinstance(self.position.server, str) or not isinstance(self.position.timeline, str):
                raise TypeError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise damaged(base.name, "it does not say what its tables were") from None

    def state(self, table: TableId) -> TableState | None:
        """A table's state; None: it does not have the table, or a newer version wrote it."""
        return self._states.get(str(table))


class _Witness:
    """What shows that a table has been the same up to a time.

    A sighting or a base shows it up to its position: that lies behind the time if its position does, or its
    clock. In the latter case nothing was committed between the two.

    Args:
        options: the server.
        table: the table.
        at: the time.
        seen: what the table was, in the log of the server.
    """

    def __init__(
        self, options: SourceOptions, table: TableId, at: TimeInLog, seen: Sequence[Sighting]
    ) -> None:
        self._options, self._table = options, table
        self._seen = sorted(seen, key=lambda s: s.since.lsn)
        self._later = [s for s in self._seen if s.until.lsn >= at.position.lsn or _is_later(s, at)]
        self._now: Sighting | None = None

    def sure(self, state: TableState) -> PostgresPosition | None:
        """A position up to which the table is the same as when it had a state; None: it may be another."""
        same = [s.until for s in self._later if s.identity == state.identity]
        if same:
            return max(same, key=lambda position: position.lsn)
        now = self._present()
        return now.until if now.identity == state.identity else None

    def reason(self, state: TableState) -> str:
        """Why the table may be another one than when it had a state."""
        later = self._later[0] if self._later else self._present()
        last = max((s.clock_us for s in self._seen if s.identity == state.identity), default=0)
        until = f"; up to {time_text(last)} it was the same" if last else ""
        if not later.identity:
            what = "dropped, renamed, or removed from the publication"
            return f"the table was {what} before `{later.since}`{until}"
        if later.oid != state.oid:
            return f"the table was dropped and created again, or renamed, before `{later.since}`{until}"
        return (
            f"the table was altered before `{later.since}`, or its publication was, and nothing shows "
            f"whether that was behind the time{until}"
        )

    def _present(self) -> Sighting:
        if self._now is None:
            with closing(Moment(self._options.capturing_only(str(self._table)))) as moment:
                self._now = Sighting.of(moment.state(self._table), moment.position, 0)
        return self._now


def _is_later(seen: Sighting, at: TimeInLog) -> bool:
    """Whether a table was seen at a time or later, by the clock of the server that stamped the log."""
    return seen.clock_us >= at.at_us and seen.until.timeline == at.position.timeline


def _nothing(table: TableId, at: str, reasons: list[str]) -> SourceError:
    return SourceError(
        f"table `{table}` cannot be restored as of that time",
        (f"it lies at {at}; " if at else "") + "; ".join(reasons[:3]),
        "tailrace archive PIPELINE.YAML --base keeps the captured tables; take one regularly, and behind "
        "each schema change",
        code="TR-8211",
    )
