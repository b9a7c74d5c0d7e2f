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
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.failpoints import failpoint
from tailrace.model.change import LOG, SNAPSHOT, ChangeBatch
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import DELETED, VERSION, Years, fitted
from tailrace.sinks.clickhouse.tables import Target
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
    """

    client: ClickHouseClient
    targets: Mapping[str, Target]
    batch: int
    years: Years

    def schema(self, target: str) -> TargetSchema:
        """See `WritingAttempt`."""
        return self.targets[target].schema

    def writer(self, target: str) -> InsertWriter:
        """See `WritingAttempt`."""
        return InsertWriter(self, target)


@dataclass
class InsertWriter:
    """Writes rows to a target.

    Args:
        attempt: the attempt at the batch.
        target: the target's name.
    """

    attempt: InsertAttempt
    target: str
    #: No row is put aside.
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
        self._insert(self._fitted(changes, changes.rows), version_of(self.attempt.batch, SNAPSHOT))
        failpoint("sink.task")

    def write_changes(self, bucket: Sequence[pa.RecordBatch]) -> None:
        """Write all changes of some keys; see `write_snapshot`."""
        version, schema = version_of(self.attempt.batch, LOG), self._table.schema
        whole = []
        for changes in last_changes(bucket, schema):
            if changes.operation is RowOperation.DELETE:
                rows = self._fitted(changes, changes.rows.select(list(schema.key)))
                self._insert(rows, version, deleted=True)
            elif changes.operation is RowOperation.UPDATE:
                whole += list(self._completed(changes, version))
            else:
                whole.append(self._fitted(changes, changes.rows))
        if whole:
            self._insert(pa.concat_tables(whole), version)
        failpoint("sink.task")

    def _fitted(self, changes: RowChanges, rows: pa.Table) -> pa.Table:
        return fitted(rows, self._table.schema, self.attempt.years, changes.origin)

    def _insert(self, rows: pa.Table, version: int, *, deleted: bool = False) -> None:
        most = max(1, min(_ROWS, rows.num_rows * _BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, most):
            part = rows.slice(start, most)
            n = part.num_rows
            part = part.append_column(VERSION, pa.repeat(pa.scalar(version, pa.uint64()), n))
            part = part.append_column(DELETED, pa.repeat(pa.scalar(int(deleted), pa.uint8()), n))
            self.attempt.client.insert(self._table.path, part)

    def _completed(self, changes: RowChanges, version: int) -> Iterator[pa.Table]:
        """Rows that lack columns, with those of the rows that are there; one without a row is skipped."""
        schema, absent = self._table.schema, list(changes.absent)
        present = [name for name in schema.arrow.names if name not in absent]
        rows = self._fitted(changes, changes.rows.select(present))
        stored = self._fitted(changes, pa.schema(list(schema.table_schema.arrow)).empty_table()).schema
        for start in range(0, rows.num_rows, _KEYS):
            keys = changes.rows.slice(start, _KEYS).select(list(schema.key))
            found = self._found(keys, absent, version)
            part = rows.slice(start, _KEYS).take(found.column(_NUMBER).combine_chunks())
            for name in absent:
                part = part.append_column(name, found.column(name).cast(stored.field(name).type))
            yield part.select(schema.arrow.names)

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
