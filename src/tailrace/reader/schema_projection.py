"""Projection of changes to another schema of their table, by column name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema


def fit_batch(batch: ChangeBatch, table: TableSchema) -> ChangeBatch:
    """Project the images of `batch` to the schema `table`: missing columns are null, extra ones are dropped.

    Raises:
        SchemaMismatchError: a column's values do not fit its type in `table`.
    """
    if batch.table.arrow == table.arrow:
        return batch
    return replace(
        batch,
        table=table,
        before=None if batch.before is None else fit_rows(batch.before, table),
        after=None if batch.after is None else fit_rows(batch.after, table),
    )


def fit_rows(rows: pa.StructArray, table: TableSchema) -> pa.StructArray:
    """Project row images to the schema `table`.

    Raises:
        SchemaMismatchError: a column's values do not fit its type in `table`.
    """
    if rows.type == table.arrow:
        return rows
    found = column_indices([field.name for field in rows.type], [field.name for field in table.arrow])
    columns = [
        pa.nulls(len(rows), target.type) if at is None else _cast(rows.field(at), target, table)
        for target, at in zip(table.arrow, found, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(table.arrow), mask=rows.is_null())


def missing_columns(found: pa.DataType, table: TableSchema) -> set[str]:
    """The columns of `table` that rows of the struct type `found` lack; `fit_rows` fills them with nulls."""
    if found == table.arrow:
        return set()
    names = table.arrow.names
    indices = column_indices([field.name for field in found], names)
    return {name for name, at in zip(names, indices, strict=True) if at is None}


def lacking(table: TableSchema, missing: Collection[str]) -> TableSchema:
    """The schema of rows of `table` of which some lack columns: these may be NULL, whatever was declared."""
    lost = {c.name for c in table.columns if c.name in missing and not c.nullable}
    if not lost:
        return table
    columns = (replace(c, nullable=True, gone=True) if c.name in lost else c for c in table.columns)
    return replace(table, columns=tuple(columns))


def column_indices(names: Sequence[str], targets: Sequence[str]) -> list[int | None]:
    """The index in `names` of each name in `targets`; None if it is missing.

    A column may have been renamed by case only. So a target without an exact match matches a name that
    differs in case and that is not itself a target.
    """
    exact = {name: at for at, name in enumerate(names)}
    exact_targets = set(targets)
    left = {name.lower(): at for name, at in exact.items() if name not in exact_targets}
    return [exact[name] if name in exact else left.get(name.lower()) for name in targets]


def fit_keys(keys: pa.StructArray, type_: pa.StructType, table: TableSchema) -> pa.StructArray:
    """Cast keys to the struct type `type_`, whose fields have the same names.

    Raises:
        SchemaMismatchError: a value does not fit its type.
    """
    if keys.type == type_:
        return keys
    return pa.StructArray.from_arrays(
        [_cast(keys.field(f.name), f, table) for f in type_], fields=list(type_)
    )


def _cast(column: pa.Array, target: pa.Field, table: TableSchema) -> pa.Array:
    try:
        if _is_count(column.type) != _is_count(target.type):
            raise pa.ArrowInvalid  # Arrow would take the number of units for the value, or the reverse
        return column.cast(target.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaMismatchError(
            f"column `{target.name}` of `{table.id}` has changed its type",
            f"found {column.type}, the stream reads it as {target.type}",
            "start a new stream with the new type, or a pipeline, which alters its target tables",
            code="TR-5004",
        ) from None


def _is_count(type_: pa.DataType) -> bool:
    """Whether a type's values are counts of a unit of time."""
    return bool(pa.types.is_temporal(type_))
