"""Calls of C functions by address, from kernels. C-like; rules in `kernels.memory`.

Numba does not cache compiled code that contains the address of a library's function; here the address is an
argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def _code(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_code
def call1(typing: Any, function: Any, a: Any) -> Any:
    """`function(a)`: an argument and a result of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        type_ = ir.FunctionType(_I64, [_I64])
        return builder.call(builder.inttoptr(args[0], type_.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64), generate


@_code
def call3(typing: Any, function: Any, a: Any, b: Any, c: Any) -> Any:
    """`function(a, b, c)`: arguments and result of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        type_ = ir.FunctionType(_I64, [_I64] * 3)
        return builder.call(builder.inttoptr(args[0], type_.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate
