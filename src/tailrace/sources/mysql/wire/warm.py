"""Compiles all kernels into Numba's cache, so that no first batch waits for it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

#: Packages whose modules hold kernels.
_PACKAGES = ("tailrace.sources.mysql.wire", "tailrace.kernels", "tailrace.formats.kernels")


def warm() -> None:
    """Import every module of the packages with kernels: that compiles their entries, or loads them."""
    for name in _PACKAGES:
        for module in iter_modules(import_module(name).__path__):
            import_module(f"{name}.{module.name}")
