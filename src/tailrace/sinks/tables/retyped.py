"""Columns whose new type their target's column cannot hold: with a column of their own. Pure.

With `on-incompatible-type: new-column`, values of such a column go to a further column of the target, named
after both: `price__string`. Which column that is follows from the target's columns and the row's type alone,
so a batch that comes again goes the same way. The former column is null in rows that are written from then
on; as a change of type makes the stream read its table again, that is in all rows soon. A type that fits the
former column goes there again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import Column, TableSchema
from tailrace.sinks.tables.columns import fits
from tailrace.spark.cells import Unpack

#: Whether a column of one type can be altered to hold values of another one, too.
CanFollow = Callable[[pa.DataType, pa.DataType], bool]
#: The type that a target has for a canonical type.
Stored = Callable[[pa.DataType], pa.DataType]


def retyped_schema(
    schema: TableSchema, held: pa.Schema, stored: Stored, can_follow: CanFollow
) -> TableSchema:
    """A table's schema, with a name of its own for each column that its target's cannot follow.

    Key columns keep their names: another type makes another key.

    Args:
        schema: the schema.
        held: the source's columns that the target has.
        stored: the target's types.
        can_follow: whether the target's column can be altered.

    Raises:
        SinkError: the table has a column of that name itself.
    """
    types = {field.name.lower(): field.type for field in held}
    columns = []
    for column in schema.columns:
        old, new = types.get(column.name.lower()), stored(column.type.arrow)
        if old is None or column.name in schema.key or can_follow(old, new):
            columns.append(column)
        else:
            columns.append(_renamed(column, new, schema))
    return replace(schema, columns=tuple(columns)) if tuple(columns) != schema.columns else schema


def retyping(unpack: Unpack, held: pa.Schema, stored: Stored, *, adds: bool = True) -> Unpack:
    """`unpack` for a target that has followed its source and now holds `held`.

    Args:
        unpack: makes rows of `held` from a cell.
        held: the source's columns that the target has.
        stored: the target's types.
        adds: whether the target has every column of its source.
    """
    schemas: dict[str, TableSchema] = {}

    def unpack_retyped(batch: ChangeBatch) -> pa.RecordBatch:
        known = batch.table.fingerprint
        if known not in schemas:
            schemas[known] = retyped_schema(batch.table, held, stored, lambda old, new: fits(new, old))
            pairs = zip(batch.table.columns, schemas[known].columns, strict=True)
            needed = [new for old, new in pairs if adds or new.name != old.name]
            _require_all(batch.table, needed, held)
        return unpack(_with_names(batch, schemas[known]))

    return unpack_retyped


def _renamed(column: Column, type_: pa.DataType, schema: TableSchema) -> Column:
    suffix = re.sub(r"\W+", "_", str(type_)).strip("_")
    name = f"{column.name}__{suffix}"
    if any(other.name.lower() == name.lower() for other in schema.columns):
        raise SinkError(
            f"column `{column.name}` of table `{schema.id}` cannot have a column of its own for {type_}",
            f"it would be `{name}`, and the table has a column of that name",
            "rename that column at the source or by a transform, or set `on-incompatible-type: park`",
            code="TR-7036",
        )
    return replace(column, name=name)


def _require_all(schema: TableSchema, needed: Iterable[Column], held: pa.Schema) -> None:
    """Every column must have its place: what is missing would be lost in silence."""
    names = {name.lower() for name in held.names}
    missing = [c.name for c in needed if c.name.lower() not in names]
    if missing:
        raise SinkError(
            f"a target of table `{schema.id}` has no column `{missing[0]}`",
            f"it has {', '.join(f'`{name}`' for name in held.names)}",
            "this is a defect of Tailrace: please report it",
            code="TR-7037",
        )


def _with_names(batch: ChangeBatch, schema: TableSchema) -> ChangeBatch:
    """`batch` with the names of `schema`'s columns, which are its own in the same order."""
    if schema is batch.table:
        return batch
    names = {old.name: new.name for old, new in zip(batch.table.columns, schema.columns, strict=True)}

    def image(rows: pa.StructArray | None) -> pa.StructArray | None:
        if rows is None:
            return None
        fields = [field.with_name(names[field.name]) for field in rows.type]
        children = [rows.field(i) for i in range(rows.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())

    return replace(
        batch,
        table=schema,
        before=image(batch.before),
        after=image(batch.after),
        absent_before=tuple(names[name] for name in batch.absent_before),
        absent_after=tuple(names[name] for name in batch.absent_after),
    )
