"""Set-up's last step: what a first run would otherwise wait for is done now (`python -m tailrace.warm`).

Kernels are compiled into Numba's cache, Delta's jars and the development server are fetched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module

from tailrace.errors import TailraceError

#: Modules that have a function `warm`, which compiles their kernels.
_KERNELS = ("tailrace.sources.mysql.wire.warm",)


def main() -> int:
    """Warms everything.

    Returns:
        Exit code: 0, also where only the development server cannot be had, as one may use another.
    """
    try:
        _step("kernels compiled", _kernels)
        _step("Delta's jars fetched", _jars)
    except TailraceError as error:
        _say(str(error))
        return 1
    try:
        _step("MySQL development server fetched", _server)
    except TailraceError as error:
        _say(f"tests and demo will not find a server of their own: {error}")
    return 0


def _step(done: str, work: Callable[[], None]) -> None:
    begun = time.monotonic()
    work()
    _say(f"{done} ({time.monotonic() - begun:.1f} s)")


def _kernels() -> None:
    for module in _KERNELS:
        import_module(module).warm()


def _jars() -> None:
    import_module("tailrace.spark.session").prefetch_jars()


def _server() -> None:
    with import_module("tailrace.devservers").start_mysql():
        pass


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
