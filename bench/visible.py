"""From a change's commit until readers of a Delta table see it: `python -m bench.visible [--seconds N]`.

`tailrace run` keeps 20 Delta tables of mode upsert, of 10,000 rows each; 1,000 rows a second are updated in
them, ten in each transaction, with the time just before its commit. A change is seen when the version of its
table is there (the time of the log's file) whose rows are as new as it, by the statistics of the files. The
first 20 s do not count.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench import data
from bench.pipelines import command, pipeline_file
from bench.processes import Sampler
from bench.report import Figure
from bench.servers import Server, running
from bench.targets import show_judged

_TABLES, _ROWS, _RATE, _EACH = 20, 10_000, 1000, 10
_WARM_UP_S = 20.0


def measure(server: Server, place: Path, seconds: float) -> Iterator[Figure]:
    """The figures, with merges that adapt and with each batch merged; `seconds` of changes count."""
    with closing(server.connect()) as connection:
        for table in map(_name, range(_TABLES)):
            numbers = data.numbers("n, 0, 0", 1, _ROWS)
            data.execute(
                connection,
                f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL, at BIGINT NOT NULL)",
                f"INSERT INTO {table} {numbers}",
            )
    for name, given in (("merges that adapt", {}), ("each batch merged", {"merge-interval": 0})):
        yield from _measured(server, place / name, seconds, name, given)


def _measured(
    server: Server, place: Path, seconds: float, how: str, given: Mapping[str, Any]
) -> Iterator[Figure]:
    lake = place / "lake"
    file = pipeline_file(
        place / "pipeline.yaml",
        server,
        {"type": "delta", "path": str(lake), **given},
        r"visible_\d+",
        trigger="continuous",
    )
    with subprocess.Popen(command(file), stdout=subprocess.DEVNULL) as process:
        while not all(_versions(lake, _name(number)) for number in range(_TABLES)):
            if process.poll() is not None:
                raise RuntimeError(f"`tailrace run` ended with {process.returncode}")
            time.sleep(1)
        with Sampler([process.pid]) as sampler:
            changed = _change(server, _WARM_UP_S + seconds)
        process.send_signal(signal.SIGINT)  # what is pending is merged
    first = min(at for times in changed.values() for at in times) + int(_WARM_UP_S * 1e9)
    lags = sorted(
        seen - at
        for table, times in changed.items()
        for at, seen in _seen(_versions(lake, table), [at for at in times if at >= first])
    )
    section = f"Delta upsert, {_TABLES} tables, {_RATE:,} changes/s"
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        lag_s = lags[int(part * (len(lags) - 1))] / 1e9
        used = dict(sampler.usage.cpu_s) if name == "p50" else {}
        yield Figure(section, f"commit to visible, {name}, {how}", lag_s, "s", cpu_s=used)


def _name(number: int) -> str:
    return f"visible_{number}"


def _change(server: Server, seconds: float) -> dict[str, list[int]]:
    """Update rows for so long; the times of each table's commits, ns since 1970."""
    changed: dict[str, list[int]] = {_name(number): [] for number in range(_TABLES)}
    draw, begun = random.Random(1), time.monotonic()
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {data.DATABASE}")
        for number in range(int(seconds * _RATE / _EACH)):
            time.sleep(max(0.0, begun + number * _EACH / _RATE - time.monotonic()))
            table, ids = _name(number % _TABLES), draw.sample(range(1, _ROWS + 1), _EACH)
            at = time.time_ns()
            listed = ",".join(map(str, ids))
            cursor.execute(f"UPDATE {table} SET n = n + 1, at = {at} WHERE id IN ({listed})")
            connection.commit()
            changed[table].append(at)
    return changed


def _versions(lake: Path, table: str) -> list[tuple[int, int]]:
    """A table's versions: when each came, ns since 1970, and the newest `at` of the rows that it brought."""
    found = []
    for file in sorted((lake / f"{data.DATABASE}.{table}" / "_delta_log").glob("*.json")):
        actions = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        stats = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
        newest = max((one["maxValues"]["at"] for one in stats), default=0)
        found.append((file.stat().st_mtime_ns, int(newest)))
    return found


def _seen(versions: list[tuple[int, int]], times: list[int]) -> Iterator[tuple[int, int]]:
    """When each change was seen."""
    newest = list(accumulate((at for _, at in versions), max))
    for at in times:
        index = bisect_left(newest, at)
        if index < len(versions):  # else it came after the end
            yield at, versions[index][0]


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.visible", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        with closing(server.connect()) as connection:
            data.prepare(connection)
        return show_judged(measure(server, Path(place), given.seconds))


if __name__ == "__main__":
    sys.exit(main())
