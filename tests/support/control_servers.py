"""`tailrace serve` as processes: started, killed, stopped and continued, with their workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import yaml
from sqlalchemy import select

from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.metadata.tables import streams
from tailrace.control.subscriptions import Subscription
from tests.support.processes import with_children

_PASSWORD = "CONTROL_PASSWORD"
_ALLOWED = ("--allow-host", "*", "--allow-env", "TEST_*")


class ControlServer:
    """A server.

    Args:
        name: its name.
        database: of the control plane.
        directory: its data directory.
        env: variables of its pipelines.
        capacity: see `tailrace serve`.
        more: further arguments.
    """

    def __init__(
        self,
        name: str,
        database: ControlDatabase,
        directory: Path,
        env: dict[str, str],
        *,
        capacity: int = 4,
        more: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        self._env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | env
        self._env["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"
        arguments = ["--database", database.url, "--data-dir", str(directory), "--name", name]
        arguments += ["--capacity", str(capacity), "--listen", "127.0.0.1:0", *_ALLOWED, *more]
        if database.password is not None:
            self._env[_PASSWORD] = database.password.resolve()
            arguments += ["--database-password", f"${{env:{_PASSWORD}}}"]
        self._command = [sys.executable, "-m", "tailrace", "serve", *arguments]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command, env=self._env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def start(self) -> None:
        """Start it again."""
        self.process = self._started()

    def url(self, timeout_s: float = 30) -> str:
        """Where its pages are, once it has said so."""
        deadline = time.monotonic() + timeout_s
        while not (found := re.findall(r"answers at (\S+)", self._log.read_text(errors="replace"))):
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)
        return found[-1]

    def workers(self) -> list[int]:
        """The processes of its workers, with Spark's."""
        return with_children(self.process.pid)[1:]

    def kill(self) -> None:
        """Kill the server alone; its workers find out."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> list[int]:
        """Stop the server and all processes of its workers, as a host that hangs; returns them."""
        found = with_children(self.process.pid)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return found

    def end(self) -> int:
        """Ask it to end, and wait; returns the exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(90)

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """Kill it and its workers."""
        left = with_children(self.process.pid)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Shop:
    """A table that is written to, and the pipeline that copies it."""

    def __init__(self, server: Any, database: str, directory: Path) -> None:
        self.server, self.name, self.directory = server, database, directory
        server.execute(
            f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, n INT)",
            f"INSERT INTO {database}.orders WITH RECURSIVE s AS (SELECT 1 id UNION ALL SELECT id + 1 FROM s "
            "WHERE id < 500) SELECT id, 0 FROM s",
        )

    def spec(self, name: str, **settings: Any) -> str:
        return yaml.safe_dump(
            {
                "source": {
                    "type": "mysql",
                    "hostname": self.server.host,
                    "port": self.server.port,
                    "username": self.server.user,
                    "password": "${env:TEST_PASSWORD}",
                    "tables": rf"{self.name}\.orders",
                },
                "sink": {"type": "delta", "path": str(self.target(name)), "mode": "upsert"},
                "pipeline": {"parallelism": 1, **settings},
            }
        )

    def target(self, name: str) -> Path:
        return self.directory / "lake" / name

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        ended = threading.Event()

        def write() -> None:
            number = 500
            with self.server.connect(autocommit=True) as connection, connection.cursor() as cursor:
                while not ended.wait(0.02):
                    number += 1
                    cursor.execute(f"INSERT INTO {self.name}.orders VALUES ({number}, 0)")
                    cursor.execute(f"UPDATE {self.name}.orders SET n = n + 1 WHERE id % 50 = {number % 50}")
                    cursor.execute(f"DELETE FROM {self.name}.orders WHERE id = {number - 300}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()

    def wait_until_equal(self, name: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            truth = {row[0]: row[1] for row in self.server.execute(f"SELECT id, n FROM {self.name}.orders")}
            table = polars.read_delta(str(self.target(name) / f"{self.name}.orders"))
            held = dict(zip(table["id"], table["n"], strict=True))
            if held == truth:
                assert table.height == len(truth)
                return
            assert time.monotonic() < deadline, f"{len(held)} rows, {len(truth)} at the source"
            time.sleep(0.5)


def thaw(pids: list[int]) -> None:
    """Continue stopped processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def named(database: ControlDatabase, name: str) -> Subscription:
    """The subscription called `name`."""
    return database.read(lambda connection: subscriptions.get(connection, name))


def wait_for_batch(database: ControlDatabase, name: str, lease: int = 1, timeout_s: float = 180) -> None:
    """Wait until a batch was written under this lease or a later one."""
    of = streams.c
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        id_ = named(database, name).id
        query = select(of.done_lease).where(of.subscription_id == id_)
        found = database.read(lambda connection, query=query: connection.execute(query).scalars().all())
        if any(number is not None and number >= lease for number in found):
            return
        time.sleep(0.1)
    raise AssertionError(f"no batch of `{name}` under lease {lease}: {named(database, name)}")


def wait_until_done(database: ControlDatabase, lease: int, timeout_s: float = 30) -> None:
    """Wait until the only stream's last batch is done, and was written under this lease.

    A target shows a batch before the stream notes that it is done.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        (stream,) = database.read(lambda connection: connection.execute(select(streams)).all())
        if (stream.done_batch, stream.done_lease) == (stream.begun_batch, lease):
            return
        assert time.monotonic() < deadline, stream
        time.sleep(0.1)


def wait_for_owner(
    database: ControlDatabase, name: str, lease: int, timeout_s: float = 60
) -> tuple[str, float]:
    """Wait for a lease with this number or a later one; returns its owner and the seconds that it took."""
    began = time.monotonic()
    while time.monotonic() < began + timeout_s:
        found = named(database, name)
        if found.owner is not None and found.lease >= lease:
            return found.owner, time.monotonic() - began
        time.sleep(0.05)
    raise AssertionError(f"nobody took `{name}`: {named(database, name)}")
