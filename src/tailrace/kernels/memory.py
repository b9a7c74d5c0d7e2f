"""Raw memory for kernels: loads and stores at addresses, and the compilation of kernels.

Kernels are C-like. Memory is passed as int64 addresses (`ndarray.ctypes.data`), never as arrays: passing
arrays between jitted functions costs atomic reference counting (two thirds of the run time when measured,
docs/design/0004-kernels.md). These rules replace the bounds checker:

* every read of input is preceded by a check against the end of the enclosing event or packet;
* every input buffer has SLACK readable bytes after its end, and every output region SLACK writable bytes, so
  that accesses of 8 and 16 bytes may exceed the checked range by less than that;
* every output region has a capacity, and a kernel that needs more returns "no room".

A kernel that Python calls is declared with `entry(signature)`: it is compiled once, kept in the cache
(`kernels.cache`), and loaded when its module is imported. Functions that kernels call are declared with
`inline`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tailrace.kernels.cache import KernelCache

#: Bytes of spare memory after every input and output region.
SLACK = 16

_I64 = ir.IntType(64)


def inline(function: Callable[..., Any]) -> Any:
    """Declare a kernel function that only kernels call."""
    return njit(nogil=True, error_model="numpy")(function)


def entry(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel function that Python calls, with its types, e.g. `entry("int64(int64,int64)")`."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel: Any = njit(nogil=True, error_model="numpy")(function)
        with KernelCache(function) as kernel._cache:  # noqa: SLF001 - what `cache=True` does, elsewhere
            kernel.compile(signature)
        kernel.disable_compile()
        return kernel

    return decorate


def _code(function: Callable[..., Any]) -> Any:
    """Declare a function of kernels that generates its own code."""
    return intrinsic(function)


def _load(bits: int, signed: bool = False) -> Any:
    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            type_ = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], type_.as_pointer()), align=1)
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, _I64)

        return types.int64(types.int64), generate

    return load


def _store(bits: int) -> Any:
    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            type_ = ir.IntType(bits)
            value = args[1] if bits == 64 else builder.trunc(args[1], type_)
            builder.store(value, builder.inttoptr(args[0], type_.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store


#: Unaligned little-endian loads, widened to int64: unsigned ld*, signed lds*.
ld8, ld16, ld32, ld64 = _load(8), _load(16), _load(32), _load(64)
lds8, lds16, lds32 = _load(8, True), _load(16, True), _load(32, True)
#: Little-endian stores of the low bits of an int64.
st8, st16, st32, st64 = _store(8), _store(16), _store(32), _store(64)


@_code
def mulhi(typing: Any, a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i128 = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], i128), builder.zext(args[1], i128))
        return builder.trunc(builder.lshr(product, ir.Constant(i128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), generate


@_code
def leading_zeros(typing: Any, x: Any) -> Any:
    """Number of zero bits above the highest set bit of a uint64; 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_code
def be64(typing: Any, address: Any) -> Any:
    """Big-endian load of eight bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], _I64.as_pointer()), align=1)
        return builder.bswap(value)

    return types.int64(types.int64), generate


@_code
def be32(typing: Any, address: Any) -> Any:
    """Big-endian load of four bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()), align=1)
        swap = builder.module.declare_intrinsic("llvm.bswap", [ir.IntType(32)])
        return builder.zext(builder.call(swap, [value]), _I64)

    return types.int64(types.int64), generate


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
