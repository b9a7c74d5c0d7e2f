"""What idle pipelines cost on one host: `python -m bench.groups [--registered 1000] [--running 200] ...`.

Registers subscriptions with a server of the control plane, lets some of them run in groups on a MySQL that
nobody writes to, and then takes what all processes use: memory as their proportional sets (processes that
are forked share most of theirs), CPU seconds a minute, and the time until every pipeline is at its log's end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench import processes
from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import SubscriptionFilter
from tailrace_dev.servers import start_mysql

_PASSWORD = "BENCH_PASSWORD"
_DATABASE = "shops"
#: Connections of the source server: each pipeline has one for its log, and others for a short time.
_CONNECTIONS = 2_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, default, text in (
        ("registered", 1000, "subscriptions in the database"),
        ("running", 200, "of them that run"),
        ("group-size", 50, "that share a worker"),
        ("seconds", 60, "how long to measure, once all are idle"),
        ("wait", 1800, "how long they may take to get there, seconds"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    given = parser.parse_args()
    options = {"max_connections": str(_CONNECTIONS)}
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-groups-") as scratch,
        start_mysql(options=options) as mysql,
    ):
        directory = Path(scratch)
        mysql.execute(
            f"CREATE DATABASE {_DATABASE}",
            *(f"CREATE TABLE {_DATABASE}.t{i:03d} (id INT PRIMARY KEY)" for i in range(given.running)),
            *(f"INSERT INTO {_DATABASE}.t{i:03d} VALUES (1)" for i in range(given.running)),
        )
        database = ControlDatabase(f"sqlite:///{directory}/tailrace.db")
        database.prepare()
        _register(database, mysql, given)
        began = time.monotonic()
        workers = -(-given.running // given.group_size)
        with _serving(directory, mysql.password, workers, given.group_size) as (server, log):
            running = _wait(database, given.running, given.wait, log)
            ready_s = time.monotonic() - began
            print(f"{running} at their log's end after {ready_s:.0f} s", flush=True)
            time.sleep(30)  # what has started settles
            roots = [server.pid] if mysql.state.pid is None else [server.pid, mysql.state.pid]
            _measured(roots, given.seconds)


def _register(database: ControlDatabase, mysql: object, given: argparse.Namespace) -> None:
    began = time.monotonic()
    for number in range(given.registered):
        name = f"shop-{number:04d}"
        document = {
            "source": {
                "type": "mysql",
                "hostname": mysql.host,  # type: ignore[attr-defined]
                "port": mysql.port,  # type: ignore[attr-defined]
                "username": mysql.user,  # type: ignore[attr-defined]
                "password": f"${{env:{_PASSWORD}}}",
                "tls-mode": "disabled",
                "tables": rf"{_DATABASE}\.t{number % given.running:03d}",
            },
            "sink": {"type": "parquet", "path": f"lake/{name}"},
            "pipeline": {"group": f"g{number % given.running // given.group_size}", "parallelism": 2},
        }
        with database.begin() as connection:
            subscriptions.create(connection, "bench", name, yaml.safe_dump(document))
            if number >= given.running:
                subscriptions.set_desired(connection, "bench", name, Desired.PAUSE)
    print(f"{given.registered} registered in {time.monotonic() - began:.1f} s")


@contextmanager
def _serving(
    directory: Path, password: str, workers: int, group_size: int
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = directory / "serve.log"
    arguments = ["--data-dir", str(directory), "--capacity", str(workers), "--group-size", str(group_size)]
    arguments += ["--listen", "127.0.0.1:0", "--allow-host", "*", "--allow-env", _PASSWORD]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "serve", *arguments],
            env={**os.environ, _PASSWORD: password},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(database: ControlDatabase, running: int, most_s: float, log: Path) -> int:
    """Wait until they have read all; returns how many have."""
    deadline = time.monotonic() + most_s
    while True:
        found = database.read(subscriptions.count_by_stage)
        ready = found.get(Stage.INCREMENTAL_LOG, 0)
        if ready >= running or (ready and time.monotonic() > deadline):
            return ready
        if found.get(Stage.FAILED) or time.monotonic() > deadline:
            failed = database.read(
                lambda c: subscriptions.select_subscriptions(c, SubscriptionFilter(stage=Stage.FAILED))
            )
            reasons = "".join(f"{one.name}: {one.reason}\n" for one in failed)
            raise SystemExit(f"{found}\n{reasons}{log.read_text()[-4000:]}")
        time.sleep(1)


def _measured(roots: list[int], seconds: float) -> None:
    """Print what the processes below `roots` use, by what they are."""
    before = {
        pid: cpu for pid in processes.descendants(roots) if (cpu := processes.cpu_seconds(pid)) is not None
    }
    time.sleep(seconds)
    number, memory, cpu = Counter[str](), Counter[str](), Counter[str]()
    for pid in processes.descendants(roots):
        role, used, held = _role(pid), processes.cpu_seconds(pid), _proportional_mb(pid)
        if used is None or held is None:
            continue
        number[role] += 1
        memory[role] += held
        cpu[role] += (used - before.get(pid, 0.0)) * 60 / seconds
    print(f"{'':16}{'processes':>10}{'memory, MB':>12}{'CPU s/min':>11}")
    for role in [*sorted(number, key=lambda role: -memory[role]), "all"]:
        sums = [counts.total() if role == "all" else counts[role] for counts in (number, memory, cpu)]
        print(f"{role:16}{sums[0]:10}{sums[1]:12.0f}{sums[2]:11.1f}")


def _role(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
    for part, role in (("tailrace serve", "server"), ("tailrace.control.worker", "worker")):
        if part in command:
            return role
    return processes.role_of(pid) or "other"


def _proportional_mb(pid: int) -> float | None:
    """The memory of a process, shared pages divided among those that share them, MB (10^6)."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return None


if __name__ == "__main__":
    main()
