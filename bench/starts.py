"""How long `tailrace run` takes to start: `python -m bench.starts [--times N]`.

A table of a few rows, MySQL on the same machine, caches warm. Each figure is that of a process of its own:

    first row      from the start of the process until the console sink prints a row of a new pipeline
    Delta          a whole run with `trigger: available-now` that reads some changes into a Delta table
    nothing to do  the same when there are none, as cron starts it

CPU is that of all its processes. Figures count only where the machine does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bench import data
from bench.pipelines import command, pipeline_file, run
from bench.report import Figure
from bench.servers import Server, running
from bench.targets import show_judged

_ROWS = 100
_TABLE = "few"


def measure(server: Server, place: Path, times: int) -> Iterator[Figure]:
    """The figures of a table of its own.

    Args:
        server: the source.
        place: a directory for pipelines.
        times: runs of each kind.
    """
    with closing(server.connect()) as connection:
        data.execute(
            connection,
            f"DROP TABLE IF EXISTS {_TABLE}",
            f"CREATE TABLE {_TABLE} ({data.COLUMNS})",
            f"INSERT INTO {_TABLE} {data.numbers(data.ROW, 1, _ROWS)}",
        )
    first = [_first_row(server, place / f"console{n}") for n in range(times)]
    yield from _figures("first row", first)
    lake = place / "lake"
    file = pipeline_file(lake / "pipeline.yaml", server, {"type": "delta", "path": str(lake)}, _TABLE)
    timed(lambda: run(file))
    some, nothing = [], []
    for _ in range(times):
        with closing(server.connect()) as connection:
            data.execute(connection, f"UPDATE {_TABLE} SET {data.UPDATE} WHERE id < 20")
        some.append(timed(lambda: run(file)))
        nothing.append(timed(lambda: run(file)))
    yield from _figures("Delta, some changes", some)
    yield from _figures("nothing to do", nothing)


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--times", type=int, default=3, help="runs of each kind (3)")
    given = parser.parse_args()
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        with closing(server.connect()) as connection:
            data.prepare(connection)
        return show_judged(measure(server, Path(place), given.times))


def _first_row(server: Server, place: Path) -> tuple[float, float]:
    """Seconds until a row is printed, and the CPU seconds of the whole run."""
    file = pipeline_file(place / "pipeline.yaml", server, {"type": "console"}, _TABLE)
    cpu_s, begun = _children_cpu_s(), time.perf_counter()
    seconds = None
    with subprocess.Popen(command(file), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if seconds is None and "batch 0" in line:
                seconds = time.perf_counter() - begun
    assert process.returncode == 0, f"exit code {process.returncode}"
    assert seconds is not None, "no row was printed"
    return seconds, _children_cpu_s() - cpu_s


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """The seconds that `work` takes, and the CPU seconds of the processes that it starts."""
    cpu_s, begun = _children_cpu_s(), time.perf_counter()
    work()
    return time.perf_counter() - begun, _children_cpu_s() - cpu_s


def _children_cpu_s() -> float:
    """The CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _figures(name: str, found: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    """The medians of some runs: seconds, CPU seconds of all processes."""
    for what, unit, values in zip(
        (name, f"CPU of {name}"), ("s", "CPU s"), zip(*found, strict=True), strict=True
    ):
        yield Figure("starts", what, sorted(values)[len(values) // 2], unit, (min(values), max(values)))


if __name__ == "__main__":
    sys.exit(main())
