"""Kernels in Python as one module of LLVM, by Numba, not yet optimised: that is done for each target."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
from numba import njit

from tailrace.kernels.declarations import EntryKernel, InlineKernel, IntrinsicKernel, declaring, modules
from tailrace_build.intrinsics import code

#: An exported function, which calls Numba's by its calling convention: where the result goes, and where an
#: error would; kernels have none.
_EXPORT = """
declare i32 @{kernel}(ptr, ptr, {types})
define {type} @{symbol}({types}) {{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @{kernel}(ptr %result, ptr %error, {values})
{value}
}}
"""


def compiled_kernels() -> str:
    """All entries of tailrace, with all that they call, as a module of LLVM.

    Afterwards this process cannot call kernels.
    """
    with declaring() as entries:
        for module in modules():
            import_module(module)
    _replace_declarations()
    whole = llvm.parse_assembly("")
    for each in entries:
        kernel = _as_numba_has_it(each)
        kernel.compile(each.signature)
        (result,) = kernel.overloads.values()
        whole.link_in(llvm.parse_assembly(result.library.get_llvm_str()))
        whole.link_in(llvm.parse_assembly(_export(each, result.fndesc.llvm_func_name)))
    _hide_all_but(whole, {each.symbol for each in entries})
    whole.verify()
    return str(whole)


def _replace_declarations() -> None:
    """Put what Numba can compile into all modules that have a declaration: kernels find it there by name."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if isinstance(value, EntryKernel | InlineKernel | IntrinsicKernel):
                setattr(module, name, _as_numba_has_it(value))


@cache
def _as_numba_has_it(declared: EntryKernel | InlineKernel | IntrinsicKernel) -> Any:
    if isinstance(declared, IntrinsicKernel):
        return code(declared.function)
    return njit(nogil=True, error_model="numpy")(declared.function)


def _export(declared: EntryKernel, kernel: str) -> str:
    return _EXPORT.format(
        symbol=declared.symbol,
        kernel=kernel,
        type="i64" if declared.has_result else "void",
        value="  %value = load i64, ptr %result\n  ret i64 %value" if declared.has_result else "  ret void",
        types=", ".join(["i64"] * declared.arguments),
        values=", ".join(f"i64 %{i}" for i in range(declared.arguments)),
    )


def _hide_all_but(module: Any, symbols: set[str]) -> None:
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration:
            each.linkage = "external" if each.name in symbols else "internal"
