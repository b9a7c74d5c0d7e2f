"""What a replica's database knows of the streams that fill it: tables beside the targets.

    _tailrace             a row for each target: the stream whose it is, what it holds, which batch was begun
                          (by which run), which is done, and the stream offset that it has then
    _tailrace_units       a row for each target and unit: the last batch that the unit has written
    _tailrace_quarantine  rows that the database refused

A *unit* is what one transaction writes of a batch: a snapshot split's rows of a target (`s3`), or a target's
changes whose keys hash to one bucket (`b0`). How a target's share of a batch falls into units is its
*layout*: the same for every replay, unless settings have changed in between. So:

    begun       done        layout
    below n     below n     any            the batch is new: units are written with plain inserts and upserts
    n           below n     the same       units that are marked are left out
    n           below n     another        no mark means anything: all is written again, by upserts alone
    any         n or above                 the target has it

Every run of a batch notes an *epoch* when it begins, and every unit's transaction holds on to the row that
has it. So what is left of an earlier run, a task that waits for its server while its driver is long dead,
can commit before the new run begins or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import TransientSinkError
from tailrace.sinks.base import StreamId
from tailrace.sinks.replica.dialect import Dialect, TableName, WriteSession
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sources.network import sensible

NEVER = -1


@dataclass(frozen=True)
class Entry:
    """A row of `_tailrace`.

    Args:
        target: its name.
        stream: the id of the stream whose it is.
        shape: what it holds.
        begun: the last batch that was begun.
        done: the last batch that it holds.
        layout: how the batch that was begun falls into units.
    """

    target: str
    stream: str
    shape: TargetSchema
    begun: int
    done: int
    layout: str


@dataclass(frozen=True)
class Refused:
    """A row of `_tailrace_quarantine`. `key` and `row` are JSON objects."""

    target: str
    source: str
    batch: int
    op: str
    position: str
    column: str
    reason: str
    key: str
    row: str


@dataclass(frozen=True)
class Ledger:
    """The tables, in SQL.

    Args:
        dialect: the database's.
    """

    dialect: Dialect

    @property
    def targets(self) -> str:
        """Name of `_tailrace` in SQL."""
        return self._name("_tailrace")

    @property
    def units(self) -> str:
        """Name of `_tailrace_units` in SQL."""
        return self._name("_tailrace_units")

    @property
    def quarantine(self) -> str:
        """Name of `_tailrace_quarantine` in SQL."""
        return self._name("_tailrace_quarantine")

    def staged(self, name: str) -> TableName:
        """The place of a table that rows wait in."""
        return TableName(self.dialect.notes, name)

    def _name(self, table: str) -> str:
        return self.dialect.name(TableName(self.dialect.notes, table))

    # ---- the driver ----------------------------------------------------------------------------------

    def create(self, session: WriteSession) -> None:
        """Make the tables where they are not there."""
        d = self.dialect
        name, text = d.name_type, d.text_type
        if session.columns(TableName(d.notes, "_tailrace_quarantine")):
            return
        for statement in d.make_schema(d.notes):
            session.run(statement)
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self.targets} (target {name} NOT NULL PRIMARY KEY,"
            f" stream {name} NOT NULL, pipeline {name} NOT NULL, shape {text} NOT NULL,"
            f" begun bigint NOT NULL, done bigint NOT NULL, epoch {name} NOT NULL, layout {name} NOT NULL,"
            f" position {text} NULL)"
        )
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self.units} (target {name} NOT NULL, unit {name} NOT NULL,"
            " batch bigint NOT NULL, PRIMARY KEY (target, unit))"
        )
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self.quarantine} (id {d.serial_type}, target {name} NOT NULL,"
            f" source {name} NOT NULL, batch bigint NOT NULL, op {name} NOT NULL, position {name} NOT NULL,"
            f" refused_column {name} NOT NULL, reason {name} NOT NULL, row_key {text} NOT NULL,"
            f" change_row {text} NOT NULL, noted timestamp DEFAULT CURRENT_TIMESTAMP)"
        )

    def entries(
        self, session: WriteSession, targets: Iterable[str], *, hold: bool = False
    ) -> dict[str, Entry]:
        """The entries of targets that have one; their rows are locked if they are to be held."""
        sql = (
            f"SELECT target, stream, shape, begun, done, layout FROM {self.targets}"
            f" WHERE target IN ({self._listed(targets)}) ORDER BY target"
        )
        found = session.run(self.dialect.hold(sql, shared=False) if hold else sql)
        with sensible("what is noted of its tables"):
            return {
                str(row[0]): Entry(
                    str(row[0]),
                    str(row[1]),
                    TargetSchema.from_json(str(row[0]), str(row[2])),
                    int(row[3]),
                    int(row[4]),
                    str(row[5]),
                )
                for row in found
            }

    def own(self, session: WriteSession, target: str, stream: StreamId, shape: TargetSchema) -> None:
        """Note that a target is the stream's."""
        values = self._listed((target, stream.query, stream.pipeline, shape.to_json()))
        session.run(
            f"INSERT INTO {self.targets} (target, stream, pipeline, shape, begun, done, epoch, layout)"
            f" VALUES ({values}, {NEVER}, {NEVER}, '', '')"
        )

    def reshape(self, session: WriteSession, shape: TargetSchema) -> None:
        """Note what a target holds by now."""
        session.run(
            f"UPDATE {self.targets} SET shape = {self.dialect.literal(shape.to_json())}"
            f" WHERE target = {self.dialect.literal(shape.target)}"
        )

    def begin(
        self,
        session: WriteSession,
        batch: int,
        epoch: str,
        layouts: Mapping[str, str],
        units: Mapping[str, Sequence[str]],
    ) -> frozenset[str]:
        """Begin a batch, in a transaction of its own: from here on nothing of an earlier run is written.

        Args:
            session: in no transaction.
            batch: its number.
            epoch: tells this run from others.
            layouts: how each target's share of it falls into units.
            units: each target's.

        Returns:
            Targets that rows may be in without being marked, so that all must be written by upserts.
        """
        session.run("BEGIN")
        entries = self.entries(session, layouts, hold=True).values()
        again = frozenset(e.target for e in entries if e.begun == batch and e.layout != layouts[e.target])
        literal = self.dialect.literal
        if again:
            session.run(
                f"UPDATE {self.units} SET batch = {NEVER}"
                f" WHERE target IN ({self._listed(again)}) AND batch = {batch}"
            )
        cases = " ".join(f"WHEN {literal(t)} THEN {literal(layout)}" for t, layout in layouts.items())
        session.run(
            f"UPDATE {self.targets} SET begun = {batch}, epoch = {literal(epoch)},"
            f" layout = CASE target {cases} END WHERE target IN ({self._listed(layouts)})"
        )
        there = set(
            session.run(f"SELECT target, unit FROM {self.units} WHERE target IN ({self._listed(layouts)})")
        )
        new = [(t, u) for t, names in units.items() for u in names if (t, u) not in there]
        if new:
            rows = ", ".join(f"({literal(t)}, {literal(u)}, {NEVER})" for t, u in new)
            session.run(f"INSERT INTO {self.units} (target, unit, batch) VALUES {rows}")
        session.run("COMMIT")
        return again

    def finish(self, session: WriteSession, batch: int, targets: Iterable[str], position: str | None) -> None:
        """Note that targets hold a batch."""
        session.run(
            f"UPDATE {self.targets} SET begun = {batch}, done = {batch},"
            f" position = {self.dialect.literal(position)} WHERE target IN ({self._listed(targets)})"
        )

    # ---- tasks ---------------------------------------------------------------------------------------

    def hold(self, session: WriteSession, target: str, epoch: str) -> None:
        """Hold on to this run in the transaction.

        Raises:
            TransientSinkError: another one has begun.
        """
        literal = self.dialect.literal
        sql = f"SELECT epoch FROM {self.targets} WHERE target = {literal(target)}"
        found = session.run(self.dialect.hold(sql, shared=True))
        if found != [(epoch,)]:
            raise TransientSinkError(
                f"target `{target}` is being written by another run of the stream",
                hint="if two processes run the pipeline, stop one of them",
            )

    def is_marked(self, session: WriteSession, target: str, unit: str, batch: int) -> bool:
        """Whether a unit has written a batch; nobody else writes it until the transaction ends."""
        literal = self.dialect.literal
        sql = f"SELECT batch FROM {self.units} WHERE target = {literal(target)} AND unit = {literal(unit)}"
        ((marked,),) = session.run(self.dialect.hold(sql, shared=False))
        return int(marked) >= batch

    def mark(self, session: WriteSession, target: str, unit: str, batch: int) -> None:
        """Mark a unit as written, in the transaction of its rows."""
        literal = self.dialect.literal
        session.run(
            f"UPDATE {self.units} SET batch = {batch}"
            f" WHERE target = {literal(target)} AND unit = {literal(unit)}"
        )

    def set_aside(self, session: WriteSession, rows: Iterable[Refused]) -> None:
        """Put refused rows into quarantine."""
        for row in rows:
            values = (row.target, row.source, row.batch, row.op, row.position, row.column, row.reason)
            listed = ", ".join(self.dialect.literal(v) for v in (*values, row.key, row.row))
            session.run(
                f"INSERT INTO {self.quarantine} (target, source, batch, op, position, refused_column, reason,"
                f" row_key, change_row) VALUES ({listed})"
            )

    def _listed(self, texts: Iterable[str]) -> str:
        return ", ".join(self.dialect.literal(text) for text in texts)
