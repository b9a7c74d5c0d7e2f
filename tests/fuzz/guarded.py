"""Memory that ends at a page that may not be touched: an access beyond it kills the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from tailrace.kernels.memory import SLACK

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def allocate(size: int) -> np.ndarray:
    """`size` writable bytes, with a forbidden page behind them."""
    whole = (size + _PAGE - 1) // _PAGE * _PAGE
    pages = mmap.mmap(-1, whole + _PAGE)
    array = np.frombuffer(pages, np.uint8)
    if _LIBC.mprotect(array.ctypes.data + whole, _PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return array[whole - size : whole]


def holding(data: bytes) -> np.ndarray:
    """`data` and SLACK, which is all that a kernel may read."""
    buffer = allocate(len(data) + SLACK)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return buffer


class GuardedNumpy:
    """Stands for numpy in a module whose buffers are to be guarded."""

    @staticmethod
    def zeros(shape: Any, dtype: Any = float) -> np.ndarray:
        if dtype is np.uint8 and isinstance(shape, int) and shape:
            return allocate(shape)
        return np.zeros(shape, dtype)

    empty = zeros

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)
