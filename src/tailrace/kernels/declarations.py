"""How kernels are declared.

A function that Python calls is an `entry` with its types, and is what the compiled library has for it
(`kernels.library`). What only kernels call is `inline`, or an `intrinsic` whose machine code
`tailrace_build.intrinsics` writes; Python cannot call either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.kernels import library


@dataclass(frozen=True)
class InlineKernel:
    """A kernel function that only kernels call."""

    function: Callable[..., Any]


@dataclass(frozen=True)
class IntrinsicKernel:
    """A function of kernels whose code is written for it."""

    function: Callable[..., Any]


@dataclass(frozen=True)
class EntryKernel:
    """A kernel function that Python calls.

    Args:
        function: it, in Python.
        signature: its types: `int64(...)` or `void(...)`, of arguments that are `int64`.
    """

    function: Callable[..., Any]
    signature: str

    @property
    def symbol(self) -> str:
        """Its name in the library."""
        return f"{self.function.__module__}.{self.function.__name__}".replace(".", "_")

    @property
    def arguments(self) -> int:
        """The number of its arguments."""
        return self.signature.count(",") + 1

    @property
    def has_result(self) -> bool:
        """Whether it returns a value."""
        return not self.signature.startswith("void")


def modules() -> list[str]:
    """The names of all modules that have kernels; none is imported, nor a package that one is in."""
    root = Path(__file__).parents[1]
    files = [file for file in sorted(root.glob("**/kernels/*.py")) if file.name != "__init__.py"]
    return [".".join((root.name, *file.relative_to(root).with_suffix("").parts)) for file in files]


#: The entries declared while kernels are compiled; None: they are in a library.
_declared: list[EntryKernel] | None = None


def inline(function: Callable[..., Any]) -> Any:
    """Declare a kernel function that only kernels call."""
    return InlineKernel(function)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Declare a function of kernels whose code is written for it."""
    return IntrinsicKernel(function)


def entry(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel function that Python calls, with its types, e.g. `entry("int64(int64,int64)")`."""

    def decorate(function: Callable[..., Any]) -> Any:
        declared = EntryKernel(function, signature)
        if _declared is not None:
            _declared.append(declared)
            return declared
        return library.function(declared.symbol, declared.arguments, has_result=declared.has_result)

    return decorate


@contextmanager
def declaring() -> Iterator[list[EntryKernel]]:
    """Within the block, entries of modules that are imported are listed, and not looked up in a library.

    For the process that compiles them: it cannot call kernels.
    """
    global _declared  # noqa: PLW0603 - decorators have no other way to learn of it
    _declared = []
    try:
        yield _declared
    finally:
        _declared = None
