"""Set-up's last step: what a first run would otherwise wait for is done now (`python -m tailrace_dev.warm`).

Kernels are compiled into Numba's cache, Delta's jars and the development server are fetched, Spark's
classes are kept as its JVM has loaded them.
"""

from __future__ import annotations

import pkgutil
import sys
import time
from collections.abc import Callable
from importlib import import_module

import tailrace
from tailrace.errors import TailraceError

#: Packages of this name hold kernels, which are compiled when their modules are imported.
_KERNELS = "kernels"


def main() -> int:
    """Warms everything.

    Returns:
        Exit code: 0, also where only the development server cannot be had, as one may use another, or Spark's
        classes cannot be kept.
    """
    try:
        _step("kernels compiled", load_kernels)
        _step("Delta's jars fetched", _jars)
    except TailraceError as error:
        _say(str(error))
        return 1
    try:
        _step("Spark's classes archived", _classes)
    except TailraceError as error:
        _say(str(error))
    try:
        _step("MySQL development server fetched", _server)
    except TailraceError as error:
        _say(f"tests and demo will not find a server of their own: {error}")
    return 0


def _step(done: str, work: Callable[[], None]) -> None:
    begun = time.monotonic()
    work()
    _say(f"{done} ({time.monotonic() - begun:.1f} s)")


def load_kernels() -> None:
    """Import every module with kernels: that compiles their entries into Numba's cache, or loads them."""
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if _KERNELS in module.name.split("."):
            import_module(module.name)


def _jars() -> None:
    import_module("tailrace.spark.session").prefetch_jars()


def _classes() -> None:
    import_module("tailrace.spark.class_archive").make_archive()


def _server() -> None:
    with import_module("tailrace_dev.servers").start_mysql():
        pass


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
