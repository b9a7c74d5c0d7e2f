"""What a micro-batch costs besides its rows: `python -m bench.batches [TABLES...]`.

`tailrace run` keeps Delta tables of mode upsert, of one row each. CPU is that of all processes of the run,
divided by the number of batches:

    empty   only a table that is not captured changes; there is a batch each 10 s then, to note the position
    small   the row of every table changes again and again, in transactions of their own; batches follow each
            other without a pause

The first seconds of each do not count.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench import data
from bench.pipelines import command, pipeline_file
from bench.processes import Sampler
from bench.report import Figure
from bench.servers import Server
from bench.small_tables import made_tables, of_counts
from tailrace.repetition import repeatedly

#: How many tables, one run each.
COUNTS = (1, 20, 200)
_WARM_UP_S, _COUNTED_S = 20.0, 20.0
#: The pause between two rounds of changes, seconds.
_PAUSE_S = 0.05


def measure(server: Server, place: Path, tables: int) -> Iterator[Figure]:
    """The figures of so many tables.

    Args:
        server: the source.
        place: a directory for the pipeline.
        tables: how many.
    """
    directory = place / str(tables)
    sink = {"type": "delta", "path": str(directory / "lake")}
    file = pipeline_file(directory / "pipeline.yaml", server, sink, r"t\d+", trigger="continuous")
    with closing(server.connect()) as connection:
        data.execute(connection, "CREATE TABLE not_captured (id INT PRIMARY KEY, n INT)")
        data.execute(connection, "INSERT INTO not_captured VALUES (1, 0)")
    with made_tables(server, tables), subprocess.Popen(command(file), stdout=subprocess.DEVNULL) as process:
        _wait(process, lambda: len(list((directory / "lake").glob("*/_delta_log/*0.json"))) > tables)
        each = [f"UPDATE t{number} SET v = LEFT(UUID(), 20)" for number in range(tables)]
        for kind, statements in (("empty", ["UPDATE not_captured SET n = n + 1"]), ("small", each)):
            with _changing(server, statements):
                time.sleep(_WARM_UP_S)
                yield _counted(process, directory / "checkpoint", tables, kind)
        process.send_signal(signal.SIGINT)
    with closing(server.connect()) as connection:
        data.execute(connection, "DROP TABLE not_captured")


def _wait(process: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    while not done():
        if process.poll() is not None:
            raise RuntimeError(f"`tailrace run` ended with {process.returncode}")
        time.sleep(0.5)


def _counted(process: subprocess.Popen[bytes], checkpoint: Path, tables: int, kind: str) -> Figure:
    begun, first = time.monotonic(), _batches(checkpoint)
    with Sampler([process.pid]) as sampler:
        _wait(process, lambda: time.monotonic() - begun >= _COUNTED_S and _batches(checkpoint) > first)
    seconds, count = time.monotonic() - begun, _batches(checkpoint) - first
    cpu_s = {role: used / count for role, used in sampler.usage.cpu_s.items()}
    name = "a batch with a change of each" if kind == "small" else "a batch without a change"
    notes = {"batches": count, "seconds from one batch to the next": seconds / count}
    value = 1000 * sum(cpu_s.values())
    return Figure(f"batches, {tables:,} Delta tables", name, value, "CPU ms", cpu_s=cpu_s, notes=notes)


def _batches(checkpoint: Path) -> int:
    """The number of the last batch that is committed."""
    return max(
        (int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit()), default=-1
    )


@contextmanager
def _changing(server: Server, statements: list[str]) -> Iterator[None]:
    """These statements again and again, each in a transaction of its own."""
    with (
        closing(server.connect()) as connection,
        repeatedly(lambda: data.execute(connection, *statements), _PAUSE_S),
    ):
        yield


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    return of_counts("batches", __doc__, COUNTS, measure)


if __name__ == "__main__":
    sys.exit(main())
