"""Arrow buffers to which kernels write the columns of a row image, and their descriptions.

One kernel serves every table, because the plan of the columns is data: a block of eight int64 per column.

    word  0     1   2   3                  4                   5              6
          kind  p1  p2  validity address   values or offsets   data address   data capacity

`kind`, `p1` and `p2` describe how to read a value; each decoder defines its own. Words 3..6 are Arrow's
buffers: a validity bitmap (initially zero: the kernel sets the bit of every value that is not null), then
either fixed-width values, or int32 offsets (offset 0 is set) and data. For bool_ the values are a bitmap.

Lists of numbers are written as bytes: their offsets count numbers only in the arrays that `array` creates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import SLACK, ld32, ld64, st32

KIND, P1, P2, VALIDITY, VALUES, DATA, CAPACITY = range(7)
WORDS = 8


@inline
def no_image(row, columns, variable, nvar):
    """Write a row that lacks this image: only offsets need a value.

    `variable`: address of the indices of the columns with offsets, `nvar` of them.
    """
    for j in range(nvar):
        f = ld64(columns + 8 * (WORDS * ld64(variable + 8 * j) + VALUES))
        st32(f + 4 * row + 4, ld32(f + 4 * row))


def is_variable(type_: pa.DataType) -> bool:
    """Whether values of this Arrow type have offsets and data."""
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_list(type_))


def array(type_: pa.DataType, rows: int, validity: pa.Buffer, values: pa.Buffer, data: pa.Buffer) -> pa.Array:
    """Create an array of text, bytes or lists of numbers.

    Args:
        type_: its type.
        rows: its length.
        validity: its validity bitmap.
        values: int32 offsets, counted in bytes.
        data: the bytes.
    """
    if not pa.types.is_list(type_):
        return pa.Array.from_buffers(type_, rows, [validity, values, data])
    width = type_.value_type.bit_width // 8
    offsets = np.frombuffer(values, np.int32, rows + 1) // width
    numbers = pa.Array.from_buffers(type_.value_type, int(offsets[-1]), [None, data])
    return pa.Array.from_buffers(type_, rows, [validity, pa.py_buffer(offsets)], children=[numbers])


class ColumnBuffers:
    """Buffers for `rows` rows of the given Arrow types.

    Args:
        types: Arrow type of each column: fixed width, string, binary or bool.
        rows: capacity in rows.
        data_bytes: capacity for the data of *each* variable-length column, bytes (untouched pages cost
            nothing).

    Attributes:
        descriptors: int64 array of shape (columns, WORDS), passed to a kernel by address; the decoder sets
            KIND, P1 and P2.
    """

    def __init__(self, types: Sequence[pa.DataType], rows: int, data_bytes: int) -> None:
        self.types = list(types)
        self.rows = rows
        self.descriptors = np.zeros((max(1, len(self.types)), WORDS), np.int64)
        bitmap = _aligned(rows // 8 + 1)
        self._validity: list[int] = []
        self._values: list[int] = []
        at = 0
        for type_ in self.types:
            self._validity.append(at)
            at += bitmap
            self._values.append(at)
            at += _aligned(_values_bytes(type_, rows))
        self._fixed = np.zeros(at + 64, np.uint8)  # zeroed: validity and absent values
        self._data: list[np.ndarray | None] = []
        base = self._fixed.ctypes.data
        for i, type_ in enumerate(self.types):
            d = self.descriptors[i]
            d[VALIDITY], d[VALUES] = base + self._validity[i], base + self._values[i]
            data = np.empty(data_bytes + SLACK, np.uint8) if is_variable(type_) else None
            self._data.append(data)
            if data is not None:
                d[DATA], d[CAPACITY] = data.ctypes.data, data_bytes

    def arrays(self, rows: int) -> list[pa.Array]:
        """The first `rows` values of each column. From then on the arrays own the buffers."""
        out = []
        fixed = pa.py_buffer(self._fixed)
        for i, type_ in enumerate(self.types):
            validity = fixed.slice(self._validity[i], (rows + 7) // 8)
            data = self._data[i]
            if data is None:
                values = fixed.slice(self._values[i], _values_bytes(type_, rows))
                out.append(pa.Array.from_buffers(type_, rows, [validity, values]))
                continue
            offsets = fixed.slice(self._values[i], 4 * (rows + 1))
            used = int(np.frombuffer(offsets, np.int32)[rows])
            # shrink: the array must not keep unused memory alive
            kept = pa.py_buffer(data[:used].copy() if used * 2 < len(data) else data[:used])
            out.append(array(type_, rows, validity, offsets, kept))
        return out


def _values_bytes(type_: pa.DataType, rows: int) -> int:
    if is_variable(type_):
        return 4 * (rows + 1)
    if pa.types.is_boolean(type_):
        return rows // 8 + 1
    return rows * int(type_.byte_width) if hasattr(type_, "byte_width") else rows * int(type_.bit_width) // 8


def _aligned(n: int) -> int:
    return (n + SLACK + 63) & ~63
