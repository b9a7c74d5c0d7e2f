"""Table maps without names: the catalog fills in what `binlog_row_metadata=MINIMAL` leaves out.

Such a map has types, signs and character sets, but no names, labels or key. The catalog's schema is used if
it has as many columns of the same types in the same order; else the table was altered since, and the columns
of the values are unknown. A column that was renamed in between gets its new name.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.errors import SchemaMismatchError
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.wire.schema.tablemap import TableMap

_HINT = "SET PERSIST binlog_row_metadata = FULL, then start a new stream with a snapshot"


def is_unnamed(map_: TableMap) -> bool:
    """Whether a table map leaves out the names of its columns."""
    return any(column.name is None for column in map_.columns)


def with_names(map_: TableMap, known: TableSchema) -> TableMap:
    """The table map with names, labels and key of the catalog's schema.

    Raises:
        SchemaMismatchError: there are not as many columns.
    """
    if len(map_.columns) != len(known.columns):
        raise _mismatch(map_, f"it has {len(map_.columns)} columns, in the catalog {len(known.columns)}")
    columns = tuple(
        replace(mapped, name=column.name, labels=tuple(label.encode() for label in column.type.labels))
        for mapped, column in zip(map_.columns, known.columns, strict=True)
    )
    names = [column.name for column in known.columns]
    return replace(map_, columns=columns, key=tuple(names.index(name) for name in known.key))


def require_types(map_: TableMap, found: TableSchema, known: TableSchema) -> None:
    """Raise SchemaMismatchError unless the map's types, as `found` has them, equal the catalog's."""
    for column, other in zip(found.columns, known.columns, strict=True):
        if column.type != other.type:
            raise _mismatch(
                map_, f"column `{other.name}` was of type {column.type.native}, or of another length or sign"
            )


def _mismatch(map_: TableMap, found: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"the log does not name the columns of table `{map_.id}`, and its schema in the catalog differs",
        f"binlog_row_metadata was MINIMAL when the change was logged; {found}",
        _HINT,
        code="TR-4407",
    )
