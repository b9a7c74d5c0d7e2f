"""An earlier commit and this checkout in turns: `python -m bench.beside COMMIT`.

mysql      decoding of a MySQL log in memory, 1000-row transactions
postgres   decoding of a stream of pgoutput in memory, likewise
delta      `tailrace run`: the snapshot of a MySQL table into a Delta table of mode upsert

Each round runs every part once with either version, which takes turns in being first. A figure is CPU time,
not time by the clock, in microseconds a row, so that other work on the machine changes it little: for the
decoders the least of some passes, for `delta` that of the pipeline with its JVM and workers, start included.
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
from collections.abc import Callable
from pathlib import Path

import yaml

from bench import data
from bench.postgres import Bench as PostgresBench
from tailrace_dev.servers import MySqlServer, start_mysql, start_postgres

ROOT = Path(__file__).parents[1]
PARTS = ("mysql", "postgres", "delta")
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
        with start_mysql() as mysql:
            if {"mysql", "delta"} & set(given.only):
                _make_mysql(mysql, given.rows, scratch / "mysql")
            if "postgres" in given.only:
                _make_postgres(given.rows, scratch / "postgres")

            def figure(part: str, sources: Path) -> float:
                if part == "delta":
                    return _delta(mysql, sources, scratch) / given.rows * 1e6
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


def _run(command: list[str], sources: Path, **more: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    env |= {"PYTHONPATH": str(sources), **more}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
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


def _delta(server: MySqlServer, sources: Path, scratch: Path) -> float:
    """CPU seconds of one pipeline."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        file = Path(directory) / "pipeline.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "source": {
                        "url": server.url,
                        "user": server.user,
                        "password": "${env:BENCH_PASSWORD}",
                        "tables": rf"{data.DATABASE}\.items",
                    },
                    "sink": {"type": "delta", "path": f"{directory}/lake", "mode": "upsert"},
                    "pipeline": {"name": "beside", "trigger": "available-now"},
                }
            )
        )
        command = [sys.executable, str(_WORKER), "whole", sys.executable, "-m", "tailrace", "run", str(file)]
        return float(_run(command, sources, BENCH_PASSWORD=server.password))


if __name__ == "__main__":
    main()
