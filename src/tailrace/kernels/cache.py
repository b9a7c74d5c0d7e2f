"""Compiled kernels, kept in Tailrace's cache: `kernels/<digest>/<module>/`.

Numba keeps them beside the sources, where an installed package cannot be written, and looks at the file of
the entry alone to see whether what it has is still right; but kernels are made of functions of many files. So
the directory is named by a digest of all that the machine code comes of: every file with kernels, Python,
Numba, the processor. What lies there is never out of date, and installations of the same release share it.

Processes that start together compile each kernel once: the first holds a lock, the others wait and load.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import cpu_target

from tailrace.cache import cache_dir, locked, unwritable

#: How long kernels are kept that nobody loads, seconds.
_KEPT_S = 30 * 86400


class _Locator(_CacheLocator):
    """Where one function's code is kept, as Numba asks for it."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file  # Numba's warnings name it
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir("kernels", _key(), function.__module__)

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return _key()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)


class _Files(CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012 - as the base has it


class KernelCache(FunctionCache):
    """Numba's cache of one function, in Tailrace's. Enter its context to compile or load the function."""

    _impl_class = _Files

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._lock = ExitStack()

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function; None, with the lock held, if this process is to compile it."""
        found = self._load(sig, target_context)
        if found is None:
            self._lock.enter_context(locked(f"kernels-{_key()}"))
            found = self._load(sig, target_context)
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (EOFError, UnpicklingError):  # the machine lost power while the file was written
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a function that was compiled.

        Raises:
            ConfigError: the cache cannot be written.
        """
        try:
            self.flush()
            super().save_overload(sig, data)
        except OSError as error:
            raise unwritable(Path(self.cache_path), error) from None


@cache
def _key() -> str:
    """The name of the directory for this release on this machine."""
    key = _digest()
    if not (cache_dir("kernels") / key).exists():
        _forget_others()
    return key


def _digest() -> str:
    """Of everything that compiled kernels depend on."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.glob("**/kernels/*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    processor = cpu_target.target_context.codegen().magic_tuple()
    made_by = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, processor)
    digest.update(repr(made_by).encode())
    return digest.hexdigest()[:32]


def _forget_others() -> None:
    """Delete the kernels of other releases that no process has loaded for a month."""
    for other in cache_dir("kernels").iterdir():
        used = max((file.stat().st_atime for file in other.glob("*/*.nbc")), default=time.time())
        if time.time() - used > _KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
