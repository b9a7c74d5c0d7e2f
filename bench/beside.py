"""An earlier commit and this checkout in turns: `python -m bench.beside COMMIT`.

mysql      decoding of a MySQL log in memory, 1000-row transactions
postgres   decoding of a stream of pgoutput in memory, likewise
delta, changelog, iceberg, parquet, kafka, replica
           `tailrace run`: the snapshot of a MySQL table into that sink, then a change of each of its rows

Each round runs every part once with either version, which takes turns in being first. A figure is CPU time,
not time by the clock, in microseconds a row, so that other work on the machine changes it little: for the
decoders the least of some passes, for a sink that of the pipeline with its JVM and workers, both starts
included.
Printed are each version's least figure, which other work disturbs least, and the median, least and largest
ratio of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import yaml

from bench import data
from bench.postgres import Bench as PostgresBench
from tailrace_dev.servers import MySqlServer, start_kafka, start_mysql, start_postgres

ROOT = Path(__file__).parents[1]
#: The settings of each sink that is measured.
SINKS: Mapping[str, Mapping[str, object]] = {
    "delta": {"type": "delta", "path": "lake", "mode": "upsert"},
    "changelog": {"type": "delta", "path": "lake", "mode": "changelog"},
    "iceberg": {"type": "iceberg", "path": "lake", "mode": "upsert"},
    "parquet": {"type": "parquet", "path": "lake"},
    "kafka": {"type": "kafka", "bootstrap-servers": "BROKER", "topic-prefix": "NAME"},
    "replica": {
        "type": "mysql",
        "url": "URL/copies",
        "user": "USER",
        "password": "${env:BENCH_PASSWORD}",
    },
}
PARTS = ("mysql", "postgres", *SINKS)
_WORKER = Path(__file__).with_name("one_version.py")


def main() -> None:
    """Make the data, run the rounds, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=8, help="(8)")
    parser.add_argument("--rows", type=int, default=300_000, help="of each log and of the table (300,000)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailrace-beside-") as made:
        scratch = Path(made)
        versions = {"before": _sources(given.commit, scratch / "before"), "after": ROOT / "src"}
        with ExitStack() as servers:
            mysql = servers.enter_context(start_mysql())
            if given.only != ["postgres"]:
                _make_mysql(mysql, given.rows, scratch / "mysql")
            broker = servers.enter_context(start_kafka()).bootstrap if "kafka" in given.only else ""
            if "postgres" in given.only:
                _make_postgres(given.rows, scratch / "postgres")

            def figure(part: str, sources: Path) -> float:
                if part in SINKS:
                    with tempfile.TemporaryDirectory(dir=scratch) as directory:
                        pipeline = Path(directory, "pipeline.yaml")
                        pipeline.write_text(_pipeline(part, mysql, broker))
                        return _pipeline_cpu(mysql, pipeline, sources) / (2 * given.rows) * 1e6
                command = [sys.executable, str(_WORKER), part, str(scratch / part)]
                return float(_run(command, sources))

            for part in given.only:
                _compare(part, versions, given.rounds, figure)


def _compare(part: str, versions: dict[str, Path], rounds: int, figure: Callable[[str, Path], float]) -> None:
    for sources in versions.values():
        figure(part, sources)  # compiles kernels, fills caches
    found: dict[str, list[float]] = {name: [] for name in versions}
    for i in range(rounds):
        for name in list(versions)[:: 1 if i % 2 else -1]:
            found[name].append(figure(part, versions[name]))
        print(part, i, {name: round(values[-1], 4) for name, values in found.items()}, flush=True)
    ratios = sorted(after / before for before, after in zip(found["before"], found["after"], strict=True))
    least = {name: round(min(values), 4) for name, values in found.items()}
    print(
        f"{part}: least {least} us of CPU a row, ratio {least['after'] / least['before']:.3f};"
        f" of the {rounds} rounds {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
        flush=True,
    )


def _sources(commit: str, directory: Path) -> Path:
    directory.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory / "src"


def _run(command: list[str], sources: Path, cwd: Path = ROOT, **more: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    env |= {"PYTHONPATH": str(sources), **more}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]


# ---- data ------------------------------------------------------------------------------------------------


def _make_mysql(server: MySqlServer, rows: int, log: Path) -> None:
    """The table `items`, and a file with a log."""
    with server.connect() as connection:
        data.prepare(connection)
        data.fill_items(connection, rows)
        part = data.bulk_log(connection, rows)
    ((base,),) = server.execute("SELECT @@log_bin_basename")
    log.write_bytes((Path(base).parent / part.file).read_bytes()[: part.end])


def _make_postgres(rows: int, log: Path) -> None:
    """A file with the messages of a stream."""
    with start_postgres() as server:
        received = PostgresBench(server, None, 1).recorded_log(rows)
    at, kept = 0, bytearray()
    while at < len(received):
        size = 1 + struct.unpack_from(">I", received, at + 1)[0]
        if received[at : at + 1] == b"d" and received[at + 5 : at + 6] == b"w" and at + size <= len(received):
            kept += received[at : at + size]
        at += size
    log.write_bytes(kept)


# ---- one figure ------------------------------------------------------------------------------------------


def _pipeline(part: str, server: MySqlServer, broker: str) -> str:
    """A pipeline file; everything that is written lies beside it."""
    with server.connect() as connection:
        data.execute(connection, "DROP DATABASE IF EXISTS copies", "CREATE DATABASE copies")
    name = f"beside-{uuid.uuid4().hex[:8]}"  # a broker keeps what a pipeline of a name has written
    known = {"NAME": name, "BROKER": broker, "URL/copies": f"{server.url}/copies", "USER": server.user}
    sink = {name: known.get(str(value), value) for name, value in SINKS[part].items()}
    route = {"source-table": rf"{data.DATABASE}\.items", "sink-table": "copies.items"}
    return yaml.safe_dump(
        {
            "source": {
                "url": server.url,
                "user": server.user,
                "password": "${env:BENCH_PASSWORD}",
                "tables": rf"{data.DATABASE}\.items",
            },
            "route": [route] if part == "replica" else [],
            "sink": sink,
            "pipeline": {"name": name, "trigger": "available-now", "checkpoint": "checkpoint"},
        }
    )


def _pipeline_cpu(server: MySqlServer, pipeline: Path, sources: Path) -> float:
    """CPU seconds of a pipeline that reads a table and then a change of each row."""
    command = [sys.executable, str(_WORKER), "whole", sys.executable, "-m", "tailrace", "run", pipeline.name]

    def run() -> float:
        return float(_run(command, sources, cwd=pipeline.parent, BENCH_PASSWORD=server.password))

    snapshot = run()
    with server.connect() as connection:
        (rows,) = server.execute(f"SELECT MAX(id) FROM {data.DATABASE}.items")[0]
        for first in range(1, rows + 1, 1000):
            where = f"WHERE id BETWEEN {first} AND {first + 999}"
            data.execute(connection, f"UPDATE {data.DATABASE}.items SET {data.UPDATE} {where}")
    return snapshot + run()


if __name__ == "__main__":
    main()
