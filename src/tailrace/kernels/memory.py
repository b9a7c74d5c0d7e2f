"""Raw memory for kernels: loads and stores at addresses.

Kernels are C-like. Memory is passed as int64 addresses (`ndarray.ctypes.data`), never as arrays: passing
arrays between compiled functions costs atomic reference counting (two thirds of the run time when measured,
docs/design/0004-kernels.md). These rules replace the bounds checker:

* every read of input is preceded by a check against the end of the enclosing event or packet;
* every input buffer has SLACK readable bytes after its end, and every output region SLACK writable bytes, so
  that accesses of 8 and 16 bytes may exceed the checked range by less than that;
* every output region has a capacity, and a kernel that needs more returns "no room".

Loads are unaligned, little-endian, and widened to int64: unsigned `ld*`, signed `lds*`. Stores take the low
bits of an int64.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline, intrinsic

#: Bytes of spare memory after every input and output region.
SLACK = 16


@intrinsic
def ld8(address):
    """The byte at an address."""


@intrinsic
def ld16(address):
    """Two bytes."""


@intrinsic
def ld32(address):
    """Four bytes."""


@intrinsic
def ld64(address):
    """Eight bytes."""


@intrinsic
def lds8(address):
    """The byte at an address, signed."""


@intrinsic
def lds16(address):
    """Two bytes, signed."""


@intrinsic
def lds32(address):
    """Four bytes, signed."""


@intrinsic
def st8(address, value):
    """Store a byte."""


@intrinsic
def st16(address, value):
    """Store two bytes."""


@intrinsic
def st32(address, value):
    """Store four bytes."""


@intrinsic
def st64(address, value):
    """Store eight bytes."""


@intrinsic
def be32(address):
    """Big-endian load of four bytes."""


@intrinsic
def be64(address):
    """Big-endian load of eight bytes."""


@intrinsic
def mulhi(a, b):
    """High 64 bits of the product of two uint64."""


@intrinsic
def leading_zeros(x):
    """Number of zero bits above the highest set bit of a uint64; 64 for 0."""


@inline
def be(p, n):
    """Big-endian load of 0..8 bytes."""
    v = np.int64(0)
    for j in range(n):
        v = (v << 8) | ld8(p + j)
    return v


@inline
def copy(to, source, n):
    """Copy n bytes, 16 at a time: both regions need SLACK."""
    end = to + n
    while to < end:
        st64(to, ld64(source))
        st64(to + 8, ld64(source + 8))
        to += 16
        source += 16


@inline
def same(a, b, n):
    """Whether n bytes at two addresses are equal."""
    end = a + n
    while a + 8 <= end:
        if ld64(a) != ld64(b):
            return False
        a += 8
        b += 8
    while a < end:
        if ld8(a) != ld8(b):
            return False
        a += 1
        b += 1
    return True


@inline
def set_bit(bitmap, i):
    """Set bit i of an Arrow bitmap."""
    a = bitmap + (i >> 3)
    st8(a, ld8(a) | (1 << (i & 7)))
