"""The key under which a table is read, and whether it still exists.

A cursor is a key: it says which rows have been read only together with the key's columns, their types and
their collations. So all of these are kept with the cursor, and compared with the table wherever rows are
read, planned or compared: `key_changed` is the one place that decides.

    key now                                        cursor
    same columns, wider types                      valid: the values and their order are as before
    further keys, a new primary key                valid: the stream keeps the key that it began with
    renamed, retyped, narrowed, other collation    means nothing
    dropped, no longer unique, other columns       means nothing
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from tailrace.errors import KeyChangedError, SinkError
from tailrace.model.table import Column, TableId, TableSchema, without_defaults
from tailrace.model.types import ColumnType, Kind

#: Types of text that do not sort as text, and the one of bytes that is padded.
_OF_OWN_ORDER = frozenset({"uuid", "inet4", "inet6", "binary"})


def no_key(table: TableId, needs: str, otherwise: str) -> SinkError:
    """The error of a target that cannot find the rows of changes.

    Args:
        table: the table.
        needs: what the target needs a key for.
        otherwise: what else can be done.
    """
    return SinkError(
        f"table `{table}` has no key",
        needs,
        f"give it a primary key, or {otherwise}. MySQL can hide one from its users: ALTER TABLE {table} ADD "
        "COLUMN id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY; "
        "sql_generate_invisible_primary_key = ON does so for each new table",
        code="TR-5001",
    )


def key_of(table: TableSchema) -> tuple[Column, ...]:
    """The columns of a table's key in key order."""
    return tuple(table.column(name) for name in table.key)


def key_changed(
    key: Sequence[Column], table: TableSchema, keys: Collection[tuple[str, ...]] | None = None
) -> KeyChangedError | None:
    """Decide whether the key under which rows are read no longer exists.

    Args:
        key: the key's columns as of when reading began.
        table: the table as it is now.
        keys: all keys that it has now; None: only its own.

    Returns:
        The error to raise; None if cursors of the key are valid.
    """
    names = tuple(column.name for column in key)
    still_a_key = names in ({table.key} if keys is None else keys)
    found = tuple(table.column(name) for name in names) if still_a_key else key_of(table)
    if still_a_key and all(_sorts_alike(a.type, b.type) for a, b in zip(key, found, strict=True)):
        return None
    return KeyChangedError(
        f"the key of `{table.id}` was changed while its snapshot was read",
        f"rows are read by the key ({_described(key)}), which is gone; "
        + (f"the key is now ({_described(found)})" if found else "the table now has no key"),
        "set onRewrite: refresh, with startingPosition initial, to read the table again by its new key; "
        "or change the key back",
        code="TR-5003",
        table=str(table.id),
    )


def key_to_json(key: Sequence[Column]) -> list[list[Any]]:
    """A key as JSON values; `key_from_json` reads them."""
    return [[column.name, without_defaults(asdict(column.type))] for column in key]


def key_from_json(value: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    """Read the key that `key_to_json` wrote."""
    return tuple(Column(name, ColumnType.from_json(type_), nullable=False) for name, type_ in value)


def _sorts_alike(old: ColumnType, new: ColumnType) -> bool:
    """Whether every value of `old` is a value of `new`, in the same order."""
    if old.collation is not None and new.collation is not None and old.collation != new.collation:
        return False
    if old == new:
        return True
    own = old.native if old.native in _OF_OWN_ORDER else new.native
    if (old.kind, old.zero_dates) != (new.kind, new.zero_dates) or (
        own in _OF_OWN_ORDER and old.native != new.native
    ):
        return False
    match old.kind:
        case Kind.INTEGER:
            low, high = integers(old)
            least, most = integers(new)
            return least <= low and high <= most
        case Kind.DECIMAL:
            if None in (old.precision, old.scale, new.precision, new.scale):
                return False
            assert old.precision is not None
            assert old.scale is not None
            assert new.precision is not None
            assert new.scale is not None
            wider = new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
            return wider and type(old.arrow) is type(new.arrow)
        case Kind.STRING | Kind.BYTES:
            return new.length is None or (old.length is not None and old.length <= new.length)
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return (new.fraction or 0) >= (old.fraction or 0)
        case _:
            return False


def integers(type_: ColumnType) -> tuple[int, int]:
    """The least and the greatest value of a column of integers."""
    bits = type_.bits or 64
    return (0, (1 << bits) - 1) if type_.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _described(key: Sequence[Column]) -> str:
    return ", ".join(_column(c.name, c.type) for c in key)


def _column(name: str, type_: ColumnType) -> str:
    size = type_.length if type_.length is not None else type_.fraction
    if type_.precision is not None:
        size_text = f"({type_.precision},{type_.scale})"
    else:
        size_text = f"({size})" if size else ""
    unsigned = " unsigned" if type_.unsigned else ""
    collation = f" COLLATE {type_.collation}" if type_.collation else ""
    return f"{name} {type_.native}{size_text}{unsigned}{collation}"
