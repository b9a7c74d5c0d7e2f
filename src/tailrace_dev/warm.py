"""The last step of the set-up, so that a first run need not wait (`python -m tailrace_dev.warm`).

Compiles the kernels, downloads Delta's jars and the development server, and archives Spark's classes as its
JVM loads them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module

from tailrace.errors import TailraceError
from tailrace.kernels.declarations import modules


def main() -> int:
    """Fill all caches.

    Returns:
        Exit code: 0, also where only the development server is not available, as another one may be used, or
        Spark's classes cannot be archived.
    """
    try:
        _step("kernels compiled", load_kernels)
        _step("Delta's jars downloaded", _jars)
    except TailraceError as error:
        _say(str(error))
        return 1
    try:
        _step("Spark's classes archived", _classes)
    except TailraceError as error:
        _say(str(error))
    try:
        _step("MySQL development server downloaded", _server)
    except TailraceError as error:
        _say(f"tests and the demo will have no server of their own: {error}")
    return 0


def _step(done: str, work: Callable[[], None]) -> None:
    begun = time.monotonic()
    work()
    _say(f"{done} ({time.monotonic() - begun:.1f} s)")


def load_kernels() -> None:
    """Import every module with kernels: the first compiles their library, if this checkout has none yet."""
    for module in modules():
        import_module(module)


def _jars() -> None:
    import_module("tailrace.spark.session").prefetch_jars()


def _classes() -> None:
    import_module("tailrace.spark.local_files").jar()
    import_module("tailrace.spark.class_archive").make_archive()


def _server() -> None:
    with import_module("tailrace_dev.servers").start_mysql():
        pass


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
