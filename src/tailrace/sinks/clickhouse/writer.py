"""Writes rows to the table of a target, in a task: snapshot rows, changes, and changes that lack columns.

A row that is gone is written as its key, marked as deleted, with the version of its batch.

ClickHouse changes no row in place. So a change that lacks columns is written as a whole row: the missing
values come from the row that is there. Only earlier batches have written it, and they are complete, so
nothing changes it between reading and writing; if it has this batch's version already, an earlier attempt has
made the change, and nothing is to be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.sink_settings import MOST_QUARANTINED, RefusedRow
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import LOG, SNAPSHOT, ChangeBatch
from tailrace.sinks.clickhouse import quarantine, sql
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import DELETED, VERSION, Years, fitted, unfit
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.replica.changes import last_changes, snapshot_inserts
from tailrace.sinks.replica.dialect import RowOperation
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.unit_writer import RowChanges
from tailrace.sinks.versions import version_of

#: Most rows of an INSERT, and some bytes that they have, and most rows that are read at once.
_ROWS, _BYTES, _KEYS = 100_000, 64 << 20, 1000
#: The row number of a change, next to what is read for it.
_NUMBER = "_tailrace_number"


@dataclass(frozen=True)
class InsertAttempt:
    """One attempt to write a batch, as tasks know it.

    Args:
        client: the server.
        targets: the targets' tables.
        batch: the batch's number.
        years: what the server's dates hold.
        place: where our own tables are.
        policy: what to do with refused rows.
        most_quarantined: how many rows of a source table may be in quarantine.
    """

    client: ClickHouseClient
    targets: Mapping[str, Target]
    batch: int
    years: Years
    place: Place = field(default_factory=lambda: Place("default"))
    policy: RefusedRow = RefusedRow.FAIL
    most_quarantined: int = MOST_QUARANTINED

    def schema(self, target: str) -> TargetSchema:
        """See `WritingAttempt`."""
        return self.targets[target].schema

    def writer(self, target: str) -> InsertWriter:
        """See `WritingAttempt`."""
        return InsertWriter(self, target)


@dataclass(frozen=True)
class _Rows:
    """Rows as they are inserted.

    Args:
        rows: the rows.
        changes: the changes that they come from.
        numbers: each row's number among these.
    """

    rows: pa.Table
    changes: RowChanges
    numbers: np.ndarray

    def slice(self, start: int, count: int) -> _Rows:
        """Some of them."""
        return replace(self, rows=self.rows.slice(start, count), numbers=self.numbers[start : start + count])


@dataclass
class InsertWriter:
    """Writes rows to a target.

    Args:
        attempt: the attempt at the batch.
        target: the target's name.
    """

    attempt: InsertAttempt
    target: str
    #: How many rows were put into quarantine, by source table.
    put_aside: Counter[str] = field(default_factory=Counter, init=False)

    @property
    def _table(self) -> Target:
        return self.attempt.targets[self.target]

    def write_snapshot(self, batches: Sequence[ChangeBatch]) -> None:
        """Write snapshot rows.

        Raises:
            SinkError: a row is refused.
            TransientSinkError: the server does not answer.
        """
        changes = snapshot_inserts(batches, self._table.schema)
        self._insert([self._fitted(changes, changes.rows)], version_of(self.attempt.batch, SNAPSHOT))
        failpoint("sink.task")

    def write_changes(self, bucket: Sequence[pa.RecordBatch]) -> None:
        """Write all changes of some keys; see `write_snapshot`."""
        version, schema = version_of(self.attempt.batch, LOG), self._table.schema
        whole = []
        for changes in last_changes(bucket, schema):
            if changes.operation is RowOperation.DELETE:
                rows = self._fitted(changes, changes.rows.select(list(schema.key)))
                self._insert([rows], version, deleted=True)
            elif changes.operation is RowOperation.UPDATE:
                whole += list(self._completed(changes, version))
            else:
                whole.append(self._fitted(changes, changes.rows))
        if whole:
            self._insert(whole, version)
        failpoint("sink.task")

    def _fitted(self, changes: RowChanges, rows: pa.Table) -> _Rows:
        """Rows as they are inserted, without those that a column cannot hold, if these are put aside."""
        schema, years = self._table.schema, self.attempt.years
        numbers = np.arange(rows.num_rows)
        if self.attempt.policy is RefusedRow.QUARANTINE and (found := unfit(rows, schema, years)):
            refused = np.zeros(rows.num_rows, bool)
            for one in found:
                here = np.asarray(pc.fill_null(one.rows, fill_value=False)) & ~refused
                self._put_aside(changes, np.flatnonzero(here), one.column, one.reason)
                refused |= here
            numbers = np.flatnonzero(~refused)
            rows = rows.take(pa.array(numbers))

        def origin(row: int) -> tuple[str, str]:
            return changes.origin(int(numbers[row]))

        return _Rows(fitted(rows, schema, years, origin), changes, numbers)

    def _insert(self, parts: Sequence[_Rows], version: int, *, deleted: bool = False) -> None:
        rows = pa.concat_tables([part.rows for part in parts])
        try:
            self._insert_rows(rows, version, deleted=deleted)
        except SinkError as error:
            if error.code != "TR-7703" or self.attempt.policy is RefusedRow.FAIL:
                raise
            for part in parts:
                self._insert_by_halves(part, version, deleted=deleted)

    def _insert_rows(self, rows: pa.Table, version: int, *, deleted: bool) -> None:
        most = max(1, min(_ROWS, rows.num_rows * _BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, most):
            part = rows.slice(start, most)
            n = part.num_rows
            part = part.append_column(VERSION, pa.repeat(pa.scalar(version, pa.uint64()), n))
            part = part.append_column(DELETED, pa.repeat(pa.scalar(int(deleted), pa.uint8()), n))
            self.attempt.client.insert(self._table.path, part)

    def _insert_by_halves(self, part: _Rows, version: int, *, deleted: bool) -> None:
        """Insert rows of which the server refuses some, and put these aside: rows may come again."""
        n = len(part.numbers)
        try:
            self._insert_rows(part.rows, version, deleted=deleted)
        except SinkError as error:
            if error.code != "TR-7703":
                raise
            if n == 1:
                reason = f"the server refuses it: {error.detail}"
                self._put_aside(part.changes, part.numbers, "", reason)
                return
            self._insert_by_halves(part.slice(0, n // 2), version, deleted=deleted)
            self._insert_by_halves(part.slice(n // 2, n - n // 2), version, deleted=deleted)

    def _put_aside(self, changes: RowChanges, numbers: np.ndarray, column: str, reason: str) -> None:
        key, batch = self._table.schema.key, self.attempt.batch
        entries = [
            changes.put_aside(number, self.target, batch, reason, key=key, column=column)
            for number in map(int, numbers)
        ]
        if entries:
            attempt, stream = self.attempt, self._table.stream.query
            self.put_aside.update(
                quarantine.put(attempt.client, attempt.place, stream, entries, attempt.most_quarantined)
            )

    def _completed(self, changes: RowChanges, version: int) -> Iterator[_Rows]:
        """Rows that lack columns, with those of the rows that are there; one without a row is skipped."""
        schema, absent = self._table.schema, list(changes.absent)
        present = [name for name in schema.arrow.names if name not in absent]
        given = self._fitted(changes, changes.rows.select(present))
        # no value is here, so none is refused
        stored = fitted(
            pa.schema(list(schema.table_schema.arrow)).empty_table(),
            schema,
            self.attempt.years,
            changes.origin,
        ).schema
        for start in range(0, len(given.numbers), _KEYS):
            numbers = given.numbers[start : start + _KEYS]
            keys = changes.rows.select(list(schema.key)).take(pa.array(numbers))
            found = self._found(keys, absent, version)
            at = found.column(_NUMBER).combine_chunks()
            part = given.rows.slice(start, _KEYS).take(at)
            for name in absent:
                part = part.append_column(name, found.column(name).cast(stored.field(name).type))
            yield _Rows(part.select(schema.arrow.names), changes, numbers[at.to_numpy()])

    def _found(self, keys: pa.Table, absent: Sequence[str], version: int) -> pa.Table:
        """Values of the rows that are there, each with the number of its key."""
        table, names = self._table, keys.schema.names
        columns = [sql.literals(keys.column(name).combine_chunks()) for name in names]
        rows = (f"({', '.join(row)}, {i})" for i, row in enumerate(zip(*columns, strict=True)))
        types = [table.type_of(column) for column in table.schema.key_columns]
        structure = ", ".join(f"k{i} {type_}" for i, type_ in enumerate(types))
        values = f"(SELECT * FROM values({sql.text(f'{structure}, n UInt32')}, {', '.join(rows)}))"
        of_key = ", ".join(f"k{i}" for i in range(len(names)))
        same = " AND ".join(f"t.{sql.name(name)} = k.k{i}" for i, name in enumerate(names))
        wanted = ", ".join(f"t.{sql.name(name)} AS {sql.name(name)}" for name in absent)
        return self.attempt.client.select(
            f"SELECT k.n AS {_NUMBER}, {wanted} FROM {values} AS k INNER JOIN"
            f" (SELECT {sql.names([*names, *absent])} FROM {table.path} FINAL"
            f" WHERE ({sql.names(names)}) IN (SELECT {of_key} FROM {values}) AND {VERSION} < {version}) AS t"
            f" ON {same} ORDER BY {_NUMBER}"
        )
