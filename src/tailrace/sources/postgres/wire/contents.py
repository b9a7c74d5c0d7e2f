"""Whether the rows of a table have changed without an entry in the log, by what the catalog says. Pure.

The log of PostgreSQL has no schema changes. A column that is added with a default, renamed, dropped,
converted or computed by another expression changes rows; so does a partition that is attached, detached,
dropped or truncated. The log has nothing of it, or the new columns at the table's next change. So a stream
stores a digest of what rows depend on (`Source.identities`), and compares it with the catalog.

    last column . columns . their versions . file . last partition . partitions [. types]

Columns and partitions with higher numbers than the last ones have been added since. Most of them change no
row: a column that is NULL in old rows, and a partition that was created as one. What cannot be told counts as
a change of rows: at worst, a table is read once more than necessary.

Values of an enum are written with its labels, which may be renamed, and those of a composite type with all
its attributes. So a column with such a type, be it in an array, a domain or a range, has a digest of them of
its own: `number:last label:digest`. Labels with higher numbers have been added since, which changes no row.

The file (relfilenode) of a table is replaced by an ALTER TABLE that rewrites it, but by VACUUM FULL and
CLUSTER, too. It counts only where a column was altered or added as well. TRUNCATE of a partition is not in
the log of its root, so for partitions the file counts alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TypeValues:
    """What the text of a type's values depends on that has no entry in the log.

    Args:
        labels: of the enums in it, each with its number (`pg_enum.oid`).
        attributes: of the composite types in it, in any form.
    """

    labels: tuple[tuple[int, str], ...]
    attributes: tuple[str, ...]

    def text(self, upto: int | None = None) -> str:
        """The digest, to be stored, of the labels up to a number."""
        last = max((number for number, _ in self.labels), default=0) if upto is None else upto
        labels = sorted(f"{number} {label}" for number, label in self.labels if number <= last)
        return f"{last}:{_digest([*labels, '', *sorted(self.attributes)])}"


@dataclass(frozen=True)
class StoredColumn:
    """A column.

    Args:
        number: its attnum.
        name: its name.
        form: its type, type modifier and expression, as text.
        version: differs once the catalog's entry of the column was altered.
        is_filled: whether it may have had values in old rows when it was added: it has, or had, a default, or
            an expression.
        values: of a type that has enums or composite types in it, else None.
    """

    number: int
    name: str
    form: str
    version: str
    is_filled: bool
    values: TypeValues | None = None


@dataclass(frozen=True)
class Partition:
    """A partition, or a partitioned one that has partitions.

    Args:
        oid: its object id.
        file: its relfilenode, 0 if it has none.
        attached: differs once it was detached and attached again.
        is_born: whether it is known to have been created as a partition of its parent.
    """

    oid: int
    file: int
    attached: str
    is_born: bool

    @property
    def is_logged_whole(self) -> bool:
        """Whether the log has all its rows: it was created as a partition, and still has its first file."""
        return self.is_born and self.file in (0, self.oid)


@dataclass(frozen=True)
class Contents:
    """What the values of a table's old rows depend on.

    Args:
        columns: the columns that the stream has.
        file: its relfilenode, 0 for a partitioned table.
        parts: all below it, for a partitioned table.
    """

    columns: tuple[StoredColumn, ...]
    file: int
    parts: tuple[Partition, ...] = ()

    @property
    def text(self) -> str:
        """The digest, to be stored."""
        last = max((c.number for c in self.columns), default=0)
        last_part = max((p.oid for p in self.parts), default=0)
        columns, versions, parts = self._digests(last, last_part)
        types = ",".join(f"{c.number}:{c.values.text()}" for c in self.columns if c.values is not None)
        return f"{last}.{columns}.{versions}.{self.file}.{last_part}.{parts}" + (f".{types}" if types else "")

    def change_since(self, text: str, *, files_count: bool, are_told: bool = False) -> str:
        """How rows have, or may have, changed since `text` was stored; "" if they have not.

        Args:
            text: the digest of then.
            files_count: whether a new file is enough: the log need not have told what replaced it.
            are_told: whether events tell what became of the columns that there were (`wire.shapes`).
        """
        last, columns, versions, file, last_part, parts, *types = text.split(".")
        columns_now, versions_now, parts_now = self._digests(int(last), int(last_part))
        added = [c for c in self.columns if c.number > int(last)]
        filled = [c.name for c in added if c.is_filled]
        if columns != columns_now and not are_told:
            return "a column was dropped, renamed, or given another type or expression"
        if types and (renamed := self._retyped(types[0])):
            return f"the labels or attributes of the type of `{renamed}` were changed"
        if filled:
            return f"{', '.join(f'`{name}`' for name in filled)} was added with values in old rows"
        if file != str(self.file) and (added or versions != versions_now or files_count):
            return "it was rewritten"
        if parts != parts_now or not all(p.is_logged_whole for p in self.parts if p.oid > int(last_part)):
            return "a partition was attached, detached, dropped, truncated or rewritten"
        return ""

    def _retyped(self, stored: str) -> str:
        """A column whose old values are written differently since; "" if there is none."""
        now = {str(c.number): c for c in self.columns if c.values is not None}
        for number, last, digest in (entry.split(":") for entry in stored.split(",")):
            column = now.get(number)
            if column is None or column.values is None:
                continue  # the column itself is another one
            if column.values.text(int(last)) != f"{last}:{digest}":
                return column.name
        return ""

    def _digests(self, last: int, last_part: int) -> tuple[str, str, str]:
        """Of the columns and partitions up to these numbers."""
        columns = [c for c in self.columns if c.number <= last]
        return (
            _digest(f"{c.number} {c.name} {c.form}" for c in columns),
            _digest(c.version for c in columns),
            _digest(sorted(f"{p.oid} {p.file} {p.attached}" for p in self.parts if p.oid <= last_part)),
        )


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:10]
