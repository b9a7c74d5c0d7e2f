"""The code of intrinsics: what kernels do that Python cannot say.

Each function here writes the code of the intrinsic of that name in `tailrace.kernels`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)
_INT64 = types.int64
_UINT64 = types.uint64
#: Writes the code of a call: gets the builder and the arguments' values, returns the result's.
Writer = Callable[[ir.IRBuilder, list[ir.Value]], ir.Value | None]


def _pointer(builder: ir.IRBuilder, address: ir.Value, type_: ir.Type) -> ir.Value:
    return builder.inttoptr(address, type_.as_pointer())


def _load(bits: int, *, signed: bool = False) -> tuple[Any, Writer]:
    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        value = builder.load(_pointer(builder, args[0], ir.IntType(bits)), align=1)
        if bits == 64:
            return value
        return (builder.sext if signed else builder.zext)(value, _I64)

    return _INT64(_INT64), write


def _store(bits: int) -> tuple[Any, Writer]:
    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
        builder.store(value, _pointer(builder, args[0], ir.IntType(bits)), align=1)

    return types.void(_INT64, _INT64), write


def _load_swapped(bits: int) -> tuple[Any, Writer]:
    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        type_ = ir.IntType(bits)
        swap = builder.module.declare_intrinsic("llvm.bswap", [type_])
        value = builder.call(swap, [builder.load(_pointer(builder, args[0], type_), align=1)])
        return value if bits == 64 else builder.zext(value, _I64)

    return _INT64(_INT64), write


def _mulhi(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _I64)


def _leading_zeros(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
    return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))


def _call(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
    function, *rest = args
    type_ = ir.FunctionType(_I64, [_I64] * len(rest))
    return builder.call(_pointer(builder, function, type_), rest)


_WRITERS: dict[str, tuple[Any, Writer]] = {
    **{f"ld{bits}": _load(bits) for bits in (8, 16, 32, 64)},
    **{f"lds{bits}": _load(bits, signed=True) for bits in (8, 16, 32)},
    **{f"st{bits}": _store(bits) for bits in (8, 16, 32, 64)},
    **{f"be{bits}": _load_swapped(bits) for bits in (32, 64)},
    "mulhi": (_UINT64(_UINT64, _UINT64), _mulhi),
    "leading_zeros": (_INT64(_UINT64), _leading_zeros),
    "call1": (_INT64(_INT64, _INT64), _call),
    "call3": (_INT64(_INT64, _INT64, _INT64, _INT64), _call),
}


def code(declared: Callable[..., Any]) -> Any:
    """The intrinsic that a function declares, as Numba has it."""
    signature, write = _WRITERS[declared.__name__]

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: list[ir.Value]) -> ir.Value:
        value = write(builder, args)
        return context.get_dummy_value() if value is None else value

    def typed(*_: Any) -> Any:
        return signature, generate

    context = Parameter("typing", Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(declared).parameters.values()
    typed.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
    typed.__name__ = declared.__name__
    return intrinsic(typed)
