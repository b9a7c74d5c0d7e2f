"""Pending changes, received but not merged: a table next to the target, partitioned by batch.

The `userMetadata` of its commits names a batch, like a target's: for an append the batch it brings, for a
delete the batch up to which everything is merged. So one rule finds the version of this table and of the
target that belong to the state after batch n: the one right before the first commit of a later batch
(`verify.target`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tailrace.errors import SinkError
from tailrace.model.change import OP_DELETE
from tailrace.model.sparksql import identifier
from tailrace.sinks.base import StreamId
from tailrace.sinks.delta.merge import column, last_of_each_key
from tailrace.sinks.delta.rewrite import Altered, rewrite
from tailrace.sinks.delta.rows import NewRows
from tailrace.sinks.delta.table import DeltaTable, TableDefinition, of_lease, path_of
from tailrace.sinks.delta.transaction import CommitMark, DeltaState, removal
from tailrace.sinks.delta.vacuum import vacuum
from tailrace.sinks.paths import below
from tailrace.sinks.tables.columns import BecomeText, follow
from tailrace.sinks.tables.former_columns import DropColumn
from tailrace.spark.checkpoint import Directory

#: The batch that brought a change.
BATCH = pa.field("_batch", pa.int64())
#: Columns of pending changes, and of what `merge` makes of them.
PENDING_COLUMNS = (BATCH.name, "_last", "_lacks", "_until", "_until_seq", "_number", "_closes")
#: How long the file of merged changes stays for readers, and a commit stays in the history.
_KEPT = {
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}
#: VACUUM runs after this many deletes of merged changes.
_DELETES_PER_VACUUM = 50


def changes_path(root: str, path: str) -> str:
    """The path of a target's pending changes.

    Args:
        root: the sink's path.
        path: the target's path below it.
    """
    return below(f"{root}/_tailrace/changes", path)


def changed_paths(root: str, within: str = "") -> Iterator[str]:
    """Paths of the targets that have a table of pending changes.

    Args:
        root: the sink's path.
        within: only those below this path.
    """
    for name in Directory(f"{root}/_tailrace/changes/{within}".rstrip("/")).names():
        path = f"{within}/{name}".lstrip("/")
        if "_delta_log" in Directory(changes_path(root, path)).names():
            yield path
        else:
            yield from changed_paths(root, path)


def overlay(rows: DataFrame, changes: DataFrame, key: Sequence[str], lacking: Sequence[str]) -> DataFrame:
    """`rows` with pending changes applied; applying a change that they hold already has no effect.

    Args:
        rows: a target's rows.
        changes: the changes.
        key: the key's columns.
        lacking: the columns that some of the changes lack (`lacking_in`).
    """
    last = last_of_each_key(changes, key, lacking)
    same = [rows[identifier(name)].eqNullSafe(last[identifier(name)]) for name in key]
    kept = rows.join(last, same, "left_anti")
    new = last.where(f.col("_op") != OP_DELETE)
    result = new.where(f.size("_lacks") == 0).select(*(column(name) for name in rows.columns))
    if lacking:
        partial = new.where(f.size("_lacks") > 0).alias("new").join(rows.alias("old"), list(key))
        result = result.unionByName(partial.select(*(_updated(name, key, lacking) for name in rows.columns)))
    return kept.unionByName(result)


def _updated(name: str, key: Sequence[str], lacking: Sequence[str]) -> Column:
    """A column of a row that was updated by a change that may lack the column."""
    if name in key:
        return column(name)
    new, old = f.col(f"new.{identifier(name)}"), f.col(f"old.{identifier(name)}")
    if name not in lacking:
        return new.alias(name)
    return f.when(f.array_contains("new._lacks", lacking.index(name)), old).otherwise(new).alias(name)


def _batch_of(file: Mapping[str, Any]) -> int:
    return int(file["partitionValues"][BATCH.name])


class Pending:
    """The pending changes of a target.

    Args:
        table: the table that holds them, which may not exist yet.
        properties: the properties it is created with.
        stream: the stream that writes it.
    """

    def __init__(self, table: DeltaTable, properties: dict[str, str], stream: StreamId) -> None:
        self._table = table
        self._properties = properties | of_lease(stream)
        self._stream = stream
        self._state: DeltaState | None = table.state()
        self._deletes = 0
        #: Number of changes by batch.
        self.batches: dict[int, int] = {}
        if self._state is not None:
            counted = table.read().groupBy(BATCH.name).count().collect()
            self.batches = {row[0]: row[1] for row in counted}

    def __bool__(self) -> bool:
        return bool(self.batches)

    @property
    def rows(self) -> int:
        """Number of pending changes."""
        return sum(self.batches.values())

    def has(self, mark: CommitMark) -> bool:
        """Whether the commit with `mark` is in the table, merged meanwhile or not."""
        return self._state is not None and self._state.transactions.get(mark.app, -1) >= mark.version

    def add(self, rows: NewRows, count: int, mark: CommitMark) -> None:
        """Add changes, at most `count`."""
        if self._state is None:
            columns = pa.schema([*rows.fields, BATCH])
            self._table.create(TableDefinition(columns, self._properties | _KEPT, partition_by=BATCH.name))
        else:
            self._table.claim(self._state, self._stream)
            self._follow(rows.fields, mark)
        self._table.append(rows, mark, {BATCH.name: mark.version})
        self._state = self._table.state()
        self.batches[mark.version] = self.batches.get(mark.version, 0) + count

    def _follow(self, fields: pa.Schema, mark: CommitMark) -> None:
        """Take up the columns of changes; other types of columns that the target has made text or anew."""
        try:
            changes = follow(self._table.path, self._table.schema(), fields)
        except SinkError:
            if self:
                raise
            at = replace(mark, app=f"{mark.app}/columns")
            self._table.empty_as(pa.schema([*fields, BATCH]), at, BATCH.name)
        else:
            self._table.change(change for change in changes if not isinstance(change, BecomeText))

    def changes(self, above: int) -> DataFrame:
        """The changes of the batches above `above`."""
        return self._table.read().where(f.col(BATCH.name) > above).drop(BATCH.name)

    def files(self, above: int) -> list[str]:
        """Paths of the files of the changes of the batches above `above`."""
        root = self._table.path
        files = self._table.begin().files()
        return [path_of(file, root) for file in files if _batch_of(file) > above]

    def lose(self, held: Collection[str], own: Collection[str], mark: CommitMark) -> None:
        """Drop columns that the target no longer has: a later one of that name may be another.

        Args:
            held: the columns that the target has of its source's.
            own: names of columns that are not the source's.
            mark: the mark of the commit.
        """
        if self._state is None:
            return
        kept = {name.lower() for name in (*held, *own, BATCH.name)}
        gone = [DropColumn(name) for name in self._table.schema().names if name.lower() not in kept]
        if gone:
            self._table.claim(self._state, self._stream)
            rewrite(self._table, Altered.by(gone, ("",), ()), mark)
            self._state = self._table.state()

    def forget(self, mark: CommitMark) -> None:
        """Delete the changes up to the mark's batch, which are merged."""
        if self._state is not None:
            self._state = self._table.claim(self._state, self._stream)
        transaction = self._table.begin()
        if not transaction.has(mark):
            now_ms = int(time.time() * 1000)
            merged = (file for file in transaction.files() if _batch_of(file) <= mark.version)
            transaction.commit([json.dumps(removal(file, now_ms)) for file in merged], mark)
        self.batches = {batch: n for batch, n in self.batches.items() if batch > mark.version}
        self._deletes += 1
        if self._deletes % _DELETES_PER_VACUUM == 0:
            vacuum(self._table)
