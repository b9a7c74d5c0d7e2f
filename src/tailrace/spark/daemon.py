"""Spark's Python daemon with our kernels loaded: `spark.python.daemon.module = tailrace.spark.daemon`.

The daemon forks a worker for each task that runs at once. What it has imported, the workers share: a worker
starts in milliseconds instead of a second of CPU time, and holds the kernels' memory once.

Nothing here may start a thread that a fork would lose: NumPy's BLAS is kept to the one thread there is, and
Arrow makes its own anew after a fork.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module

from tailrace.errors import TailraceError

#: What tasks import: the source, its readers, and the shapes; Arrow's compute functions come with them.
_PRELOADED = (
    "pyspark.worker",
    "tailrace.spark.source",
    "tailrace.sources.mysql.session",
    "tailrace.sinks.tables.rows",
)


def main() -> None:
    """Load, then serve Spark as its own daemon does."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for module in _PRELOADED:
        with suppress(ImportError, TailraceError):  # a task that needs it will say so, in its own words
            import_module(module)
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
