"""Scratch memory for the row images of one batch, reused from batch to batch.

The kernel fills large regions; `arrays` copies the used part to one block of the right size. So arrays keep
no more than their values alive, and unused capacity touches no fresh pages. The used part is zeroed in the
same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.kernels.columns import CAPACITY, DATA, VALIDITY, VALUES, array, is_variable
from tailrace.kernels.declarations import entry
from tailrace.kernels.memory import SLACK, copy, ld64, st64
from tailrace.model.table import TableSchema

#: Initial capacity for one column's data. It grows fourfold when a batch does not fit.
_FIRST_ROOM = 64 << 10
#: Offsets are int32.
_MOST_ROOM = (1 << 31) - (1 << 20)
_ALIGN = 64


class RowImagePlan(Protocol):
    """How to decode the two images of a table's rows."""

    @property
    def schema(self) -> TableSchema:
        """The table's schema."""

    @property
    def descriptors(self) -> np.ndarray:
        """Descriptors of the before image's columns, then of the after image's (see `columns`)."""

    @property
    def variable(self) -> np.ndarray:
        """Indices of the columns with offsets, int64."""

    @property
    def longest_label(self) -> int:
        """Length of the longest value that is not copied from the input, bytes."""

    @property
    def finish(self) -> Mapping[int, Callable[[pa.BinaryArray], pa.Array]]:
        """Conversions of columns that the kernel reads as bytes, by index."""


class Layout:
    """Offsets of the regions of a plan's images in scratch memory.

    First the bitmaps of the rows that have each image, then validity and values of each column of both
    images.
    """

    def __init__(self, plan: RowImagePlan, max_rows: int) -> None:
        self.plan = plan
        #: Of each column its Arrow type, whether that has offsets, and its conversion. Asking Arrow for these
        #: takes as long as making a small column.
        self.columns = [
            (field.type, is_variable(field.type), plan.finish.get(i))
            for i, field in enumerate(plan.schema.arrow)
        ]
        types = [type_ for type_, _, _ in self.columns] * 2
        self.bits = np.array([1, 1] + [b for t in types for b in (1, _value_bits(t))], np.int64)
        #: Bytes in addition to those per row: the last offset.
        self.extra = np.array([0, 0] + [b for t in types for b in (0, 4 * is_variable(t))], np.int64)
        sizes = _aligned(self.bits * (max_rows + 1) // 8 + self.extra + SLACK)
        self.at = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.bytes = int(sizes.sum())
        columns = len(types) // 2
        self.variable = np.concatenate((plan.variable, plan.variable + columns))
        self.room = np.full(len(self.variable), _FIRST_ROOM, np.int64)
        self.data_at = np.zeros(len(self.variable), np.int64)

    def grow(self, column: int, need: int, limit: int) -> bool:
        """Increase the capacity of a column; False if it cannot grow.

        Args:
            column: its index, counted through both images.
            need: bytes that one row may need; 0 if the caller retries with fewer rows anyway.
            limit: bytes beyond which the capacity grows only to `need`.
        """
        i = int(np.flatnonzero(self.variable == column)[0])
        now = int(self.room[i])
        self.room[i] = min(max(now, need, min(4 * now, limit)), _MOST_ROOM)
        return bool(self.room[i] > now)

    def trim(self, limit: int) -> bool:
        """Reduce capacities to `limit`; returns whether any was larger."""
        large = self.room > limit
        self.room[large] = limit
        return bool(large.any())


class ImageBuffers:
    """Scratch memory, bound to one layout at a time."""

    def __init__(self) -> None:
        self._fixed = np.zeros(0, np.uint8)
        self._data = np.zeros(0, np.uint8)

    def bind(self, layout: Layout) -> tuple[int, int]:
        """Point the plan's descriptors to this memory. Returns the addresses of the two bitmaps of rows."""
        if len(self._fixed) < layout.bytes:
            self._fixed = np.zeros(layout.bytes, np.uint8)
        sizes = _aligned(layout.room + SLACK)
        layout.data_at[1:] = np.cumsum(sizes)[:-1]
        size = int(sizes.sum())
        if len(self._data) < size:
            self._data = np.empty(size, np.uint8)
        base = self._fixed.ctypes.data
        d = layout.plan.descriptors
        d[:, VALIDITY] = base + layout.at[2::2]
        d[:, VALUES] = base + layout.at[3::2]
        d[layout.variable, DATA] = self._data.ctypes.data + layout.data_at
        d[layout.variable, CAPACITY] = layout.room
        return base, base + int(layout.at[1])

    def drop_data(self) -> None:
        """Release the memory for data, after a row that needed much of it."""
        self._data = np.zeros(0, np.uint8)

    def arrays(self, layout: Layout, rows: int, images: tuple[int, int]) -> list[pa.StructArray | None]:
        """The two images of the first `rows` rows, None for one that no row has. Clears the scratch memory.

        Args:
            layout: the bound layout.
            rows: number of decoded rows.
            images: number of rows that have a before image, and an after image.
        """
        used = (layout.bits * rows + 7) // 8 + layout.extra
        half = (len(used) - 2) // 2
        if not images[0]:
            used[2 : 2 + half] = 0
        if not images[1]:
            used[2 + half :] = 0
        lengths = self._fixed[: layout.bytes].view(np.int32)[layout.at[3 + 2 * layout.variable] // 4 + rows]
        count = len(used)
        pieces = np.zeros((count + len(lengths), 4), np.int64)
        pieces[:count, 0] = self._fixed.ctypes.data + layout.at
        pieces[count:, 0] = self._data.ctypes.data + layout.data_at
        pieces[:count, 2] = used
        pieces[count:, 2] = lengths
        pieces[:count, 3] = (layout.bits * (rows + 1) + 7) // 8 + layout.extra  # an abandoned row may follow
        sizes = _aligned(pieces[:, 2])
        at = np.concatenate(([0], np.cumsum(sizes)))
        block = np.empty(int(at[-1]) + SLACK, np.uint8)
        pieces[:, 1] = block.ctypes.data + at[:-1]
        pack(pieces.ctypes.data, len(pieces))
        if not rows:
            return [None, None]
        memory = pa.py_buffer(block)
        buffers = [memory.slice(a, n) for a, n in zip(at.tolist(), pieces[:, 2].tolist(), strict=False)]
        return [_image(layout, buffers, rows, side, images[side]) for side in range(2)]


def _image(
    layout: Layout, buffers: list[pa.Buffer], rows: int, side: int, images: int
) -> pa.StructArray | None:
    if not images:
        return None
    schema = layout.plan.schema
    columns = len(schema.columns)
    children = []
    data = 2 + 4 * columns + side * len(layout.plan.variable)
    for i, (type_, has_offsets, finish) in enumerate(layout.columns):
        at = 2 + 2 * (side * columns + i)
        validity, values = buffers[at : at + 2]
        if finish is not None:
            children.append(finish(array(pa.binary(), rows, validity, values, buffers[data])))
            data += 1
        elif has_offsets:
            children.append(array(type_, rows, validity, values, buffers[data]))
            data += 1
        else:
            children.append(pa.Array.from_buffers(type_, rows, [validity, values]))
    present = None if images == rows else buffers[side]
    return pa.Array.from_buffers(schema.arrow, rows, [present], children=children)


def _value_bits(type_: pa.DataType) -> int:
    return 32 if is_variable(type_) else int(type_.bit_width)


def _aligned(sizes: np.ndarray) -> np.ndarray:
    return (sizes + _ALIGN - 1) & ~(_ALIGN - 1)


@entry("void(int64,int64)")
def pack(pieces, count):
    """Copy `count` pieces (four int64 each: from, to, bytes, bytes to zero at `from` afterwards)."""
    for i in range(count):
        x = pieces + 32 * i
        a = ld64(x)
        copy(ld64(x + 8), a, ld64(x + 16))
        end = a + ld64(x + 24)
        while a < end:
            st64(a, 0)
            a += 8
