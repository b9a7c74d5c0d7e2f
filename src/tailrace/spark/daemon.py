"""Spark's Python daemon with our kernels loaded: `spark.python.daemon.module = tailrace.spark.daemon`.

The daemon forks a worker for each task that runs at the same time. Workers share the modules that the daemon
has imported: a worker starts in milliseconds instead of a second of CPU time, and the kernels are in memory
once. `spark.session` names the database of the stream's source in TAILRACE_PRELOAD, and the daemon imports
that database's decoders; where the variable is not set, MySQL's.

Nothing here may start a thread that a fork would lose: NumPy's BLAS is limited to one thread, and Arrow
starts its own threads anew after a fork.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module

from tailrace.config.host_guard import guard_from_environment
from tailrace.errors import TailraceError
from tailrace.sources import registry
from tailrace.spark.log_records import follow_settings

#: Environment variable: the scheme of the URL of the database to read.
PRELOAD = "TAILRACE_PRELOAD"
#: Modules of every task, besides the database's; Arrow's compute functions come with them.
_MODULES = ("pyspark.worker", "tailrace.spark.source", "tailrace.sinks.tables.rows")


def preload() -> None:
    """Import what tasks need. A module that cannot be imported is left to the task, which reports why."""
    for module in _MODULES:
        with suppress(ImportError, TailraceError):
            import_module(module)
    with suppress(ImportError, TailraceError):
        registry.preload(os.environ.get(PRELOAD, "mysql"))


def main() -> None:
    """Import modules, then serve Spark as its own daemon does."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    follow_settings()
    guard_from_environment()
    preload()
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
