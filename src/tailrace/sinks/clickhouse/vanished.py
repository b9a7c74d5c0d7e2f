"""Rows that a table that was read again no longer has: they are deleted, or marked.

Every row that the table has was written since the reading began, so it has at least the version with which
the reading began (`tables`). All others are gone. The server itself writes what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tailrace.model.change import REREAD
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import Column
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.columns import DELETED, VERSION
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.clickhouse.writer import InsertAttempt
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versions import version_of


def remove(attempt: InsertAttempt, target: Target, refresh: Refresh) -> None:
    """Delete or mark the rows that a table no longer has.

    Args:
        attempt: the attempt at the batch that ends the reading.
        target: the target's table.
        refresh: the reading.

    Raises:
        SinkError: the server refuses it.
        TransientSinkError: the server does not answer.
    """
    marks, version = refresh.marks, version_of(attempt.batch, REREAD)
    if marks is not None and not marks.gone:
        return
    gone = [f"{VERSION} < {target.readings[refresh.name].first}"]
    if refresh.shard is not None:
        shard = column_of(target, refresh.shard)
        gone.append(f"{sql.name(shard.name)} = {literals_of(shard, [refresh.name])[0]}")
    if marks is None:
        columns = {name: sql.name(name) for name in target.schema.key}
    else:
        columns = {column.name: sql.name(column.name) for column in target.schema.columns}
        for name, value in marks.gone.items():
            column = column_of(target, name)
            (literal,) = literals_of(column, [value])
            columns[column.name] = f"CAST({literal} AS {target.type_of(column)})"
        gone += unmarked(target, marks)
    # the condition is on the rows that there are, not on what replaces them
    target_columns = ", ".join([sql.names(columns), VERSION, DELETED])
    values = ", ".join([*columns.values(), str(version), str(int(marks is None))])
    attempt.client.insert_select(
        f"INSERT INTO {target.path} ({target_columns}) SELECT {values} FROM {target.path} FINAL"
        f" WHERE {' AND '.join(gone)}"
    )


def unmarked(target: Target, marks: SoftDelete) -> list[str]:
    """The condition of rows that are not marked yet; empty: nothing tells them apart."""
    there = []
    for name, values in marks.of_existing.items():
        column = column_of(target, name)
        quoted = sql.name(column.name)
        known = literals_of(column, [value for value in values if value is not None])
        if known:
            there.append(f"ifNull({quoted} IN ({', '.join(known)}), 0)")
        if None in values:
            there.append(f"isNull({quoted})")
    return [f"({' OR '.join(there)})"] if there else []


def column_of(target: Target, name: str) -> Column:
    """The column of a target that is called so, in whatever case."""
    return next(c for c in target.schema.columns if c.name.lower() == name.lower())


def literals_of(column: Column, values: Iterable[Any]) -> list[str]:
    """Values of a column as literals."""
    return sql.literals(pa.array(list(values), column.type.arrow))
