"""How long many tables of one row each take: `python -m bench.small_tables [TABLES...]`.

A whole `tailrace run` with `trigger: available-now` copies them from MySQL into Delta; then a second run
takes a change of each. Start and end of the process count. CPU is that of all its processes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from bench import data
from bench.pipelines import pipeline_file, run
from bench.servers import Server, running
from bench.starts import timed

#: The longest time of a first run, seconds, by the number of tables.
TARGETS_S = {100: 12.0, 1000: 60.0}


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.small_tables", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("tables", type=int, nargs="*", default=list(TARGETS_S))
    given = parser.parse_args()
    met = True
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        for tables in given.tables:
            _make(server, tables)
            lake = Path(place, str(tables))
            sink = {"type": "delta", "path": str(lake)}
            file = pipeline_file(lake / "pipeline.yaml", server, sink, r"t\d+")
            for what, most_s in (("snapshot", TARGETS_S.get(tables)), ("one change each", None)):
                seconds, cpu_s = timed(lambda file=file: run(file))
                is_met = most_s is None or seconds <= most_s
                met = met and is_met
                target = f"   ≤ {most_s:g} s: {'✓' if is_met else '✗'}" if most_s is not None else ""
                sys.stdout.write(
                    f"{tables:6,} tables, {what:16} {seconds:7.2f} s {cpu_s:7.2f} CPU s{target}\n"
                )
                sys.stdout.flush()
                _change(server, tables)
    return 0 if met else 1


def _make(server: Server, tables: int) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {data.DATABASE}")
        cursor.execute(f"CREATE DATABASE {data.DATABASE}")
        for number in range(tables):
            cursor.execute(f"CREATE TABLE {data.DATABASE}.t{number} (id INT PRIMARY KEY, v VARCHAR(20))")
            cursor.execute(f"INSERT INTO {data.DATABASE}.t{number} VALUES (1, 'one')")


def _change(server: Server, tables: int) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(f"UPDATE {data.DATABASE}.t{number} SET v = CONCAT(v, '.')")


if __name__ == "__main__":
    sys.exit(main())
