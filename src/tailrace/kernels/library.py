"""The library of compiled kernels that this machine loads.

A wheel has one for each of TARGETS, beside this file in `libraries/`, and compiles nothing. A checkout of the
repository compiles the one that its machine needs (`kernels.checkout`).

A library depends on no other, nor on Python. Its functions run without the GIL.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tailrace.errors import ConfigError
from tailrace.kernels import checkout

#: File names of the libraries by target.
TARGETS = {
    "linux-x86_64-v3": "linux-x86_64-v3.so",
    "linux-x86_64-v2": "linux-x86_64-v2.so",
    "linux-aarch64": "linux-aarch64.so",
    "darwin-arm64": "darwin-arm64.dylib",
}
#: What Linux calls the features of the levels x86-64-v2 and, beyond them, x86-64-v3.
_V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
_V3 = {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}

#: Where a wheel has libraries.
_SHIPPED = Path(__file__).with_name("libraries")


def function(symbol: str, arguments: int, *, has_result: bool) -> Callable[..., int]:
    """A function of the library.

    Args:
        symbol: its name.
        arguments: the number of its arguments, each of 64 bits.
        has_result: whether it returns 64 bits, or nothing.

    Raises:
        ConfigError: there is no library for this machine, or none can be made.
    """
    found: Callable[..., int] = _loaded()[symbol]
    found.argtypes = [ctypes.c_int64] * arguments  # type: ignore[attr-defined]
    found.restype = ctypes.c_int64 if has_result else None  # type: ignore[attr-defined]
    return found


def target() -> str:
    """The best of TARGETS for this machine.

    Raises:
        ConfigError: there is none.
    """
    system, processor = platform.system(), platform.machine()
    name = f"{system.lower()}-{processor}"
    if name == "linux-x86_64":
        features = _features()
        if not features >= _V2:
            missing = ", ".join(sorted(_V2 - features))
            raise _unsupported(f"this processor lacks {missing}, which x86-64-v2 has")
        return f"{name}-v3" if features >= _V3 else f"{name}-v2"
    if name not in TARGETS:
        raise _unsupported(f"this is {system} on {processor}")
    return name


@cache
def _loaded() -> ctypes.CDLL:
    return ctypes.CDLL(str(_path()))


def _path() -> Path:
    name = target()
    file = TARGETS[name]
    if checkout.is_one():
        return checkout.compiled({name: file}) / file
    if not (_SHIPPED / file).is_file():
        raise ConfigError(
            f"this installation has no compiled kernels for {name}",
            f"`{_SHIPPED / file}` is not there",
            "install Tailrace from its wheel (`pip install tailrace`); an archive of modules is not enough",
            code="TR-1215",
        )
    return _SHIPPED / file


def _unsupported(found: str) -> ConfigError:
    return ConfigError(
        "Tailrace has no compiled kernels for this machine",
        found,
        f"use one of: {', '.join(sorted(TARGETS))}",
        code="TR-1215",
    )


def _features() -> set[str]:
    """The features of the first processor: the rest of the list may be long, and slow to read."""
    with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as lines:
        flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())
