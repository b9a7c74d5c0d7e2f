"""Changes whose columns have the declarations that schemas of messages say (`model.declaration`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tailrace.model.change import ChangeBatch
from tailrace.model.declaration import CatalogTexts, Propagation, TypeOf
from tailrace.model.table import TableSchema


def with_declarations(
    changes: Iterator[ChangeBatch], propagation: Propagation, texts: CatalogTexts, type_of: TypeOf
) -> Iterator[ChangeBatch]:
    """`changes` with declarations in their schemas.

    Args:
        changes: the changes.
        propagation: which columns' declarations are wanted.
        texts: what the catalog said of the tables.
        type_of: the database's `Session.source_type`.
    """
    made: dict[TableSchema, TableSchema] = {}
    for batch in changes:
        if batch.table not in made:
            made[batch.table] = propagation.table(batch.table, texts.get(str(batch.table.id), {}), type_of)
        yield replace(batch, table=made[batch.table])
