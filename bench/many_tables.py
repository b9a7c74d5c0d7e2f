"""How a pipeline of many tables starts and runs: `python -m bench.many_tables [TABLES...]`.

`tailrace run` begins with the log, without a snapshot: a pattern matches all tables, and their changes are
printed. Memory is the largest resident set of a process of each role.

    start            from the start of the process until the console prints a change that was made meanwhile
    one change each  a whole run with `trigger: available-now` after a change of every table
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.pipelines import command, pipeline_file
from bench.processes import Sampler
from bench.report import Figure
from bench.servers import Server
from bench.small_tables import change_each, made_tables, of_counts
from tailrace.repetition import repeatedly

#: How many tables, one run each.
COUNTS = (1000, 10_000)
#: The pause between two changes while a pipeline starts, seconds.
_PAUSE_S = 0.2


def measure(server: Server, place: Path, tables: int) -> Iterator[Figure]:
    """The figures of so many tables.

    Args:
        server: the source.
        place: a directory for the pipeline.
        tables: how many.
    """
    endless, once = (
        pipeline_file(
            place / str(tables) / f"{trigger}.yaml",
            server,
            {"type": "console"},
            r"t\d+",
            start="latest",
            trigger=trigger,
        )
        for trigger in ("continuous", "available-now")
    )
    with made_tables(server, tables):
        yield _start(server, endless, tables)
        change_each(server, tables)
        yield _run(once, tables)


def _start(server: Server, file: Path, tables: int) -> Figure:
    begun = time.perf_counter()
    with subprocess.Popen(command(file), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with Sampler([process.pid]) as sampler, repeatedly(lambda: change_each(server, 1), _PAUSE_S):
            first = next((line for line in process.stdout if "batch " in line), None)
            seconds = time.perf_counter() - begun
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert first is not None, "no change was printed"
    return _figure(tables, "start", seconds, sampler)


def _run(file: Path, tables: int) -> Figure:
    begun = time.perf_counter()
    with (
        subprocess.Popen(command(file), stdout=subprocess.DEVNULL) as process,
        Sampler([process.pid]) as sampler,
    ):
        code = process.wait()
    assert code == 0, f"exit code {code}"
    return _figure(tables, "one change each", time.perf_counter() - begun, sampler)


def _figure(tables: int, what: str, seconds: float, sampler: Sampler) -> Figure:
    used = sampler.usage
    return Figure(
        f"many tables, {tables:,}",
        what,
        seconds,
        "s",
        cpu_s=dict(used.cpu_s),
        peak_rss_mb=dict(used.peak_rss_mb),
    )


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    return of_counts("many_tables", __doc__, COUNTS, measure)


if __name__ == "__main__":
    sys.exit(main())
