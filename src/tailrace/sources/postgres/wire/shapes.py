"""What becomes of a table's columns by schema changes that the log does not tell. Pure.

PostgreSQL's log has no schema changes: a Relation message tells names and types of the columns, in the order
of their numbers (`attnum`), before the first change that has them. It has no numbers, so it does not tell a
renamed column from one that was dropped beside one that was added. The catalog has numbers, but of now, which
may be schema changes ahead of the log. A stream stores the shape by which it knows a table, with numbers, and
both together tell more than each (docs/design/0003-postgresql.md, P9):

    shape that the stream knows ──▶ Relation in the log ──▶ shape in the catalog, read after it

A number is never given twice, and columns are added in the order of their numbers. So, where no column was
dropped on the way, the number of columns of the Relation says which they are; likewise where none was added.
In all other cases nothing is said, and the table is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    SchemaChange,
)
from tailrace.model.table import Column
from tailrace.model.types import MAX_DECIMAL_DIGITS
from tailrace.sources.postgres.wire.relation import Relation

_VERSION = 1
_VARCHAR, _TEXT, _NUMERIC, _VARBIT = 1043, 25, 1700, 1562
#: Types whose modifier is a length, or the digits of a second.
_MEASURED = (_VARCHAR, _VARBIT, 1083, 1114, 1184)


@dataclass(frozen=True)
class ShapeColumn:
    """A column.

    Args:
        number: its attnum.
        name: its name.
        type: oid of its type.
        modifier: `atttypmod`.
        nullable: whether it may hold NULL.
    """

    number: int
    name: str
    type: int
    modifier: int
    nullable: bool

    @property
    def form(self) -> tuple[int, int]:
        """The type, with its modifier."""
        return self.type, self.modifier


@dataclass(frozen=True)
class Shape:
    """A table's columns.

    Args:
        oid: the table's object id.
        last: the greatest number that a column has had, whether it still exists or not.
        key: the numbers of the key's columns.
        columns: those that the stream has, by number.
        others: numbers of the existing ones that it does not have; known of the catalog's shape only.
    """

    oid: int
    last: int
    key: tuple[int, ...]
    columns: tuple[ShapeColumn, ...]
    others: frozenset[int] = field(default=frozenset(), compare=False)

    def to_json(self) -> list[Any]:
        """The shape as JSON values."""
        columns = [[c.number, c.name, c.type, c.modifier, int(c.nullable)] for c in self.columns]
        return [_VERSION, self.oid, self.last, list(self.key), columns]

    @classmethod
    def from_json(cls, value: Any) -> Shape | None:
        """Read the shape that `to_json` wrote; None: a newer version wrote it."""
        if value[0] != _VERSION:
            return None
        _, oid, last, key, columns = value
        return cls(
            oid,
            last,
            tuple(key),
            tuple(ShapeColumn(n, name, type_, mod, bool(null)) for n, name, type_, mod, null in columns),
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its columns."""
        return tuple(c.number for c in self.columns)

    def by_number(self) -> dict[int, ShapeColumn]:
        """Its columns by their numbers."""
        return {c.number: c for c in self.columns}

    def key_names(self) -> tuple[str, ...]:
        """The names of the key's columns; () if one of them is not there."""
        names = {c.number: c.name for c in self.columns}
        return tuple(names[n] for n in self.key) if all(n in names for n in self.key) else ()

    def is_that_of(self, relation: Relation) -> bool:
        """Whether the log has the same columns."""
        return [(c.name, *c.form) for c in self.columns] == [
            (c.name, c.type, c.modifier) for c in relation.columns
        ]


def resolved(before: Shape, relation: Relation, now: Shape) -> Shape | None:
    """The shape that a Relation message shows; None: it may be one of several.

    Args:
        before: the shape that all changes before the message have, or an earlier one.
        relation: the message.
        now: the shape in the catalog, read after the message was.
    """
    if not (before.oid == now.oid == relation.oid) or _lost(before, now):
        return None
    old, new = before.numbers, now.numbers
    added = [n for n in new if n not in old]
    kept = [n for n in old if n in new]
    count = len(relation.columns)
    if len(kept) == len(old) and 0 <= count - len(old) <= len(added):
        numbers = [*old, *added[: count - len(old)]]
    elif not added and count in (len(old), len(new)):
        numbers = list(old if count == len(old) else new)
    else:
        return None
    known = {**now.by_number(), **before.by_number()}
    columns = tuple(
        ShapeColumn(number, c.name, c.type, c.modifier, known[number].nullable)
        for number, c in zip(numbers, relation.columns, strict=True)
    )
    key = before.key if set(before.key) <= set(numbers) else now.key
    return Shape(before.oid, max(before.last, *numbers), key, columns)


def _lost(before: Shape, now: Shape) -> bool:
    """Whether a column came and went in between, or the stream has other columns of those that there were."""
    added = range(before.last + 1, now.last + 1)
    return _joined(before, now) or not {*now.numbers, *now.others}.issuperset(added)


def _joined(before: Shape, now: Shape) -> bool:
    """Whether a column joined the stream, or left it, and neither is new nor dropped."""
    joined = any(n <= before.last and n not in before.numbers for n in now.numbers)
    return joined or not now.others.isdisjoint(before.numbers)


def untold(before: Shape, now: Shape, *, is_read: bool, is_followed: bool) -> str:
    """Why the changes from one shape to a later one do not tell what its rows are now; "" if they do.

    New columns are taken for NULL in old rows, and types for changed in place: `contents` knows.

    Args:
        before: the earlier shape.
        now: the later one.
        is_read: whether rows are being read that may lack what the change took.
        is_followed: whether targets rename and drop columns.
    """
    if before.oid != now.oid:
        return "it is another table"
    if _joined(before, now):
        return "a column joined the stream, or left it"
    old, new = before.by_number(), now.by_number()
    renamed = [n for n in old.keys() & new.keys() if old[n].name != new[n].name]
    dropped = old.keys() - new.keys()
    names = {c.name.lower() for c in before.columns}
    introduced = {new[n].name.lower() for n in (*renamed, *(new.keys() - old.keys()))}
    if introduced & names:
        return "a column has the name that another one had"
    if not is_followed and (renamed or dropped):
        return "a column was renamed or dropped"
    if not {*renamed, *dropped}.isdisjoint(before.key):
        return "a column of its key was renamed or dropped"
    altered = [n for n in old.keys() & new.keys() if old[n].form != new[n].form]
    if is_read and (renamed or dropped or altered):
        return "its columns changed while its rows were read"
    if not all(_is_wider(old[n], new[n]) for n in altered):
        return "a column has another type"
    return ""


def _is_wider(old: ShapeColumn, new: ShapeColumn) -> bool:
    """Whether a column has got a type that reads the same bytes as the same values."""
    if (old.type, new.type) == (_VARCHAR, _TEXT):
        return True
    if old.type != new.type:
        return False
    if old.type in _MEASURED:
        return new.modifier == -1 or 0 <= old.modifier <= new.modifier
    if old.type == _NUMERIC and old.modifier >= 4 and new.modifier >= 4:
        digits, more = (c.modifier - 4 >> 16 for c in (old, new))
        same_scale = (old.modifier - 4) & 0xFFFF == (new.modifier - 4) & 0xFFFF
        return same_scale and digits <= more <= MAX_DECIMAL_DIGITS
    return False


def changes_between(
    before: Shape, now: Shape, column: Callable[[ShapeColumn], Column]
) -> tuple[SchemaChange, ...]:
    """The changes from one shape to a later one; none where names have changed places, or the table has.

    Args:
        before: the earlier shape.
        now: the later one.
        column: gives a column its type.
    """
    old, new = before.by_number(), now.by_number()
    both = [n for n in before.numbers if n in new]
    names = {c.name.lower() for c in before.columns}
    introduced = [new[n].name for n in both if old[n].name != new[n].name]
    introduced += [new[n].name for n in now.numbers if n not in old]
    if before.oid != now.oid or any(name.lower() in names for name in introduced):
        return ()
    found: list[SchemaChange] = [ColumnDropped(old[n].name) for n in before.numbers if n not in new]
    found += [ColumnRenamed(old[n].name, new[n].name) for n in both if old[n].name != new[n].name]
    for n in both:
        if old[n].form != new[n].form or old[n].nullable != new[n].nullable:
            was = ShapeColumn(n, new[n].name, *old[n].form, old[n].nullable)
            found.append(ColumnAltered(column(was), column(new[n])))
    found += [ColumnAdded(column(new[n])) for n in now.numbers if n not in old]
    if before.key != now.key:
        found.append(KeyAltered(before.key_names(), now.key_names()))
    return tuple(found)
