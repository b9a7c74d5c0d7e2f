"""The keys that a target has received while tables are read again, and the rows of other keys.

    <location>/seen/<uuid>.parquet   the keys that one batch leaves: those whose last change is no delete
    <location>/seen/<uuid>.json      by table: the reading's id, the key's columns, the files of keys; of a
                                     change log also the files of the rows that were read (`change_log`)

The table's property `tailrace.seen` names the second file. It changes in the commit of the batch, so a batch
that comes again notes nothing twice. At the end of a reading (`model.reread`), `Unseen` finds the rows to
delete; the same commit deletes them. A process that dies just after a commit leaves files that nothing names,
which Spark's `remove_orphan_files` finds.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.iceberg.files import FileTarget, fitted, read
from tailrace.sinks.tables import keys
from tailrace.sinks.tables.rereads import Refresh

#: The property of a table that names the file with its tables' readings.
SEEN = "tailrace.seen"


@dataclass(frozen=True)
class Unseen:
    """The rows of a table that is read again whose keys have not been seen.

    Args:
        table: the table, as a shard column names it.
        shard: the column that holds the table's name; None: all of the target's rows are the table's.
        key: the key's columns; empty if no key has been seen.
        files: the paths of the files with the seen keys.
        rows: of a change log: the paths of the files with the rows that were read.
        marks: how the rows are marked; None: they are deleted.
    """

    table: str
    shard: str | None
    key: tuple[str, ...]
    files: tuple[str, ...]
    rows: tuple[str, ...] = ()
    marks: SoftDelete | None = None

    @property
    def columns(self) -> list[str]:
        """The columns by which rows are recognised."""
        marks = [] if self.marks is None else list(self.marks.of_existing)
        return [*self.key, *([] if self.shard is None else [self.shard]), *marks]

    @property
    def stay(self) -> bool:
        """Whether the rows stay as they are."""
        return self.marks is not None and not self.marks.gone

    def marked(self, rows: pa.Table) -> pa.Table:
        """Rows with the marks of deleted ones."""
        for name, value in {} if self.marks is None else self.marks.gone.items():
            at = rows.schema.get_field_index(name)
            field = rows.schema.field(at)
            values = pa.repeat(pa.scalar(value), rows.num_rows).cast(field.type)
            rows = rows.set_column(at, field, values)
        return rows

    def among(self, io: FileIO, rows: pa.Table) -> np.ndarray:
        """Which of `rows` they are.

        Args:
            io: reads the seen keys.
            rows: rows of the target with `columns`.
        """
        found = np.full(rows.num_rows, not self.stay)
        if self.marks is not None and self.marks.of_existing:
            found &= self._are_unmarked(rows)
        if self.shard is not None:
            is_own = pc.equal(rows.column(self.shard), pa.scalar(self.table, pa.string()))
            found &= pc.fill_null(is_own, False).to_numpy()
        held = rows.select(list(self.key))
        for path in self.files:
            if not found.any():
                break
            seen = fitted(read(io, path, within=_range(held)), held.schema)
            found[keys.rows_of_keys(held, seen).to_numpy()] = False
        return found

    def _are_unmarked(self, rows: pa.Table) -> np.ndarray:
        assert self.marks is not None
        found = np.zeros(rows.num_rows, bool)
        for name, values in self.marks.of_existing.items():
            column = rows.column(name)
            for value in values:
                same = column.is_null() if value is None else pc.equal(column, pa.scalar(value))
                found |= pc.fill_null(same, False).to_numpy()
        return found


class SeenFiles:
    """The keys that an Iceberg table's source tables have left while they are read again.

    Args:
        table: the Iceberg table.
        refreshes: the tables that are read again in the batch, as far as the target follows them.
    """

    def __init__(self, table: Table, refreshes: Sequence[Refresh]) -> None:
        self._io = table.io
        self._directory = f"{table.location()}/seen"
        self._refreshes = refreshes
        self._path = table.properties.get(SEEN)
        self._before: dict[str, Any] = {}
        if self._path is not None:
            with table.io.new_input(self._path).open() as stream:
                self._before = json.loads(stream.read())
        ids = {str(refresh.table): refresh.reread.id for refresh in refreshes}
        #: Without readings that have been given up.
        self._now = {name: held for name, held in self._before.items() if ids.get(name) == held["id"]}

    def note(self, left: pa.Table) -> None:
        """Note the keys that a batch leaves.

        Keys under which a table was known before are forgotten: its rows are read again under another one.
        """
        if not self._refreshes or not left.num_rows:
            return
        (path,) = FileTarget(self._io, self._directory, left.schema).write(left.to_batches(), file_bytes=None)
        for refresh in self._refreshes:
            self.note_files(refresh, left.column_names, [path])

    def note_files(
        self, refresh: Refresh, key: Sequence[str], files: Sequence[str], rows: Sequence[str] = ()
    ) -> None:
        """Note files of a table that is read again.

        Args:
            refresh: the table.
            key: the key's columns.
            files: the paths of files with keys that were left.
            rows: of a change log: the paths of files with rows that were read.
        """
        held = self._now.get(str(refresh.table))
        if held is None or held["key"] != list(key):
            held = {"files": []}
        entry = {"id": refresh.reread.id, "key": list(key), "files": [*held["files"], *files]}
        found = [*held.get("rows", []), *rows]
        self._now[str(refresh.table)] = {**entry, "rows": found} if found else entry

    def unseen(self) -> list[Unseen]:
        """The rows to delete, of the tables whose last rows the batch holds."""
        found = []
        for refresh in self._refreshes:
            if refresh.reread.done:
                held = self._now.get(str(refresh.table), {"key": [], "files": []})
                key, files, rows = held["key"], held["files"], held.get("rows", [])
                found.append(
                    Unseen(refresh.name, refresh.shard, tuple(key), tuple(files), tuple(rows), refresh.marks)
                )
        return found

    def write(self) -> str | None:
        """Write what is needed after the batch; the property's new value, None if nothing is."""
        done = {str(refresh.table) for refresh in self._refreshes if refresh.reread.done}
        needed = {name: held for name, held in self._now.items() if name not in done}
        if needed == self._before:
            return self._path
        path = None
        if needed:
            path = f"{self._directory}/{uuid.uuid4()}.json"
            with self._io.new_output(path).create() as stream:
                stream.write(json.dumps(needed).encode())
        unneeded = _files(self._before) | _files(self._now)
        self._unneeded = [*(unneeded - _files(needed)), *([] if self._path is None else [self._path])]
        return path

    def forget(self) -> None:
        """Delete what the commit of the batch has made unneeded."""
        for path in self._unneeded:
            self._io.delete(path)

    _unneeded: Sequence[str] = ()


def _files(readings: dict[str, Any]) -> set[str]:
    return {path for held in readings.values() for path in [*held["files"], *held.get("rows", [])]}


def _range(rows: pa.Table) -> pc.Expression | None:
    """The range of the first column if it holds integers: readings pass through a table in its order."""
    if not rows.num_rows or not pa.types.is_integer(rows.schema.field(0).type):
        return None
    ends = pc.min_max(rows.column(0))
    if not ends["min"].is_valid:
        return None
    first = pc.field(rows.column_names[0])
    return (first >= ends["min"]) & (first <= ends["max"])


def columns_of(unseen: Iterable[Unseen]) -> list[str]:
    """The columns by which all of these rows are recognised, each once."""
    return list(dict.fromkeys(column for rows in unseen for column in rows.columns))
