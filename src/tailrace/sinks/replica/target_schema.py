"""The columns of a replica's table, and how they follow the source's. Pure.

Beside the Arrow type, which says how values travel (`sinks.tables.columns`), a database's column has what the
source declared: lengths, labels, digits. A table holds *columns of the model*, widened as the source's are,
never narrowed: VARCHAR(10) becomes VARCHAR(20) when the source's does, an ENUM gains labels. What a dialect
makes of such a column is its matter.

NOT NULL is kept as long as no row can come without a value: not for columns that were added later (the log
does not tell what the rows that were there got), nor that the source dropped, nor for dates, since one that
is none (`0000-00-00`) reads as null.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.tables.columns import WidenColumn, follow, stored_schema

#: Kinds whose values are text, by what texts they allow: each is one of the last.
_TEXTS = (Kind.ENUM, Kind.SET, Kind.JSON, Kind.STRING)
#: Most characters or bytes of types that declare no length.
_CAPACITY = {
    **dict.fromkeys(("tinytext", "tinyblob"), 255),
    "blob": 65_535,  # a `text` may be PostgreSQL's, which has no end
    **dict.fromkeys(("mediumtext", "mediumblob"), 16_777_215),
    "uuid": 36,
    "inet4": 15,
    "inet6": 45,
}
_UNBOUNDED = 4_294_967_295
_DATES = (Kind.DATE, Kind.DATETIME, Kind.INSTANT)


@dataclass(frozen=True)
class TargetSchema:
    """What a table of the replica holds.

    Args:
        target: its name, for errors.
        columns: in the table's order.
        key: names of the key's columns.
    """

    target: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @cached_property
    def schema(self) -> TableSchema:
        """This shape as the source would say it."""
        return TableSchema(TableId("", self.target), self.columns, self.key)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as rows bring them."""
        return stored_schema(self.schema)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in its order."""
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[name] for name in self.key)

    def is_key(self, column: Column) -> bool:
        """Whether the column is one of the key's."""
        return column.name in self.key

    def without(self, lacking: Collection[str]) -> TargetSchema:
        """This shape without some columns."""
        return replace(self, columns=tuple(c for c in self.columns if c.name not in lacking))

    def followed(self, shape: TableSchema) -> TargetSchema:
        """This shape, widened to hold rows of `shape` too.

        Raises:
            SinkError: it cannot be.
        """
        if shape.key != self.key:
            raise SinkError(
                f"target `{self.target}` cannot follow its source: the key has changed",
                f"the target's key is ({', '.join(self.key)}), that of `{shape.id}` ({', '.join(shape.key)})",
                "start a pipeline with a new target and checkpoint",
            )
        changes = follow(self.target, self.arrow, stored_schema(shape))
        widened = {c.name.lower() for c in changes if isinstance(c, WidenColumn)}
        wanted = {c.name.lower(): c for c in shape.columns}
        columns = [self._widened(c, wanted.pop(c.name.lower(), None), widened) for c in self.columns]
        columns += [replace(c, nullable=True) for c in shape.columns if c.name.lower() in wanted]
        return replace(self, columns=tuple(columns))

    def _widened(self, held: Column, wanted: Column | None, widened: set[str]) -> Column:
        if wanted is None:
            return replace(held, nullable=not self.is_key(held))
        nullable = not self.is_key(held) and (held.nullable or _may_be_null(wanted))
        if held.name.lower() in widened:
            return Column(held.name, wanted.type, nullable)
        return Column(held.name, self._wider(held, wanted.type), nullable)

    def _wider(self, held: Column, wanted: ColumnType) -> ColumnType:
        """A type for the values of both; their Arrow types are the same, or the held one is wider."""
        type_ = held.type
        if type_ == wanted:
            return type_
        if wanted.kind == type_.kind:
            return _wider_of_kind(type_, wanted)
        if type_.kind in _TEXTS and wanted.kind in _TEXTS:
            return _wider_text(_as_text(type_), _as_text(wanted))
        numbers = (Kind.INTEGER, Kind.YEAR, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT)
        dates = (Kind.DATE, Kind.DATETIME)
        for family in (numbers, dates):
            if type_.kind in family and wanted.kind in family:
                return wanted if type_.kind is Kind.YEAR else type_
        raise SinkError(
            f"column `{held.name}` of target `{self.target}` cannot follow its source",
            f"the target holds {type_.native}, the source has changed to {wanted.native}",
            "start a pipeline with a new target and checkpoint, or change the column back",
        )

    def to_json(self) -> str:
        """This shape as text; `from_json` reads it back."""
        return json.dumps(self.schema.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, target: str, text: str) -> TargetSchema:
        """The shape that `to_json` wrote."""
        schema = TableSchema.from_json(json.loads(text))
        return cls(target, schema.columns, schema.key)


def first_shape(target: str, shape: TableSchema) -> TargetSchema:
    """The shape of a new table for rows of `shape`.

    Raises:
        SinkError: it has no key.
    """
    if not shape.key:
        raise SinkError(
            f"table `{shape.id}` has no key",
            "a replica needs one to find the row of a change",
            "add a primary key, or leave the table out of the captured ones",
        )
    columns = (replace(c, nullable=c.name not in shape.key and _may_be_null(c)) for c in shape.columns)
    return TargetSchema(target, tuple(columns), shape.key)


def shape_of(target: str, shapes: Iterable[TableSchema], held: TargetSchema | None = None) -> TargetSchema:
    """What a table must hold for rows of all `shapes`, beside what it holds."""
    for shape in shapes:
        held = first_shape(target, shape) if held is None else held.followed(shape)
    assert held is not None
    return held


def _may_be_null(column: Column) -> bool:
    return column.nullable or (column.type.kind in _DATES and column.type.zero_dates is None)


def capacity(type_: ColumnType) -> int:
    """Most characters or bytes of a type's values, as far as it is declared."""
    if type_.labels:
        lengths = [len(label) for label in type_.labels]
        return sum(lengths) + len(lengths) if type_.kind is Kind.SET else max(lengths)
    if type_.length is not None:
        return type_.length
    return _CAPACITY.get(type_.native, _UNBOUNDED)


def _as_text(type_: ColumnType) -> ColumnType:
    if type_.kind is Kind.STRING:
        return type_
    return ColumnType(Kind.STRING, "text" if type_.kind is Kind.JSON else "varchar", length=capacity(type_))


def _wider_text(a: ColumnType, b: ColumnType) -> ColumnType:
    wide, narrow = (a, b) if capacity(a) >= capacity(b) else (b, a)
    if wide.native == narrow.native or wide.length is None:
        return wide
    variable = "varbinary" if wide.kind is Kind.BYTES else "varchar"
    return replace(wide, native=variable, length=capacity(wide))


def _wider_of_kind(a: ColumnType, b: ColumnType) -> ColumnType:
    match a.kind:
        case Kind.STRING | Kind.BYTES:
            return _wider_text(a, b)
        case Kind.ENUM | Kind.SET:
            # both kinds' values are stored by number: labels that are there keep theirs
            return replace(a, labels=a.labels + tuple(x for x in b.labels if x not in a.labels))
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return replace(a, fraction=max(a.fraction or 0, b.fraction or 0))
        case Kind.BITS:
            return replace(a, bits=max(a.bits or 1, b.bits or 1))
        case Kind.VECTOR:
            return replace(a, length=max(a.length or 0, b.length or 0) or None)
        case Kind.GEOMETRY:
            return a if a.native == b.native else replace(a, native="geometry")
        case Kind.INTEGER if a.unsigned != b.unsigned:
            return _signed(a)
        case Kind.INTEGER:
            return a if (a.bits or 0) >= (b.bits or 0) else b
    return a


def _signed(held: ColumnType) -> ColumnType:
    """A type for the held one's values, whatever their sign: its Arrow type has one."""
    bits = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}.get(held.arrow)
    if bits is None:
        return ColumnType(Kind.DECIMAL, "decimal", precision=20, scale=0)
    return ColumnType(Kind.INTEGER, "int", bits=bits)
