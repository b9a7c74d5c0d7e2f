"""Calls of C functions by address, from kernels. C-like; rules in `kernels.memory`.

The library of kernels needs no other library. Where a kernel calls a function of one, the function's address
is an argument.
"""

from __future__ import annotations

from tailrace.kernels.declarations import intrinsic


@intrinsic
def call1(function, a):
    """`function(a)`: an argument and a result of 64 bits."""


@intrinsic
def call3(function, a, b, c):
    """`function(a, b, c)`: arguments and result of 64 bits."""
