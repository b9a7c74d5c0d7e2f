"""The schema of a replica's table, and how it follows the source's. Pure.

In addition to the Arrow type, which defines how values are transferred (`sinks.tables.columns`), a column in
a database has the source's declarations: length, labels, digits. A target schema consists of *columns of the
model*, widened with the source's and never narrowed: VARCHAR(10) becomes VARCHAR(20) when the source's does,
an ENUM gains labels. The dialect chooses the SQL types.

NOT NULL is kept as long as every row has a value. So it is dropped for columns added later (the log does not
tell their value in existing rows), for columns that the source dropped, and for dates, since an invalid one
(`0000-00-00`) reads as null.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tailrace.config.sinks import OnIncompatibleType
from tailrace.model.key import no_key
from tailrace.model.schema_policy import FOLLOWING, Following
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.tables.columns import (
    WidenColumn,
    follow,
    incompatible,
    kept_schema,
    stored_schema,
)
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.tables.text_form import TEXT, becomes_text

#: Kinds with text values, in order of generality; a string can hold any of the others.
_TEXTS = (Kind.ENUM, Kind.SET, Kind.JSON, Kind.STRING)
#: Most characters or bytes of types without a declared length.
_CAPACITY = {
    **dict.fromkeys(("tinytext", "tinyblob"), 255),
    "blob": 65_535,  # not `text`: PostgreSQL's is unbounded
    **dict.fromkeys(("mediumtext", "mediumblob"), 16_777_215),
    "uuid": 36,
    "inet4": 15,
    "inet6": 45,
}
_UNBOUNDED = 4_294_967_295
#: Types whose values are transferred as text, while not every text is one of theirs.
TYPED_TEXTS = frozenset(
    (
        *("numeric", "uuid", "inet", "cidr", "macaddr", "macaddr8", "interval", "timetz", "xml", "varbit"),
        *("tsvector", "tsquery", "pg_lsn", "point", "lseg", "path", "box", "polygon", "line", "circle"),
        *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange", "jsonpath"),
        *("inet4", "inet6"),
    )
)
_DATES = (Kind.DATE, Kind.DATETIME, Kind.INSTANT)


@dataclass(frozen=True)
class TargetSchema:
    """The schema of a table in the replica.

    Args:
        target: the target's name, for errors.
        columns: the columns, in the table's order.
        key: names of the key columns.
    """

    target: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @cached_property
    def table_schema(self) -> TableSchema:
        """The schema in the model of a source's table."""
        return TableSchema(TableId("", self.target), self.columns, self.key)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the rows to write."""
        return stored_schema(self.table_schema)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns, in the key's order."""
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[name] for name in self.key)

    @cached_property
    def of_keys(self) -> TargetSchema:
        """This schema without the columns outside the key."""
        return replace(self, columns=self.key_columns)

    def is_key(self, column: Column) -> bool:
        """Whether the column belongs to the key."""
        return column.name in self.key

    def after(self, change: RenameColumn | DropColumn) -> TargetSchema:
        """This schema with a column renamed or dropped."""
        columns = [c for c in self.columns if not (isinstance(change, DropColumn) and c.name == change.old)]
        if isinstance(change, RenameColumn):
            columns = [replace(c, name=change.new) if c.name == change.old else c for c in columns]
        return replace(self, columns=tuple(columns))

    def without(self, absent: Collection[str]) -> TargetSchema:
        """This schema without some columns."""
        return replace(self, columns=tuple(c for c in self.columns if c.name not in absent))

    def widened_for(
        self,
        schema: TableSchema,
        following: Following = FOLLOWING,
        policy: OnIncompatibleType = OnIncompatibleType.PARK,
    ) -> TargetSchema:
        """This schema, widened to hold rows of `schema` too, with its key.

        Args:
            schema: the schema.
            following: whether it gets new columns and other types.
            policy: what becomes of a column that cannot hold values of both types.

        Raises:
            SinkError: the change is not possible: an incompatible type, or no key.
        """
        schema = kept_schema(self.target, schema, self.arrow.names, following)
        if [name.lower() for name in schema.key] != [name.lower() for name in self.key]:
            return self._rekeyed_for(schema, following, policy)
        changes = follow(
            self.target,
            self.arrow,
            stored_schema(schema),
            policy,
            widens=following.widens,
            key=(*schema.key, *self.key),
        )
        widened = {c.name.lower() for c in changes if isinstance(c, WidenColumn)}
        unmatched = {c.name.lower(): c for c in schema.columns}
        columns = [
            self._widened(c, unmatched.pop(c.name.lower(), None), widened, policy) for c in self.columns
        ]
        if not following.widens:
            columns = [self._as_it_was(old, new) for old, new in zip(self.columns, columns, strict=True)]
        columns += [
            Column(c.name, c.type, nullable=True) for c in schema.columns if c.name.lower() in unmatched
        ]
        return replace(self, columns=tuple(columns))

    def _as_it_was(self, column: Column, widened: Column) -> Column:
        """A column that is not altered, but for NOT NULL: the server refuses a text that is too long."""
        kind, texts = column.type.kind, (Kind.STRING, Kind.BYTES)
        if column.type == widened.type or (kind == widened.type.kind and kind in texts):
            return replace(column, nullable=widened.nullable)
        found = f"the target holds {column.type.native}, and cannot hold what the source's column has now"
        found += "; the settings keep the types of targets"
        raise incompatible(column.name, self.target, found, OnIncompatibleType.PARK)

    def _rekeyed_for(
        self, schema: TableSchema, following: Following, policy: OnIncompatibleType
    ) -> TargetSchema:
        """This schema, widened for `schema`, with its key."""
        _require_key(schema)
        widened = self.widened_for(replace(schema, key=self.key), following, policy)
        names = {c.name.lower(): c.name for c in widened.columns}
        key = tuple(names[name.lower()] for name in schema.key)
        needed = {c.name.lower(): c for c in schema.columns}
        columns = []
        for column in widened.columns:
            source = needed.get(column.name.lower())
            was_key = column.name in self.key
            nullable = column.nullable or (was_key and (source is None or _may_be_null(source)))
            columns.append(replace(column, nullable=column.name not in key and nullable))
        return replace(widened, columns=tuple(columns), key=key)

    def _widened(
        self, current: Column, needed: Column | None, widened: set[str], policy: OnIncompatibleType
    ) -> Column:
        if needed is None:
            return replace(current, nullable=not self.is_key(current))
        nullable = not self.is_key(current) and (current.nullable or _may_be_null(needed))
        if current.name.lower() in widened:
            both = needed.type
            if current.type.kind is needed.type.kind is Kind.DECIMAL:
                both = _wider_decimal(current.type, needed.type)
            return Column(current.name, both, nullable)
        return Column(current.name, self._wider(current, needed.type, policy), nullable)

    def _wider(self, current: Column, needed: ColumnType, policy: OnIncompatibleType) -> ColumnType:
        """A type for the values of both; the current Arrow type is equal or wider, or text for all others."""
        type_ = current.type
        if type_ == needed:
            return type_
        as_text = policy is OnIncompatibleType.TEXT and not self.is_key(current)
        if as_text and _are_text_together(type_, needed):
            return TEXT
        if needed.kind == type_.kind:
            return _wider_of_kind(type_, needed)
        if type_.kind in _TEXTS and needed.kind in _TEXTS:
            return _wider_text(_as_text(type_), _as_text(needed))
        numbers = (Kind.INTEGER, Kind.YEAR, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT)
        dates = (Kind.DATE, Kind.DATETIME)
        for family in (numbers, dates):
            if type_.kind in family and needed.kind in family:
                return needed if type_.kind is Kind.YEAR else type_
        if as_text:
            return TEXT
        found = f"the target holds {type_.native}, the source has changed to {needed.native}"
        raise incompatible(current.name, self.target, found, policy)

    def to_json(self) -> str:
        """This schema as JSON text."""
        return json.dumps(self.table_schema.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, target: str, text: str) -> TargetSchema:
        """The inverse of `to_json`."""
        schema = TableSchema.from_json(json.loads(text))
        return cls(target, schema.columns, schema.key)


def first_schema(target: str, schema: TableSchema) -> TargetSchema:
    """The schema of a new target for rows of `schema`.

    Raises:
        SinkError: the table has no key.
    """
    _require_key(schema)
    columns = (Column(c.name, c.type, c.name not in schema.key and _may_be_null(c)) for c in schema.columns)
    return TargetSchema(target, tuple(columns), schema.key)


def _require_key(schema: TableSchema) -> None:
    """Raises SinkError if the table has no key."""
    if not schema.key:
        needs = "a target that holds rows needs one to find the row of a change"
        raise no_key(schema.id, needs, "leave the table out of the captured ones")


def schema_for(
    target: str,
    schemas: Iterable[TableSchema],
    current: TargetSchema | None = None,
    following: Following = FOLLOWING,
    policy: OnIncompatibleType = OnIncompatibleType.PARK,
) -> TargetSchema:
    """The target schema for rows of all `schemas`: `current` widened, or a new one."""
    for schema in schemas:
        if current is None:
            current = first_schema(target, schema)
        else:
            current = current.widened_for(schema, following, policy)
    assert current is not None
    return current


def _may_be_null(column: Column) -> bool:
    return column.nullable or (column.type.kind in _DATES and column.type.zero_dates is None)


def capacity(type_: ColumnType) -> int:
    """Most characters or bytes of a type's values, by its declaration."""
    if type_.labels:
        lengths = [len(label) for label in type_.labels]
        return sum(lengths) + len(lengths) if type_.kind is Kind.SET else max(lengths)
    if type_.length is not None:
        return type_.length
    return _CAPACITY.get(type_.native, _UNBOUNDED)


def _are_text_together(a: ColumnType, b: ColumnType) -> bool:
    """Whether text alone holds values of both: one is text and the other is not, or not any text."""
    if a.kind is Kind.STRING is b.kind and not a.native.endswith("text"):
        return a.native != b.native and bool(TYPED_TEXTS & {a.native, b.native})
    return becomes_text(a.arrow, b.arrow) or becomes_text(b.arrow, a.arrow)


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
            # values of both kinds are stored by number: existing labels keep theirs
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


def _wider_decimal(a: ColumnType, b: ColumnType) -> ColumnType:
    """The type with the digits of both, before the point and behind it."""
    assert a.precision is not None is not b.precision
    scales = [a.scale or 0, b.scale or 0]
    scale = max(scales)
    whole = max(a.precision - scales[0], b.precision - scales[1])
    return replace(b, precision=whole + scale, scale=scale)


def _signed(type_: ColumnType) -> ColumnType:
    """The signed type for the values of an integer type, by its Arrow type."""
    bits = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}.get(type_.arrow)
    if bits is None:
        return ColumnType(Kind.DECIMAL, "decimal", precision=20, scale=0)
    return ColumnType(Kind.INTEGER, "int", bits=bits)
