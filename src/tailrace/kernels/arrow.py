"""Reading of Arrow arrays: bitmaps and integers. C-like; the rules are in `memory`."""

from __future__ import annotations

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld64, lds8, lds16, lds32

#: Kinds of integer columns, with which the kinds of every kernel that writes columns begin.
INT8, INT16, INT32, INT64 = range(4)


@inline
def get_bit(bitmap, i):
    """Bit i of a bitmap."""
    return (ld8(bitmap + (i >> 3)) >> (i & 7)) & 1


@inline
def is_null(validity, i):
    """Whether value i is null; `validity`: address of the validity bitmap, 0 if there are no nulls."""
    return validity != 0 and get_bit(validity, i) == 0


@inline
def load_integer(values, kind, i):
    """Value i of an array of integers of the kind INT8, INT16, INT32 or INT64."""
    if kind == INT64:
        return ld64(values + 8 * i)
    if kind == INT32:
        return lds32(values + 4 * i)
    if kind == INT16:
        return lds16(values + 2 * i)
    return lds8(values + i)
