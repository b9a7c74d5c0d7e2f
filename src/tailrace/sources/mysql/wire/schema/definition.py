"""Column definitions of a result set, checked against a table's schema.

Source: MySQL internals, "Protocol::ColumnDefinition41".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind

_FIXED = struct.Struct("<BHIBHB")
_BINARY_CHARSET = 63
_UNSIGNED_FLAG, _ENUM_FLAG, _SET_FLAG = 0x20, 0x100, 0x800
_WIRE_INTEGERS = {8: 1, 16: 2, 24: 9, 32: 3, 64: 8}
_WIRE_KINDS = {
    Kind.FLOAT: 4,
    Kind.DOUBLE: 5,
    Kind.DECIMAL: 246,
    Kind.BOOLEAN: 16,
    Kind.BITS: 16,
    Kind.DATE: 10,
    Kind.DATETIME: 12,
    Kind.INSTANT: 7,
    Kind.TIME: 11,
    Kind.YEAR: 13,
    Kind.GEOMETRY: 255,
    Kind.VECTOR: 242,
}
_WIRE_CHARACTERS = (252, 253, 254)
_WIRE_JSON = 245


@dataclass(frozen=True)
class ColumnDefinition:
    """The server's description of a result set's column.

    Args:
        name: of the column.
        type: MYSQL_TYPE_* number.
        charset: collation number; 63 is binary.
        length: longest value in bytes as text.
        flags: of the protocol.
        decimals: digits after the point, or of the fraction of a second.
    """

    name: str
    type: int
    charset: int
    length: int
    flags: int
    decimals: int


def column_definition(packet: bytes) -> ColumnDefinition:
    """The definition in a packet's payload.

    Raises:
        DecodeError: it is malformed.
    """
    at = 0
    texts = []
    for _ in range(6):  # catalog, schema, table, org_table, name, org_name: names, so shorter than 64 kB
        length, at = length_encoded(packet, at)
        texts.append(packet[at : at + length])
        at += length
    if len(packet) < at + 13:
        raise DecodeError("a column definition of a SELECT ends too early", code="TR-3017")
    _, charset, longest, type_, flags, decimals = _FIXED.unpack_from(packet, at)
    try:
        name = texts[4].decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a column of a SELECT has a name that is not UTF-8", code="TR-3017") from error
    return ColumnDefinition(name, type_, charset, longest, flags, decimals)


def length_encoded(packet: bytes, at: int) -> tuple[int, int]:
    """The length-encoded integer at `at` and its end. Raises DecodeError if there is none."""
    if at < len(packet):
        first = packet[at]
        width = {252: 2, 253: 3, 254: 8}.get(first, 0)
        if first not in (251, 255) and at + 1 + width <= len(packet):
            if not width:
                return first, at + 1
            return int.from_bytes(packet[at + 1 : at + 1 + width], "little"), at + 1 + width
    raise DecodeError("a packet of a SELECT ends too early", code="TR-3017")


def require_unchanged(table: TableSchema, found: Sequence[ColumnDefinition]) -> None:
    """Check that a result set has the table's columns.

    Raises:
        SchemaMismatchError: it has other columns, or a column has another type.
    """
    if [c.name for c in table.columns] != [d.name for d in found]:
        raise SchemaMismatchError(
            f"table `{table.id}` has other columns than expected",
            f"found {[d.name for d in found]}, expected {[c.name for c in table.columns]}",
            code="TR-5002",
        )
    for column, definition in zip(table.columns, found, strict=True):
        if not _fits(column, definition):
            raise SchemaMismatchError(
                f"column `{table.id}.{column.name}` is no longer of the type {column.type.native}",
                f"the server sends type number {definition.type}, flags {definition.flags:#x}, "
                f"{definition.decimals} decimals; expected {column.type}",
                code="TR-5002",
            )


def _fits(column: Column, found: ColumnDefinition) -> bool:
    type_ = column.type
    unsigned = bool(found.flags & _UNSIGNED_FLAG)
    match type_.kind:
        case Kind.INTEGER:
            return found.type == _WIRE_INTEGERS[type_.bits or 64] and unsigned == type_.unsigned
        case Kind.DECIMAL:
            assert type_.precision is not None
            assert type_.scale is not None
            # plus a sign and a point
            length = type_.precision + (type_.scale > 0) + (not unsigned)
            return (found.type, found.decimals, found.length) == (246, type_.scale, length)
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return found.type == _WIRE_KINDS[type_.kind] and found.decimals == (type_.fraction or 0)
        case Kind.STRING | Kind.ENUM | Kind.SET | Kind.BYTES:
            labels = {Kind.ENUM: _ENUM_FLAG, Kind.SET: _SET_FLAG}.get(type_.kind, 0)
            return (
                found.type in _WIRE_CHARACTERS
                and found.flags & (_ENUM_FLAG | _SET_FLAG) == labels
                and (found.charset == _BINARY_CHARSET) == (type_.kind is Kind.BYTES)
            )
        case Kind.JSON:
            return found.type == _WIRE_JSON
        case _:
            return found.type == _WIRE_KINDS[type_.kind]
