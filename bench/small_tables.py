"""How long many tables of one row each take: `python -m bench.small_tables [TABLES...]`.

A whole `tailrace run` with `trigger: available-now` copies them from MySQL into Delta; then a second run
takes a change of each. Start and end of the process count. CPU is that of all its processes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench import data
from bench.pipelines import pipeline_file, run
from bench.report import Figure
from bench.servers import Server, running
from bench.starts import timed
from bench.targets import show_judged

#: How many tables, one run each.
COUNTS = (100, 1000)


def measure(server: Server, place: Path, tables: int) -> Iterator[Figure]:
    """The figures of so many tables.

    Args:
        server: the source.
        place: a directory for the pipeline.
        tables: how many.
    """
    lake = place / str(tables)
    file = pipeline_file(lake / "pipeline.yaml", server, {"type": "delta", "path": str(lake)}, r"t\d+")
    with made_tables(server, tables):
        for what in ("snapshot", "one change each"):
            seconds, cpu_s = timed(lambda: run(file))
            yield Figure(f"small tables, {tables:,}", what, seconds, "s", cpu_s={"all processes": cpu_s})
            change_each(server, tables)


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    return of_counts("small_tables", __doc__, COUNTS, measure)


def of_counts(
    module: str,
    about: str | None,
    counts: Sequence[int],
    measured: Callable[[Server, Path, int], Iterator[Figure]],
) -> int:
    """The main function of a module that measures numbers of tables: those of the command line, or `counts`.

    Args:
        module: its name.
        about: what it says of itself.
        counts: the default.
        measured: gives the figures of a server, a directory and a number of tables.

    Returns:
        The exit code: 1 if a target is missed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m bench.{module}", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("tables", type=int, nargs="*", default=counts)
    given = parser.parse_args()
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        with closing(server.connect()) as connection:
            data.prepare(connection)
        return show_judged(
            figure for tables in given.tables for figure in measured(server, Path(place), tables)
        )


@contextmanager
def made_tables(server: Server, tables: int) -> Iterator[None]:
    """Tables `t0`, `t1` and so on, of one row each; dropped at the end."""
    with closing(server.connect()) as connection:
        for number in range(tables):
            data.execute(
                connection,
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, v VARCHAR(20))",
                f"INSERT INTO t{number} VALUES (1, 'one')",
            )
    yield
    with closing(server.connect()) as connection:
        data.execute(connection, *(f"DROP TABLE t{number}" for number in range(tables)))


def change_each(server: Server, tables: int) -> None:
    """Update the row of each of them."""
    with closing(server.connect()) as connection:
        data.execute(connection, *(f"UPDATE t{number} SET v = LEFT(UUID(), 20)" for number in range(tables)))


if __name__ == "__main__":
    sys.exit(main())
