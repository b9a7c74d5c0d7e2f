"""How a table's columns are stored, and how a stored table follows the shape of its source. Pure.

Stored types are the canonical Arrow types (`ColumnType.arrow`) but one: TIME is a number of microseconds, as
neither Delta nor most readers of Parquet know durations.

A target is never rebuilt behind the user's back. It follows its source where that keeps all it holds:
a new column is added, a type becomes a wider one, a column gone from the source stays and is null from then
on. Anything else (text to number, a new key) is a SinkError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.model.table import TableSchema

_INTEGERS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


@dataclass(frozen=True)
class AddColumn:
    """A column the target does not have yet."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class WidenColumn:
    """A column whose type becomes a wider one."""

    name: str
    type: pa.DataType


def stored_schema(table: TableSchema) -> pa.Schema:
    """The columns a target of `table` has.

    Raises:
        SinkError: names differ in case only: few targets tell them apart, and none of ours does.
    """
    names = [c.name for c in table.columns]
    if len({name.lower() for name in names}) < len(names):
        twins = sorted(n for n in names if sum(n.lower() == other.lower() for other in names) > 1)
        raise SinkError(
            f"columns of table `{table.id}` have names that differ in case only",
            f"found `{'`, `'.join(twins)}`",
            "rename one of them at the source, or leave the table out (`tables`)",
        )
    return pa.schema([pa.field(c.name, stored_type(c.type.arrow)) for c in table.columns])


def require_free(table: TableSchema, own: Iterable[str], what: str) -> None:
    """Refuse a table with a column of a name that a target needs for itself.

    Args:
        table: the table.
        own: names that the target, or what waits beside it, adds.
        what: what needs them.

    Raises:
        SinkError: a column has one of them.
    """
    needed = {name.lower() for name in own}
    taken = [c.name for c in table.columns if c.name.lower() in needed]
    if taken:
        raise SinkError(
            f"column `{taken[0]}` of table `{table.id}` has a name that {what} needs",
            f"{what} adds {', '.join(f'`{name}`' for name in sorted(needed))}",
            "rename the column at the source, or by a transform, or use another mode",
        )


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type that values of the canonical type `type_` are stored as."""
    return pa.int64() if pa.types.is_duration(type_) else type_


def follow(target: str, held: pa.Schema, wanted: Iterable[pa.Field]) -> list[AddColumn | WidenColumn]:
    """What must change in a target for it to hold rows of another shape too.

    Args:
        target: its name, for errors.
        held: the columns it has.
        wanted: the columns of the rows to come.

    Raises:
        SinkError: the types of a column cannot both be held.
    """
    changes: list[AddColumn | WidenColumn] = []
    by_name = {field.name.lower(): field for field in held}
    for field in wanted:
        old = by_name.get(field.name.lower())
        if old is None:
            changes.append(AddColumn(field.name, field.type))
        elif not fits(field.type, old.type):
            if not fits(old.type, field.type):
                raise SinkError(
                    f"column `{field.name}` of target `{target}` cannot follow its source",
                    f"the target holds {old.type}, the source has changed to {field.type}",
                    "start a pipeline with a new sink path and checkpoint, or change the column back",
                )
            changes.append(WidenColumn(old.name, field.type))
    return changes


def fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of `narrow` is one of `wide` too, by a change of type that Delta can make."""
    if narrow == wide:
        return True
    if narrow in _INTEGERS:
        if wide in _INTEGERS:
            return _INTEGERS[narrow] < _INTEGERS[wide]
        if pa.types.is_decimal128(wide):
            # Delta counts a byte and a short as an int here.
            return bool(wide.precision - wide.scale >= max(_INTEGERS[narrow], 10))
        return bool(pa.types.is_float64(wide)) and narrow != pa.int64()
    if pa.types.is_float32(narrow):
        return bool(pa.types.is_float64(wide))
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        more = wide.scale - narrow.scale
        return bool(more >= 0 and wide.precision - narrow.precision >= more)
    return bool(pa.types.is_date32(narrow) and wide == pa.timestamp("us"))


def merged_schema(target: str, shapes: Iterable[TableSchema]) -> pa.Schema:
    """Columns that rows of all `shapes` fit in.

    Raises:
        SinkError: see `follow`.
    """
    schema = pa.schema([])
    for shape in shapes:
        for change in follow(target, schema, stored_schema(shape)):
            field = pa.field(change.name, change.type)
            if isinstance(change, AddColumn):
                schema = schema.append(field)
            else:
                schema = schema.set(schema.get_field_index(change.name), field)
    return schema
