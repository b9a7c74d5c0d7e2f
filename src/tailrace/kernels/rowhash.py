"""Hashes of the rows of Arrow columns: calls the kernel of `kernels.hashing` for each column's type."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError
from tailrace.kernels.hashing import hash_bits, hash_fixed, hash_variable

_WIDTHS = (1, 2, 4, 8, 16)


def hash_rows(columns: Iterable[pa.Array], rows: int) -> np.ndarray:
    """The uint64 hash of each row of `columns`, in the order of the columns.

    Equal arrays have equal hashes, whatever their offsets are; to compare hashes, the types must be the same.

    Raises:
        SchemaMismatchError: a column is neither fixed-width nor text, bytes, boolean or a list of these.
    """
    states = np.zeros(rows, np.uint64)
    if rows:
        for column in columns:
            _add_column(states, column)
    return states


def _add_column(states: np.ndarray, column: pa.Array) -> None:
    type_, at, n = column.type, states.ctypes.data, len(column)
    if pa.types.is_null(type_):
        raise SchemaMismatchError(
            "a column without a type cannot be hashed", f"found {type_}", code="TR-5005"
        )
    buffers = column.buffers()
    validity = _address(buffers[0])
    if pa.types.is_list(type_):
        return _add_column(states, _as_bytes(column))
    if pa.types.is_boolean(type_):
        hash_bits(at, n, validity, _address(buffers[1]), column.offset)
    elif _has_offsets(type_):
        wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
        hash_variable(at, n, validity, _address(buffers[1]), _address(buffers[2]), column.offset, int(wide))
    elif pa.types.is_primitive(type_) or pa.types.is_decimal128(type_):
        width = type_.bit_width // 8
        if width not in _WIDTHS:
            raise SchemaMismatchError(f"a column of {type_} cannot be hashed", code="TR-5005")
        hash_fixed(at, n, validity, _address(buffers[1]), column.offset, width)
    else:
        raise SchemaMismatchError(f"a column of {type_} cannot be hashed", code="TR-5005")


def _as_bytes(column: pa.ListArray) -> pa.Array:
    """Lists as the bytes of their elements' hashes."""
    states = hash_rows([column.values], len(column.values))
    offsets = column.offsets.to_numpy().astype(np.int64) * states.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(states)]
    values = pa.Array.from_buffers(pa.large_binary(), len(column), buffers)
    return pc.if_else(column.is_valid(), values, pa.scalar(None, pa.large_binary()))


def _has_offsets(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
