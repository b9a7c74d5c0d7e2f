"""The ledger: Tailrace's own tables in a replica's database, stored with the targets.

    _tailrace             a row per target: its stream, its schema, the last batch begun (and by which
                          attempt), the last batch done, the stream offset after that batch, and the newest
                          lease under which it was written (`sinks.lease`)
    _tailrace_units       a row per target and unit: the last batch that the unit has written; and a row per
                          target and table of keys (`seen`) that exists
    _tailrace_quarantine  rows that the database rejected

Beside them lie staged rows (`unit_writer`) and the keys of tables that are read again (`seen`).

A *unit* is the work of one transaction: the rows of one snapshot split for a target (`s3`), or the changes
of a target whose keys hash to one bucket (`b0`). The division of a target's share of a batch into units is
its *layout*. Every replay has the same layout, unless settings have changed in between. For batch n:

    begun       done        layout
    below n     below n     any            the batch is new: units are written with plain inserts and upserts
    n           below n     the same       marked units are skipped
    n           below n     another        marks are void: all units are written again, by upserts only
    any         n or above                 the target has the batch

Every attempt to write a batch stores a new *epoch* when it begins, and the transaction of every unit locks
the row with the epoch. So a task left over from an earlier attempt, still waiting for its server long after
its driver died, commits before the new attempt begins or not at all.

A batch is begun under a lease only if the target has none that is newer. From then on its epoch shuts out
whoever had an older lease.

A small batch is begun by the task that writes it (`one_pass`), under an epoch that the driver has stored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.errors import SinkError, TransientSinkError
from tailrace.sinks.base import StreamId
from tailrace.sinks.lease import require_newest
from tailrace.sinks.quarantine import WIDEN, QuarantinedRow, plain
from tailrace.sinks.replica.dialect import Dialect, TableName, WriteSession
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sources.network import sensible

NEVER = -1
_LEASE = "lease bigint NOT NULL DEFAULT 0"


@dataclass(frozen=True)
class Entry:
    """A row of `_tailrace`.

    Args:
        target: the target's name.
        stream: id of the stream that owns the target.
        schema: the target's schema.
        begun: the last batch begun.
        done: the last batch written.
        layout: digest of the division of batch `begun` into units.
        lease: the newest lease under which it was written; 0: none.
    """

    target: str
    stream: str
    schema: TargetSchema
    begun: int
    done: int
    layout: str
    lease: int

    def require_owner(self, stream: StreamId) -> None:
        """Refuse a process that has lost its lease.

        Raises:
            LeaseLostError: another owner has written the target.
        """
        require_newest(self.target, self.lease, stream.lease)


@dataclass(frozen=True)
class Ledger:
    """The ledger's tables, read and written by SQL.

    Args:
        dialect: the database.
    """

    dialect: Dialect

    @property
    def targets(self) -> str:
        """Qualified name of `_tailrace`."""
        return self._name("_tailrace")

    @property
    def units(self) -> str:
        """Qualified name of `_tailrace_units`."""
        return self._name("_tailrace_units")

    @property
    def quarantine(self) -> str:
        """Qualified name of `_tailrace_quarantine`."""
        return self._name("_tailrace_quarantine")

    def own_table(self, name: str) -> TableName:
        """The table of that name in the ledger's schema: staged rows, or keys (`seen`)."""
        return TableName(self.dialect.ledger_schema, name)

    def _name(self, table: str) -> str:
        return self.dialect.name(TableName(self.dialect.ledger_schema, table))

    # ---- the driver ----------------------------------------------------------------------------------

    def create(self, session: WriteSession) -> None:
        """Create the tables that do not exist, and what earlier versions of Tailrace did not need."""
        d = self.dialect
        name, text = d.name_type, d.text_type
        if session.columns(TableName(d.ledger_schema, "_tailrace_quarantine")):
            self._add_lease(session)
            return
        for statement in d.create_schema(d.ledger_schema):
            session.run(statement)
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self.targets} (target {name} NOT NULL PRIMARY KEY,"
            f" stream {name} NOT NULL, pipeline {name} NOT NULL, shape {text} NOT NULL,"
            f" begun bigint NOT NULL, done bigint NOT NULL, epoch {name} NOT NULL, layout {name} NOT NULL,"
            f" position {text} NULL, {_LEASE})"
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

    def _add_lease(self, session: WriteSession) -> None:
        table = self.own_table("_tailrace")
        if "lease" in session.columns(table):
            return
        try:
            session.run(f"ALTER TABLE {self.targets} ADD COLUMN {_LEASE}")
        except SinkError:
            if "lease" not in session.columns(table):  # else another pipeline has just done it
                raise

    def own_tables(self, session: WriteSession, prefix: str) -> list[str]:
        """The tables in the ledger's schema whose names begin with `prefix`."""
        literal = self.dialect.literal
        rows = session.run(
            "SELECT table_name FROM information_schema.tables"
            f" WHERE table_schema = {literal(self.dialect.ledger_schema)}"
            f" AND left(table_name, {len(prefix)}) = {literal(prefix)}"
        )
        return [name for name in (str(row[0]) for row in rows) if name.startswith(prefix)]

    def entries(
        self, session: WriteSession, targets: Iterable[str], *, lock: bool = False
    ) -> dict[str, Entry]:
        """The entries of targets that have one, by target; `lock` locks their rows."""
        sql = (
            f"SELECT target, stream, shape, begun, done, layout, lease FROM {self.targets}"
            f" WHERE target IN ({self._listed(targets)}) ORDER BY target"
        )
        found = session.run(self.dialect.locking(sql, shared=False) if lock else sql)
        with sensible("what is noted of its tables"):
            return {
                str(row[0]): Entry(
                    str(row[0]),
                    str(row[1]),
                    TargetSchema.from_json(str(row[0]), str(row[2])),
                    int(row[3]),
                    int(row[4]),
                    str(row[5]),
                    int(row[6]),
                )
                for row in found
            }

    def claim(self, session: WriteSession, target: str, stream: StreamId, schema: TargetSchema) -> None:
        """Record that the stream owns a new target."""
        values = self._listed((target, stream.query, stream.pipeline, schema.to_json()))
        session.run(
            f"INSERT INTO {self.targets}"
            " (target, stream, pipeline, shape, begun, done, epoch, layout, lease)"
            f" VALUES ({values}, {NEVER}, {NEVER}, '', '', {stream.lease})"
        )

    def store_schema(self, session: WriteSession, schema: TargetSchema) -> None:
        """Record a target's new schema."""
        session.run(
            f"UPDATE {self.targets} SET shape = {self.dialect.literal(schema.to_json())}"
            f" WHERE target = {self.dialect.literal(schema.target)}"
        )

    def begin(
        self,
        session: WriteSession,
        batch: int,
        epoch: str,
        layouts: Mapping[str, str],
        units: Mapping[str, Sequence[str]],
        *,
        lease: int = 0,
        is_fenced: bool = False,
    ) -> frozenset[str]:
        """Begin a batch, in a transaction of its own: it shuts out the tasks of earlier attempts.

        Args:
            session: a session outside a transaction.
            batch: the batch's number.
            epoch: identifies this attempt.
            layouts: each target's layout.
            units: each target's units.
            lease: the lease under which it is written; 0: none.
            is_fenced: whether `set_epoch` has stored the epoch, and no other may have been stored since.

        Returns:
            Targets that may hold rows of the batch without a mark; they need upserts only.

        Raises:
            LeaseLostError: a target was written under a newer lease.
            TransientSinkError: another attempt has begun.
        """
        session.run("BEGIN")
        entries = self.entries(session, layouts, lock=True).values()
        for entry in entries:
            require_newest(entry.target, entry.lease, lease)
        for target in layouts if is_fenced else ():
            self.lock_epoch(session, target, epoch)
        replayed = frozenset(e.target for e in entries if e.begun == batch and e.layout != layouts[e.target])
        literal = self.dialect.literal
        if replayed:
            session.run(
                f"UPDATE {self.units} SET batch = {NEVER}"
                f" WHERE target IN ({self._listed(replayed)}) AND batch = {batch}"
            )
        cases = " ".join(f"WHEN {literal(t)} THEN {literal(layout)}" for t, layout in layouts.items())
        session.run(
            f"UPDATE {self.targets} SET begun = {batch}, epoch = {literal(epoch)},{_noting(lease)}"
            f" layout = CASE target {cases} END WHERE target IN ({self._listed(layouts)})"
        )
        existing = set(
            session.run(f"SELECT target, unit FROM {self.units} WHERE target IN ({self._listed(layouts)})")
        )
        new = [(t, u) for t, names in units.items() for u in names if (t, u) not in existing]
        if new:
            rows = ", ".join(f"({literal(t)}, {literal(u)}, {NEVER})" for t, u in new)
            session.run(f"INSERT INTO {self.units} (target, unit, batch) VALUES {rows}")
        session.run("COMMIT")
        return replayed

    def set_epoch(self, session: WriteSession, targets: Iterable[str], epoch: str, *, lease: int = 0) -> None:
        """Shut out the tasks of earlier attempts, before a task begins a batch.

        Targets that were written under a newer lease stay as they are: `begin` then finds another epoch.
        """
        no_newer = f" AND lease <= {lease}" if lease else ""
        session.run(
            f"UPDATE {self.targets} SET{_noting(lease)} epoch = {self.dialect.literal(epoch)}"
            f" WHERE target IN ({self._listed(targets)}){no_newer}"
        )

    def finish(
        self,
        session: WriteSession,
        batch: int,
        targets: Collection[str],
        position: str | None,
        epoch: str,
    ) -> None:
        """Record that targets have a batch.

        Raises:
            TransientSinkError: another attempt has begun.
        """
        literal = self.dialect.literal
        session.run(
            f"UPDATE {self.targets} SET begun = {batch}, done = {batch}, position = {literal(position)}"
            f" WHERE target IN ({self._listed(targets)}) AND epoch = {literal(epoch)}"
        )
        for target in targets:
            self.lock_epoch(session, target, epoch)

    def has_keys(self, session: WriteSession, target: str, table: str) -> bool:
        """Whether a table of keys has been created."""
        return bool(session.run(f"SELECT batch FROM {self.units} WHERE {self._keys(target, table)}"))

    def note_keys(self, session: WriteSession, target: str, table: str) -> None:
        """Record that a table of keys has been created."""
        values = f"{self._listed((target, table))}, {NEVER}"
        session.run(f"INSERT INTO {self.units} (target, unit, batch) VALUES ({values})")

    def forget_keys(self, session: WriteSession, target: str, table: str) -> None:
        """Record that a table of keys is needed no more."""
        session.run(f"DELETE FROM {self.units} WHERE {self._keys(target, table)}")

    def _keys(self, target: str, table: str) -> str:
        literal = self.dialect.literal
        return f"target = {literal(target)} AND unit = {literal(table)}"

    # ---- tasks ---------------------------------------------------------------------------------------

    def lock_epoch(self, session: WriteSession, target: str, epoch: str) -> None:
        """Lock this attempt's epoch until the transaction ends.

        Raises:
            TransientSinkError: another attempt has begun.
        """
        literal = self.dialect.literal
        sql = f"SELECT epoch FROM {self.targets} WHERE target = {literal(target)}"
        found = session.run(self.dialect.locking(sql, shared=True))
        if found != [(epoch,)]:
            raise TransientSinkError(
                f"target `{target}` is being written by another run of the stream",
                hint="if two processes run the pipeline, stop one of them",
                code="TR-7010",
            )

    def is_marked(self, session: WriteSession, target: str, unit: str, batch: int) -> bool:
        """Whether a unit has written a batch; the unit is locked until the transaction ends."""
        literal = self.dialect.literal
        sql = f"SELECT batch FROM {self.units} WHERE target = {literal(target)} AND unit = {literal(unit)}"
        ((marked,),) = session.run(self.dialect.locking(sql, shared=False))
        return int(marked) >= batch

    def mark(self, session: WriteSession, target: str, unit: str, batch: int) -> None:
        """Mark a unit as written, in the transaction that wrote its rows."""
        literal = self.dialect.literal
        session.run(
            f"UPDATE {self.units} SET batch = {batch}"
            f" WHERE target = {literal(target)} AND unit = {literal(unit)}"
        )

    def add_quarantined(self, session: WriteSession, rows: Iterable[QuarantinedRow]) -> None:
        """Insert rejected rows into the quarantine table."""
        for row in rows:
            values = (row.target, row.table, row.batch, row.op, row.position, row.column, row.reason)
            listed = ", ".join(self.dialect.literal(v) for v in (*values, _json(row.key), _json(row.row)))
            session.run(
                f"INSERT INTO {self.quarantine} (target, source, batch, op, position, refused_column, reason,"
                f" row_key, change_row) VALUES ({listed})"
            )

    def quarantined(self, session: WriteSession, target: str, table: str) -> int:
        """How many rows of a source table the quarantine has for a target."""
        ((count,),) = session.run(f"SELECT count(*) FROM {self.quarantine} WHERE {self._of(target, table)}")
        return int(count)

    def _of(self, target: str, table: str) -> str:
        return f"target = {self.dialect.literal(target)} AND source = {self.dialect.literal(table)}"

    # ---- from outside --------------------------------------------------------------------------------

    def quarantined_rows(self, session: WriteSession, stream: str) -> list[QuarantinedRow]:
        """The rejected rows of a stream's targets."""
        found = session.run(
            "SELECT source, target, batch, op, position, reason, row_key, change_row, refused_column"
            f" FROM {self.quarantine} WHERE {self._of_stream(stream)} ORDER BY source, id"
        )
        return [
            QuarantinedRow(
                str(source),
                str(target),
                int(batch),
                str(op),
                str(position),
                "TR-7006",
                str(reason),
                WIDEN,
                json.loads(key),
                json.loads(row),
                str(column),
            )
            for source, target, batch, op, position, reason, key, row, column in found
        ]

    def clear_quarantined(self, session: WriteSession, stream: str, table: str) -> int:
        """Forget the rejected rows of a source table; how many there were."""
        of_table = f"source = {self.dialect.literal(table)} AND {self._of_stream(stream)}"
        ((count,),) = session.run(f"SELECT count(*) FROM {self.quarantine} WHERE {of_table}")
        session.run(f"DELETE FROM {self.quarantine} WHERE {of_table}")
        return int(count)

    def _of_stream(self, stream: str) -> str:
        literal = self.dialect.literal(stream)
        return f"target IN (SELECT target FROM {self.targets} WHERE stream = {literal})"

    def _listed(self, texts: Iterable[str]) -> str:
        return ", ".join(self.dialect.literal(text) for text in texts)


def _noting(lease: int) -> str:
    """The assignment that notes a lease."""
    return f" lease = {lease}," if lease else ""


def _json(values: Mapping[str, Any] | None) -> str:
    return json.dumps(values, default=plain, ensure_ascii=False)
