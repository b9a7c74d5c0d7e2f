"""Columns as text, as MySQL prints their values: for formats whose values are text.

Converts whole columns at a time. Times are UTC, as stored. Bytes become the characters with the same numbers
(ISO 8859-1), as in Canal, so that any bytes are valid text and can be restored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.types import ColumnType, Kind

#: Characters of a date and time without a fraction.
_SECONDS = 19


def as_text(array: pa.Array, type_: ColumnType) -> pa.StringArray:
    """A column's values as text, NULL as NULL."""
    if pa.types.is_string(array.type):
        return array
    match type_.kind:
        case Kind.DECIMAL:
            return plain_decimal(array, type_.scale or 0)
        case Kind.BOOLEAN:
            return array.cast(pa.int8()).cast(pa.string())
        case Kind.BITS:
            return _numbers(array)
        case Kind.DATETIME | Kind.INSTANT:
            digits = type_.fraction or 0
            text = array.cast(pa.timestamp("us")).cast(pa.string())
            return pc.utf8_slice_codeunits(text, 0, _SECONDS + (digits + 1 if digits else 0))
        case Kind.TIME:
            return plain_time(array, type_.fraction or 0)
        case Kind.VECTOR | Kind.LIST:
            return _lists(array)
        case Kind.BYTES | Kind.GEOMETRY:
            return _latin(array)
    return array.cast(pa.string())


def plain_decimal(array: pa.Array, scale: int) -> pa.StringArray:
    """Decimals with all their digits, never with an exponent."""
    if pa.types.is_string(array.type):
        return array
    digits = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), array.buffers(), array.null_count, array.offset
    )
    text = digits.cast(pa.string())
    if not scale:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    fraction = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def _numbers(array: pa.BinaryArray) -> pa.StringArray:
    """Big-endian bytes, eight at most, as a decimal number."""
    ends, data = _bytes_of(array)
    values = np.zeros(len(array), np.uint64)
    for byte in range(8):
        at = ends[1:] - 1 - byte
        has = at >= ends[:-1]
        values[has] |= data[at[has]].astype(np.uint64) << np.uint64(8 * byte)
    return _with_nulls(pa.array(values).cast(pa.string()), array)


def plain_time(array: pa.Array, fraction: int) -> pa.StringArray:
    """Durations as `-838:59:59.000000`."""
    us = pc.fill_null(array.cast(pa.int64()), 0)
    parts = np.abs(us.to_numpy())
    seconds = parts // 1_000_000
    pieces = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    text = pc.binary_join_element_wise(*(_padded(piece, 2) for piece in pieces), ":")
    if fraction:
        digits = _padded(parts % 1_000_000 // 10 ** (6 - fraction), fraction)
        text = pc.binary_join_element_wise(text, digits, ".")
    sign = pc.if_else(pc.less(us, 0), "-", "")
    return _with_nulls(pc.binary_join_element_wise(sign, text, ""), array)


def _padded(numbers: np.ndarray, digits: int) -> pa.StringArray:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")


def _lists(array: pa.ListArray) -> pa.StringArray:
    """Elements in brackets."""
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    items = pc.fill_null(array.values.slice(start, end - start).cast(pa.string()), "null")
    texts = pa.ListArray.from_arrays(pc.subtract(array.offsets, start), items)
    joined = pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")
    return _with_nulls(joined, array)


def _latin(array: pa.BinaryArray) -> pa.StringArray:
    """Each byte as the character with its number, one or two bytes in UTF-8."""
    ends, data = _bytes_of(array)
    used = data[ends[0] : ends[-1]]
    two = used >= 128
    at = np.arange(len(used)) + np.concatenate([[0], np.cumsum(two)])[:-1].astype(np.int64)
    out = np.zeros(len(used) + int(np.count_nonzero(two)), np.uint8)
    out[at] = np.where(two, 0xC0 | (used >> 6), used)
    out[at[two] + 1] = 0x80 | (used[two] & 0x3F)
    starts = np.concatenate([at, [len(out)]])
    offsets = starts[ends - ends[0]].astype(np.int32)
    text = pa.Array.from_buffers(pa.string(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
    return _with_nulls(text, array)


def _bytes_of(array: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of an array of bytes, and its data."""
    _, offsets, data = array.buffers()
    ends = (
        np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset) if len(array) else np.zeros(1, int)
    )
    return ends, np.frombuffer(data or b"", np.uint8)


def _with_nulls(text: pa.Array, original: pa.Array) -> pa.Array:
    return text if not original.null_count else pc.if_else(original.is_valid(), text, None)
