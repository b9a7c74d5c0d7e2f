"""Rows that a table that was read again no longer has, as changes of a change log.

Every row that the table has came in a batch since the reading began, as `r` or by the log. So a key whose
last change is older, and no delete, is gone: it gets a `d` with its last row; or, if rows are marked rather
than deleted, a `u` with the marks.

Their `_seq` is the greatest there is, and a digit: behind everything that the change log has, and before all
that comes later. They are parts of the batch that ends the reading, as `division` says: the rows of earlier
attempts at them do not count, so they are the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.model.change import OP_DELETE, OP_LETTERS, OP_UPDATE
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.columns import ABSENT_BEFORE, BATCH, BEFORE, PART
from tailrace.sinks.clickhouse.division import part_name
from tailrace.sinks.clickhouse.log_tasks import LogAttempt
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.clickhouse.vanished import column_of, literals_of, unmarked
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versions import batch_of

#: The kind in the names of their parts, and the changes of each.
_KIND, _CHANGES = "gone", 10_000
_NO_TEXTS = "CAST([] AS Array(String))"


def tell(attempt: LogAttempt, target: Target, refresh: Refresh) -> None:
    """Tell which rows a table no longer has.

    Args:
        attempt: the attempt at the batch that ends the reading.
        target: the change log.
        refresh: the reading.

    Raises:
        SinkError: the server refuses it.
        TransientSinkError: the server does not answer.
    """
    table, marks = str(refresh.table), refresh.marks
    key = target.keys.get(table, ())
    if not key or (marks is not None and not marks.gone):
        return
    own = f"{BATCH} = {attempt.batch} AND startsWith({PART}, {sql.text(f'{table}:{_KIND}:')})"
    held = [f"NOT ({own})"]
    if refresh.shard is not None:
        shard = column_of(target, refresh.shard)
        held.append(f"{sql.name(shard.name)} = {literals_of(shard, [refresh.name])[0]}")
    newest = attempt.client.select(f"SELECT max(_seq) FROM {target.path} WHERE NOT ({own})")
    seq = sql.text(f"{newest.column(0)[0].as_py().decode()}0")
    names = [column.name for column in target.schema.columns]
    last = (
        f"SELECT {sql.names(names)}, _op, _absent, {BATCH} FROM {target.path} WHERE {' AND '.join(held)}"
        f" ORDER BY _seq DESC LIMIT 1 BY {sql.names(key)}"
    )
    first = batch_of(target.readings[refresh.name].first)
    gone = [f"_op != '{OP_LETTERS[OP_DELETE]}'", f"{BATCH} < {first}"]
    values = {name: sql.name(name) for name in names}
    if marks is not None:
        gone += unmarked(target, marks)
        for name, value in marks.gone.items():
            column = column_of(target, name)
            (literal,) = literals_of(column, [value])
            values[column.name] = f"CAST({literal} AS {target.type_of(column)})"
    is_update = marks is not None
    own_values = {
        "_op": f"'{OP_LETTERS[OP_UPDATE if is_update else OP_DELETE]}'",
        "_seq": seq,
        "_ts_ms": f"CAST({attempt.ts_ms or 'NULL'} AS Nullable(Int64))",
        "_absent": "_absent",
        ABSENT_BEFORE: "_absent" if is_update else _NO_TEXTS,
    }
    before = {f"{BEFORE}{name}": sql.name(name) for name in names} if is_update else {}
    # columns keep their values until all are chosen: a marked one must not hide the old one
    chosen = {**values, **own_values, **before}
    listed = ", ".join(f"{value} AS {sql.name('v' + str(n))}" for n, value in enumerate(chosen.values()))
    query = f"SELECT {listed} FROM ({last}) WHERE {' AND '.join(gone)} ORDER BY {sql.names(key)}"
    there = (attempt.present or {}).get(target.name, {})
    for number, rows in enumerate(_chunks(attempt.client.stream(query))):
        name = part_name(table, _KIND, 0, number)
        if there.get(name) == rows.num_rows:
            continue
        part = rows.rename_columns(list(chosen))
        part = part.append_column(BATCH, pa.repeat(pa.scalar(attempt.batch, pa.uint64()), rows.num_rows))
        part = part.append_column(PART, pa.repeat(name, rows.num_rows))
        token = f"{target.stream.query}:{attempt.batch}:{name}"
        attempt.client.insert(target.path, part, token=token)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows as tables of _CHANGES each, but for the last."""
    held: Sequence[pa.RecordBatch] = []
    for batch in batches:
        table = pa.Table.from_batches([*held, batch])
        while table.num_rows >= _CHANGES:
            yield table.slice(0, _CHANGES).combine_chunks()
            table = table.slice(_CHANGES)
        held = table.to_batches()
    if held and sum(batch.num_rows for batch in held):
        yield pa.Table.from_batches(held).combine_chunks()
