"""Versions of rows in tasks, without MERGE: ends current versions of changed keys, adds those that begin.

    change files ──driver──▶ finds the next change of each one's key: when the version that it begins ends
    data file ──────task───▶ reads `_is_current` and the key columns; current versions of changed keys go into
                             its deletion vector and, ended, into a new data file
    change file ────task───▶ writes a version for each change, except deletes, into a new data file

`merge` says which versions these are. As in `upsert` everything is one commit, no row passes through the JVM,
no data file is rewritten, and small files need no task.

Ended versions never change again, so they have files of their own, in which `_valid_to` is null nowhere: the
statistics say so, and the next merge does not open them. What a merge costs depends on how many rows are
current, not on their history. Where a file has both kinds (MERGE or OPTIMIZE wrote it), or no statistics of
`_valid_to`, a task reads `_is_current` first, one bit a row, and keys only if a row is current.

Rows that were read again (OP_REREAD) begin a version only if they differ from the one before, which may be in
any file: these are left to MERGE.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.model.change import OP_DELETE, OP_REREAD
from tailrace.sinks.delta.data_files import (
    are_small,
    columns_in,
    deleted_rows,
    in_tasks,
    may_hold,
    removed,
    rows_at,
    with_deleted,
    without_tiny,
)
from tailrace.sinks.delta.table import DeltaTable, path_of
from tailrace.sinks.delta.transaction import CommitMark
from tailrace.sinks.tables.keys import following, numbers_of_keys, pairs_of_keys
from tailrace.sinks.tables.parquet import DataFile, rolling
from tailrace.sinks.tables.rows import CHANGE_FIELDS, VERSION_FIELDS

_OP, _SEQ, _TS = CHANGE_FIELDS
_, _VALID_TO, _IS_CURRENT, _ = VERSION_FIELDS


def add_versions(
    table: DeltaTable,
    changes: Sequence[str],
    columns: pa.Schema,
    *,
    key: Sequence[str],
    mark: CommitMark,
    scratch: str,
) -> float:
    """Apply changes to a table of versions, unless it has a commit with `mark`.

    Args:
        table: the target; its files are reached by a path, and it may have deletion vectors.
        changes: paths of Parquet files with the columns and CHANGE_FIELDS, rows in any order; none was read
            again (`have_rereads`).
        columns: the source's columns.
        key: the key's columns.
        mark: the mark of the commit.
        scratch: a directory for temporary files.

    Returns:
        How long the commit took, seconds.

    Raises:
        TableChangedError: another writer has changed the table's columns.
    """
    state, transaction = table.held(), table.begin()
    if transaction.has(mark):
        return 0.0
    if state is not None:
        transaction.require_columns(state)  # ended versions keep the values of all columns
    plan = _planned(changes, pa.schema([columns.field(name) for name in key]))
    fields, root = pa.schema([*columns, *VERSION_FIELDS]), table.path
    tiny, others = without_tiny(transaction.files(), fields, table)
    work = [
        [_work_on(file, whole=True) for file in tiny],
        [_work_on(file) for file in others if _may_change(file, plan.changed, key[0])],
        list(_work_on_changes(changes, plan)),
    ]
    # each task writes files of its own: too many for the few rows of small files
    here: list[tuple[str, int]] = []
    there: list[tuple[str, int]] = []
    for some in work:
        (here if are_small(size for _, size in some) else there).extend(some)
    actions = _actions((piece for piece, _ in here), plan.changed, plan.begun.__getitem__, fields, root)
    if there:
        plan.write(scratch)

        def run(pieces: Iterator[str]) -> list[str]:
            changed, begun = _Plan.read(scratch)
            return _actions(pieces, changed, begun, fields, root)

        actions += in_tasks(table, there, run)
    committing = time.perf_counter()
    transaction.commit(actions, mark)
    return time.perf_counter() - committing


def have_rereads(changes: Sequence[str]) -> bool:
    """Whether there are rows that were read again.

    Args:
        changes: paths of Parquet files.
    """
    ops = (columns_in(path, pa.schema([_OP])).column(0) for path in changes)
    return any(pc.any(pc.equal(found, OP_REREAD)).as_py() for found in ops)


# ---- which versions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """Which versions end and which begin.

    Args:
        changed: the changed keys, with the time of each one's first change (`_ts`).
        begun: for each file of changes those of its rows that begin a version: their numbers (`row`), and
            `_valid_to` and `_is_current` of the version.
    """

    changed: pa.Table
    begun: Sequence[pa.Table]

    def write(self, directory: str) -> None:
        """Write it for tasks."""
        pq.write_table(self.changed, f"{directory}/changed.parquet")
        for number, rows in enumerate(self.begun):
            pq.write_table(rows, f"{directory}/begun-{number}.parquet")

    @staticmethod
    def read(directory: str) -> tuple[pa.Table, Callable[[int], pa.Table]]:
        """What was written: `changed`, and what gives an item of `begun`."""
        return (
            pq.read_table(f"{directory}/changed.parquet"),
            lambda number: pq.read_table(f"{directory}/begun-{number}.parquet"),
        )


def _planned(changes: Sequence[str], keys: pa.Schema) -> _Plan:
    """Which versions the changes in some files end and begin.

    Args:
        changes: paths of the files.
        keys: the key's columns.
    """
    schema = pa.schema([*keys, *CHANGE_FIELDS])
    files = [columns_in(path, schema) for path in changes]
    rows = pa.concat_tables([schema.empty_table(), *files])
    next_ = following(numbers_of_keys(rows.select(keys.names).columns), rows.column(_SEQ.name))
    is_last = next_ < 0
    is_first = np.ones(len(next_), bool)
    is_first[next_[~is_last]] = False
    times = rows.column(_TS.name)
    begins = pc.not_equal(rows.column(_OP.name), OP_DELETE).to_numpy()
    ends = pa.table(
        [times.take(pa.array(next_, mask=is_last)), pa.array(is_last)], [_VALID_TO.name, _IS_CURRENT.name]
    )
    begun, first = [], 0
    for file in files:
        numbers = np.flatnonzero(begins[first : first + file.num_rows])
        of_file = ends.take(pa.array(first + numbers))
        begun.append(of_file.append_column("row", pa.array(numbers)))
        first += file.num_rows
    changed = rows.select([*keys.names, _TS.name]).filter(pa.array(is_first))
    return _Plan(changed, begun)


# ---- work --------------------------------------------------------------------------------------------


def _may_change(file: Mapping[str, Any], changed: pa.Table, first: str) -> bool:
    """Whether a data file may hold a current version, whose end is null, of a changed key."""
    nulls = json.loads(file.get("stats") or "{}").get("nullCount", {})
    return nulls.get(_VALID_TO.name) != 0 and may_hold(file, changed, first)


def _work_on(file: Mapping[str, Any], *, whole: bool = False) -> tuple[str, int]:
    """A data file as a piece of work, with its size.

    Args:
        file: its `add` action.
        whole: whether its other versions are to go into new files, too.
    """
    return json.dumps({"add": file, "whole": whole}), file["size"]


def _work_on_changes(changes: Sequence[str], plan: _Plan) -> Iterator[tuple[str, int]]:
    """The files of changes that begin versions, as pieces of work with their sizes."""
    for number, (path, begun) in enumerate(zip(changes, plan.begun, strict=True)):
        if begun.num_rows:
            yield json.dumps({"changes": path, "number": number}), Path(path).stat().st_size


def _actions(
    pieces: Iterable[str],
    changed: pa.Table,
    begun: Callable[[int], pa.Table],
    fields: pa.Schema,
    root: str,
) -> list[str]:
    """Do pieces of work; the actions of the log.

    Args:
        pieces: the pieces.
        changed: see `_Plan`.
        begun: gives the item of `_Plan.begun` with a number.
        fields: all columns of the table.
        root: its directory.
    """
    actions: list[str] = []

    def versions() -> Iterator[pa.RecordBatch]:
        for piece in map(json.loads, pieces):
            if "changes" in piece:
                yield from _begun(piece["changes"], begun(piece["number"]), fields)
                continue
            file = piece["add"]
            held = _Held.read(file, changed, root)
            yield from held.ended(fields)
            if piece["whole"]:
                yield from held.others(fields)
                actions.append(removed(file))
            elif len(held.numbers):
                actions.extend(with_deleted(file, held.deleted, held.rows, root))

    new = _write(versions(), fields, root)
    return [*actions, *(file.action({}) for file in new)]


def _write(versions: Iterable[pa.RecordBatch], fields: pa.Schema, root: str) -> list[DataFile]:
    """Write versions into data files, ended ones apart from current ones."""
    current, ended = rolling(fields, root), rolling(fields, root)
    for batch in versions:
        is_current = pc.fill_null(batch.column(_IS_CURRENT.name), False)
        current.add(batch.filter(is_current))
        ended.add(batch.filter(pc.invert(is_current)))
    return [*current.end(), *ended.end()]


def _begun(path: str, begun: pa.Table, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The versions that changes in a file begin.

    Args:
        path: the file.
        begun: see `_Plan`.
        fields: all columns of the table.
    """
    own = [field.name for field in VERSION_FIELDS]
    columns = [field for field in fields if field.name not in own]
    first = 0
    for rows in rows_at(path, begun.column("row").to_numpy(), pa.schema([*columns, _TS, _SEQ])):
        ends = begun.slice(first, rows.num_rows)
        first += rows.num_rows
        *values, times, seqs = rows.columns
        to, is_current = (ends.column(field.name).combine_chunks() for field in (_VALID_TO, _IS_CURRENT))
        yield pa.RecordBatch.from_arrays([*values, times, to, is_current, seqs], schema=fields)


@dataclass(frozen=True)
class _Held:
    """The versions in a data file.

    Args:
        path: its path.
        rows: the number of its rows, with deleted ones.
        deleted: the rows that are deleted, with current versions of changed keys.
        numbers: the rows that are current versions of changed keys, ascending.
        times: when these end.
    """

    path: str
    rows: int
    deleted: BitMap64
    numbers: np.ndarray
    times: pa.ChunkedArray

    @classmethod
    def read(cls, file: Mapping[str, Any], changed: pa.Table, root: str) -> _Held:
        """Look for current versions of changed keys.

        Args:
            file: the file's `add` action.
            changed: see `_Plan`.
            root: the table's directory.
        """
        path, deleted = path_of(file, root), deleted_rows(file, root)
        is_current = columns_in(path, pa.schema([_IS_CURRENT])).column(0)
        current = np.array(pc.fill_null(is_current, False))
        current[np.array(deleted.to_array(), np.int64)] = False
        numbers, keys = np.flatnonzero(current), changed.drop_columns([_TS.name])
        if not len(numbers):
            return cls(path, len(current), deleted, numbers, changed.column(_TS.name).slice(0, 0))
        rows, others = pairs_of_keys(columns_in(path, keys.schema).filter(pa.array(current)), keys)
        order = pc.sort_indices(rows)
        numbers = numbers[rows.take(order).to_numpy()]
        deleted |= BitMap64(numbers.astype(np.uint64))
        return cls(path, len(current), deleted, numbers, changed.column(_TS.name).take(others.take(order)))

    def ended(self, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The current versions of changed keys, ended."""
        first = 0
        for rows in rows_at(self.path, self.numbers, fields):
            ends = self.times.slice(first, rows.num_rows).combine_chunks()
            first += rows.num_rows
            new = {_VALID_TO.name: ends, _IS_CURRENT.name: pa.array(np.zeros(rows.num_rows, bool))}
            arrays = [new.get(name, rows.column(name)) for name in fields.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=fields)

    def others(self, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The other versions that are not deleted."""
        left = BitMap64(range(self.rows)) - self.deleted
        yield from rows_at(self.path, np.array(left.to_array(), np.int64), fields)
