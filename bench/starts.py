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
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench import data
from bench.pipelines import command, pipeline_file, run
from bench.servers import Server, running

_ROWS = 100
#: Targets, seconds.
FIRST_ROW_S, NOTHING_S, NOTHING_CPU_S = 6.0, 6.0, 6.0


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--times", type=int, default=3, help="runs of each kind (3)")
    given = parser.parse_args()
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        with closing(server.connect()) as connection:
            data.prepare(connection)
            data.fill_items(connection, _ROWS)
        first = [_first_row(server, Path(place, f"console{n}")) for n in range(given.times)]
        lake = Path(place, "lake")
        file = pipeline_file(lake / "pipeline.yaml", server, {"type": "delta", "path": str(lake)})
        timed(lambda: run(file))
        some, nothing = [], []
        for _ in range(given.times):
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                cursor.execute(f"UPDATE items SET {data.UPDATE} WHERE id < 20")
            some.append(timed(lambda: run(file)))
            nothing.append(timed(lambda: run(file)))
    met = [
        _line("first row", first, FIRST_ROW_S, None),
        _line("Delta, some changes", some, None, None),
        _line("nothing to do", nothing, NOTHING_S, NOTHING_CPU_S),
    ]
    return 0 if all(met) else 1


def _first_row(server: Server, place: Path) -> tuple[float, float]:
    """Seconds until a row is printed, and the CPU seconds of the whole run."""
    file = pipeline_file(place / "pipeline.yaml", server, {"type": "console"})
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


def _line(
    name: str, found: list[tuple[float, float]], most_s: float | None, most_cpu_s: float | None
) -> bool:
    """Print the median; whether the targets are met."""
    seconds = sorted(s for s, _ in found)[len(found) // 2]
    cpu_s = sorted(c for _, c in found)[len(found) // 2]
    met = (most_s is None or seconds <= most_s) and (most_cpu_s is None or cpu_s <= most_cpu_s)
    target = ", ".join(
        f"≤ {most:g} {unit}" for most, unit in ((most_s, "s"), (most_cpu_s, "CPU s")) if most is not None
    )
    mark = f"   {target}: {'✓' if met else '✗'}" if target else ""
    sys.stdout.write(f"{name:20} {seconds:6.2f} s {cpu_s:6.2f} CPU s{mark}\n")
    return met


if __name__ == "__main__":
    sys.exit(main())
