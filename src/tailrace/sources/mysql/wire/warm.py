"""Compiles all kernels into Numba's cache, so that no first batch waits for it."""

from __future__ import annotations

from importlib import import_module

#: Modules with kernels that Python calls: importing one compiles or loads them.
_MODULES = (
    "tailrace.sources.mysql.wire.packets",
    "tailrace.sources.mysql.wire.transactions",
    "tailrace.sources.mysql.wire.resultset",
    "tailrace.sources.mysql.wire.events",
    "tailrace.sources.mysql.wire.rows",
    "tailrace.sources.mysql.wire.origin",
)


def warm() -> None:
    """Import every module with kernels."""
    for module in _MODULES:
        import_module(module)
