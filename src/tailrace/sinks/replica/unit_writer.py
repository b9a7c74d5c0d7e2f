"""The transaction of a unit: write rows, mark the unit, commit; and find the rows that the database rejects.

A rejected statement rejects all its rows. So rows are written behind a savepoint, and the rows of a rejected
statement are halved until single rows are left: some 2 log2(n) statements for one bad row of n.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tailrace.config.sink_settings import RefusedRow
from tailrace.failpoints import failpoint
from tailrace.model.moments import rows_to_python
from tailrace.sinks.quarantine import WIDEN, QuarantinedRow, refused_error, too_many
from tailrace.sinks.replica.dialect import (
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    WriteSession,
    columns_of,
)
from tailrace.sinks.replica.ledger import Ledger
from tailrace.sinks.replica.seen import Reading
from tailrace.sinks.replica.target_schema import TargetSchema

#: The operations as change logs name them.
OPERATION_LETTERS = {
    RowOperation.INSERT: "r",
    RowOperation.UPSERT: "u",
    RowOperation.UPDATE: "u",
    RowOperation.DELETE: "d",
}


@dataclass(frozen=True)
class TargetTable:
    """A target, as tasks know it.

    Args:
        name: the table's name.
        schema: the table's schema.
    """

    name: TableName
    schema: TargetSchema


@dataclass(frozen=True)
class BatchAttempt:
    """One attempt to write a batch, as tasks know it.

    Args:
        dialect: the database.
        tables: the targets.
        batch: the batch's number.
        epoch: identifies this attempt.
        replayed: targets that may hold rows of the batch already.
        policy: what to do with rejected rows.
        most_quarantined: how many rows of a source table may be in quarantine.
        readings: by target: its tables that are read again.
        lease: the lease under which it is written; 0: none.
    """

    dialect: Dialect
    tables: dict[str, TargetTable]
    batch: int
    epoch: str
    replayed: frozenset[str]
    policy: RefusedRow
    most_quarantined: int
    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    lease: int = 0

    @property
    def ledger(self) -> Ledger:
        """The database's ledger."""
        return Ledger(self.dialect)


@dataclass(frozen=True)
class RowChanges:
    """Rows to write by one operation.

    Args:
        operation: the operation.
        rows: the target's columns without the absent ones.
        origin: gives the source table and the position of row n.
        absent: columns that an UPDATE leaves unchanged.
    """

    operation: RowOperation
    rows: pa.Table
    origin: Callable[[int], tuple[str, str]]
    absent: tuple[str, ...] = ()

    def put_aside(
        self, row: int, target: str, batch: int, reason: str, *, key: Sequence[str], column: str
    ) -> QuarantinedRow:
        """A row that the target rejects, for quarantine.

        Args:
            row: the row's number.
            target: the target's name.
            batch: the batch.
            reason: why it is rejected.
            key: names of the key's columns.
            column: the column that is the reason; "" if none is known.
        """
        source, position = self.origin(row)
        (values,) = rows_to_python(self.rows.slice(row, 1))
        return QuarantinedRow(
            source,
            target,
            batch,
            OPERATION_LETTERS[self.operation],
            position,
            "TR-7006",
            reason,
            WIDEN,
            {name: values[name] for name in key},
            values,
            column,
        )


@dataclass
class UnitWriter:
    """Writes changes to a target in a session's transaction.

    Args:
        attempt: the attempt at the batch.
        target: the target's name.
        session: the session.
    """

    attempt: BatchAttempt
    target: str
    session: WriteSession
    #: Rows that were rejected.
    refused: list[QuarantinedRow] = field(default_factory=list)
    #: How many rows were rejected, by source table.
    put_aside: Counter[str] = field(default_factory=Counter)
    #: How many were in quarantine before, by source table.
    _before: dict[str, int] = field(default_factory=dict)

    @property
    def table(self) -> TargetTable:
        """The target."""
        return self.attempt.tables[self.target]

    def begin(self, unit: str) -> bool:
        """Begin the transaction; False, without one, if the unit is written already."""
        self.session.run("BEGIN")
        self.attempt.ledger.lock_epoch(self.session, self.target, self.attempt.epoch)
        if self.attempt.ledger.is_marked(self.session, self.target, unit, self.attempt.batch):
            self.session.run("ROLLBACK")
            return False
        return True

    def commit(self, unit: str) -> None:
        """Mark the unit and commit the transaction."""
        self.attempt.ledger.add_quarantined(self.session, self.refused)
        self.attempt.ledger.mark(self.session, self.target, unit, self.attempt.batch)
        self.session.run("COMMIT")
        failpoint("sink.task")

    def write(self, changes: RowChanges) -> None:
        """Write changes to the target, and the keys of their rows if a table is read again."""
        if changes.operation is RowOperation.INSERT and self.target in self.attempt.replayed:
            changes = replace(changes, operation=RowOperation.UPSERT)
        refused: list[int] = []
        self._write(changes, self.table.name, 0, changes.rows.num_rows, refused)
        readings = self.attempt.readings.get(self.target)
        if readings and changes.operation is not RowOperation.DELETE:
            dropped = set(refused)
            kept = [i for i in range(changes.rows.num_rows) if i not in dropped]
            self._write_keys(changes.rows.take(kept), readings)

    def without_refused(self, changes: RowChanges) -> RowChanges:
        """`changes` without the rows that the target rejects, found by a dry run that is rolled back."""
        before = len(self.refused)
        refused: list[int] = []
        self.session.run("BEGIN")
        try:
            self._write(changes, self.table.name, 0, changes.rows.num_rows, refused)
        finally:
            self.session.run("ROLLBACK")
        assert len(self.refused) - before == len(refused)
        dropped = set(refused)
        kept = [i for i in range(changes.rows.num_rows) if i not in dropped]

        def origin(row: int) -> tuple[str, str]:
            return changes.origin(kept[row])

        return replace(changes, rows=changes.rows.take(kept), origin=origin)

    def stage(self, staging: TableName, changes: RowChanges) -> None:
        """Write changes to a new staging table."""
        schema = self.table.schema.without(changes.absent)
        self.session.stage(staging, changes.operation, self.table.name, schema)
        self.session.run("BEGIN")
        inserts = replace(changes, operation=RowOperation.INSERT)
        self._write(inserts, staging, 0, changes.rows.num_rows, staged_for=changes.operation)
        self.session.run("COMMIT")

    def _write_keys(self, rows: pa.Table, readings: Sequence[Reading]) -> None:
        """Write the keys of rows that the target has accepted to the tables of keys."""
        schema = self.table.schema
        for reading in readings:
            keys, name = reading.keys(rows, schema.key), self.attempt.ledger.own_table(reading.keys_table)
            if keys.num_rows:
                self.session.write(RowOperation.UPSERT, name, schema.of_keys, keys)

    # ---- halving -------------------------------------------------------------------------------------

    def _write(
        self,
        changes: RowChanges,
        table: TableName,
        first: int,
        last: int,
        indices: list[int] | None = None,
        *,
        staged_for: RowOperation | None = None,
    ) -> None:
        """Write rows `first` to `last`; append the numbers of the rejected ones to `indices`.

        Args:
            changes: the rows and their operation.
            table: the table to write to.
            first: number of the first row.
            last: number after the last row.
            indices: numbers of rejected rows.
            staged_for: the operation to merge the rows by, if `table` is a staging table.
        """
        if first == last:
            return None
        operation = staged_for or changes.operation
        rows = changes.rows.slice(first, last - first)
        if operation is RowOperation.DELETE:
            rows = rows.select(list(self.table.schema.key))
        schema = self.table.schema.without(changes.absent)
        self.session.run("SAVEPOINT tailrace")
        try:
            if staged_for is None:
                self.session.write(changes.operation, table, schema, rows)
            else:
                self.session.fill(table, columns_of(operation, schema), rows)
        except RefusalError as refusal:
            self.session.run("ROLLBACK TO SAVEPOINT tailrace")
            if refusal.is_duplicate and changes.operation is RowOperation.INSERT and staged_for is None:
                # an adopted table with rows, or a second snapshot
                upserts = replace(changes, operation=RowOperation.UPSERT)
                return self._write(upserts, table, first, last, indices)
            if last - first > 1:
                middle = (first + last) // 2
                self._write(changes, table, first, middle, indices, staged_for=staged_for)
                return self._write(changes, table, middle, last, indices, staged_for=staged_for)
            self._refuse(changes, first, refusal, operation)
            if indices is not None:
                indices.append(first)
            return None
        self.session.run("RELEASE SAVEPOINT tailrace")
        return None

    def _refuse(self, changes: RowChanges, row: int, refusal: RefusalError, operation: RowOperation) -> None:
        """Quarantine a rejected row, or raise its error.

        Raises:
            SinkError: rejected rows are errors; or too many are in quarantine.
        """
        source, position = changes.origin(row)
        schema = self.table.schema
        column = refusal.column if refusal.column in schema.arrow.names else ""
        if self.attempt.policy is RefusedRow.FAIL:
            raise refused_error(self.target, column, refusal.reason, f"table `{source}` at {position}")
        if self._room(source) <= 0:
            raise too_many(source, self.attempt.most_quarantined, refusal.reason)
        self.put_aside[source] += 1
        self.refused.append(
            replace(changes, operation=operation).put_aside(
                row, self.target, self.attempt.batch, refusal.reason, key=schema.key, column=column
            )
        )

    def _room(self, source: str) -> int:
        """How many more rows of a source table may be put into quarantine."""
        if source not in self._before:
            self._before[source] = self.attempt.ledger.quarantined(self.session, self.target, source)
        return self.attempt.most_quarantined - self._before[source] - self.put_aside[source]


def staging_name(stream: str) -> str:
    """A new name for a staging table of the stream with id `stream`."""
    return f"{staging_prefix(stream)}{uuid.uuid4().hex[:12]}"


def staging_prefix(stream: str) -> str:
    """The prefix of the names of a stream's staging tables."""
    return f"_tailrace_s_{stream.replace('-', '')[:12]}_"
