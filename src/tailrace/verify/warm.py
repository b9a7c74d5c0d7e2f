"""Compiles verify's kernels into Numba's cache."""

from __future__ import annotations

from importlib import import_module


def warm() -> None:
    """Import the module with kernels."""
    import_module("tailrace.kernels.hashing")
