"""Columns of Iceberg tables in Arrow: plain types, with the field ids of data files. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tailrace.config.sinks import OnIncompatibleType
from tailrace.sinks.tables.columns import AddColumn, BecomeText, WidenColumn, holding_both, incompatible

_FIELD_ID = b"PARQUET:field_id"


def held_columns(schema: Schema) -> pa.Schema:
    """A table's columns with ids and plain types: `string` where pyiceberg has `large_string`."""
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema)])


def without_ids(columns: Iterable[pa.Field]) -> pa.Schema:
    """The same columns without ids."""
    return pa.schema([pa.field(c.name, _bare(c.type), c.nullable) for c in columns])


def storable(columns: Iterable[pa.Field]) -> pa.Schema:
    """Columns with types that Iceberg has: its smallest integer has 32 bits."""
    return pa.schema([pa.field(c.name, storable_type(c.type)) for c in columns])


def storable_type(type_: pa.DataType) -> pa.DataType:
    """The type that Iceberg has for a stored type."""
    return pa.int32() if type_ in (pa.int8(), pa.int16()) else type_


def can_follow(held: pa.DataType, needed: pa.DataType) -> bool:
    """Whether a column of type `held` can be altered to hold values of type `needed`, too."""
    both = holding_both(held, needed)
    return both is not None and (both == held or promotes(held, both))


def require_promotions(
    target: str,
    changes: Iterable[AddColumn | WidenColumn | BecomeText],
    held: pa.Schema,
    policy: OnIncompatibleType,
) -> None:
    """Reject changes of type that Iceberg does not support.

    Raises:
        SinkError: a column cannot follow its source.
    """
    for change in changes:
        if not isinstance(change, WidenColumn):
            continue
        old = held.field(change.name).type
        if not promotes(old, change.type):
            raise incompatible(
                change.name,
                target,
                f"the target holds {old}, the source has changed to {change.type}, and Iceberg widens "
                "integers, float and decimals of the same scale only",
                policy,
            )


def promotes(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Iceberg alters a column from one type to another one."""
    if pa.types.is_decimal(old):
        return bool(pa.types.is_decimal(new) and old.scale == new.scale)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _plain_field(field: pa.Field) -> pa.Field:
    ids = {k: v for k, v in (field.metadata or {}).items() if k == _FIELD_ID}
    return pa.field(field.name, _plain(field.type), field.nullable, ids)


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    return type_


def _bare(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _bare(f.type), f.nullable) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_bare(type_.value_type))
    return type_
