"""Columns that only MariaDB has: the row kernel reads bytes, which become values here.

    UUID, INET4, INET6     the log has them as BINARY of 16, 4, 16 bytes: their types come from the catalog.
                           Values are text as the server prints it.
    ... COMPRESSED         packed text or bytes: unpacked, and of the column's character set

They are rare enough for Python to convert every value.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import DecodeError
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.wire.mariadb import plain_value
from tailrace.sources.mysql.wire.schema import charsets, tablemap
from tailrace.sources.mysql.wire.schema.tablemap import MappedColumn, TableMap, parse_table_map

#: The bytes of a type's values, and its type in a table map that the catalog has completed.
_BINARY_TYPES = {"uuid": (16, tablemap.UUID), "inet6": (16, tablemap.INET6), "inet4": (4, tablemap.INET4)}
BYTES = {type_: size for size, type_ in _BINARY_TYPES.values()}
_LENGTHS = frozenset(BYTES.values())
_BINARY_COLLATION = 63
#: Most unpacked bytes of the values of one column and batch.
_MOST_UNPACKED = 1 << 30
_UUID_DASHES = (8, 13, 18, 23)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

_SEQUENCE = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size"),
    *("cycle_option", "cycle_count"),
)

#: Converts a column's bytes to values of its Arrow type.
Finish = Callable[[pa.Array], pa.Array]


def is_sequence(body: bytes) -> bool:
    """Whether the body of a TABLE_MAP is of a SEQUENCE: not a table, though logged as one.

    Raises:
        DecodeError: it is malformed.
    """
    return _SEQUENCE[0].encode() in body and tuple(c.name for c in parse_table_map(body).columns) == _SEQUENCE


def is_ambiguous(map_: TableMap) -> bool:
    """Whether a column of the table may be of a type that the log writes as BINARY."""
    return any(_is_binary(column) for column in map_.columns)


def with_types(map_: TableMap, known: TableSchema) -> TableMap:
    """The table map with the types that the catalog's columns of the same names and sizes have."""
    natives = {column.name: column.type.native for column in known.columns}
    columns = []
    for column in map_.columns:
        size, type_ = _BINARY_TYPES.get(natives.get(column.name or "", ""), (0, 0))
        is_special = size and _is_binary(column) and column.metadata[0] == size
        columns.append(replace(column, type=type_, collation=None) if is_special else column)
    return replace(map_, columns=tuple(columns))


def _is_binary(column: MappedColumn) -> bool:
    return (
        column.type == tablemap.STRING
        and column.collation == _BINARY_COLLATION
        and column.metadata[1] == 0
        and column.metadata[0] in _LENGTHS
    )


def finish_of(mapped: MappedColumn, column: str) -> Finish | None:
    """The conversion of a column's bytes to its values; None if they need none.

    Args:
        mapped: the column.
        column: its full name, for errors.
    """
    match mapped.type:
        case tablemap.UUID:
            return _uuids
        case tablemap.INET4:
            return lambda values: _each(values, lambda v: str(ipaddress.IPv4Address(v)))
        case tablemap.INET6:
            return lambda values: _each(values, _inet6)
        case tablemap.BLOB_COMPRESSED | tablemap.VARCHAR_COMPRESSED:
            charset = charsets.charset_of(mapped.collation or _BINARY_COLLATION)
            return lambda values: _unpacked(values, charset, f"in column `{column}`")
    return None


def _uuids(values: pa.Array) -> pa.Array:
    count = len(values)
    given = values.is_valid().to_numpy(zero_copy_only=False)
    raw = np.zeros((count, 16), np.uint8)
    joined = b"".join(value for value in values.to_pylist() if value is not None)
    raw[given] = np.frombuffer(joined, np.uint8).reshape(-1, 16)
    digits = np.empty((count, 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, [i for i in range(36) if i not in _UUID_DASHES]] = digits
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    texts = pa.Array.from_buffers(pa.string(), count, buffers)
    return texts if given.all() else pc.if_else(values.is_valid(), texts, None)


def _inet6(value: bytes) -> str:
    """An address as the server writes it: `::` for the first longest run of zeros, be it a single one.

    Source: MariaDB plugin/type_inet/sql_type_inet.cc, Inet6::to_string.
    """
    words = [int.from_bytes(value[i : i + 2]) for i in range(0, 16, 2)]
    best = start = length = 0
    for i, word in enumerate([*words, 1]):
        if not word:
            length += 1
            continue
        if length > best:
            best, start = length, i - length
        length = 0
    if start == 0 and (best == 6 or (best == 5 and words[5] == 0xFFFF)):
        return f"::{'ffff:' if best == 5 else ''}{ipaddress.IPv4Address(value[12:])}"
    texts = [f"{word:x}" for word in words]
    if not best:
        return ":".join(texts)
    return f"{':'.join(texts[:start])}::{':'.join(texts[start + best :])}"


def _each(values: pa.Array, make: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else make(value) for value in values.to_pylist()], pa.string())


def _unpacked(values: pa.Array, charset: str, where: str) -> pa.Array:
    found: list[bytes | str | None] = []
    total = 0
    for value in values.to_pylist():
        plain = None if value is None else plain_value(value, where)
        total += len(plain or b"")
        if total > _MOST_UNPACKED:
            raise DecodeError(
                "compressed values of one batch are too large",
                f"{where}: {_MOST_UNPACKED} bytes",
                code="TR-5204",
            )
        try:
            found.append(plain if plain is None or charset == "binary" else charsets.decode(plain, charset))
        except UnicodeDecodeError:
            raise DecodeError("text that is not valid in its character set", where, code="TR-5203") from None
    return pa.array(found, pa.binary() if charset == "binary" else pa.string())
