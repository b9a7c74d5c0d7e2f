"""The process that forks Spark's Python processes, and what Spark starts in their place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.spark import fork_server
from tailrace.spark.fork_client import VARIABLE
from tailrace.spark.fork_server import ForkServer
from tailrace.spark.interpreter import local_python
from tests.support.processes import command_line

_TOLD = """
import json, os, signal, sys
print(json.dumps({
    "input": sys.stdin.read(),
    "arguments": sys.argv[1:],
    "file": sys.argv[0],
    "name": __name__,
    "module": sys.modules["__main__"].__dict__ is globals(),
    "directory": os.getcwd(),
    "given": os.environ.get("GIVEN"),
    "hash": hash("text"),
    "interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    "children": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
    "imported": "pyspark.worker" in sys.modules,
    "files": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:4],
}))
print("an error", file=sys.stderr)
"""
_WAITS = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(not fork_server.is_available(), reason="forks on Linux alone")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    started = fork_server.start(tmp_path_factory.mktemp("fork"), {}, None)
    wait_until(Path(started.variables[VARIABLE]).exists)
    yield started
    started.end()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "told.py").write_text(_TOLD)
    (tmp_path / "waits.py").write_text(_WAITS)
    return tmp_path


def wait_until(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def started(server: ForkServer, place: Path, *arguments: str) -> subprocess.Popen[str]:
    """What Spark would have started."""
    return subprocess.Popen(
        [local_python(), "-m", *arguments],
        env={**os.environ, **server.variables, "PYTHONPATH": str(place), "GIVEN": "here"},
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def waiting(server: ForkServer, place: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that waits, as Spark knows it; and the fork."""
    process = started(server, place, "waits")
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return False


def test_fork_is_the_process_that_spark_asked_for(server: ForkServer, place: Path) -> None:
    process = started(server, place, "told", "a b", "$HOME")
    output, errors = process.communicate("given", timeout=30)
    found = json.loads(output)
    seed = subprocess.run(
        [sys.executable, "-c", "print(hash('text'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    assert found == {
        "input": "given",
        "arguments": ["a b", "$HOME"],
        "file": str(place / "told.py"),
        "name": "__main__",
        "module": True,
        "directory": str(place),
        "given": "here",
        "hash": int(seed.stdout),
        "interrupts": True,
        "children": True,
        "imported": True,
        "files": [0, 1, 2, 3],  # the last one lists them
    }
    assert errors == "an error\n"
    assert process.returncode == 0


def test_ps_shows_what_a_fork_runs(server: ForkServer, place: Path) -> None:
    with waiting(server, place) as (process, fork):
        assert fork != process.pid
        assert command_line(fork).split() == ["python", "-m", "waits"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_fork_ends_with_the_process_that_spark_ends(
    server: ForkServer, place: Path, number: signal.Signals
) -> None:
    with waiting(server, place) as (process, fork):
        process.send_signal(number)
        process.wait(10)
        wait_until(lambda: not is_there(fork))


def test_spark_sees_the_end_of_a_fork(server: ForkServer, place: Path) -> None:
    with waiting(server, place) as (process, fork), waiting(server, place) as (other, _):
        os.kill(fork, signal.SIGKILL)
        process.wait(10)
        assert other.poll() is None


def test_client_that_dies_while_it_asks_leaves_the_server(server: ForkServer, place: Path) -> None:
    for sent in (b"", b"\0" * 7 + b"\5", b"\0" * 7 + b"\5ab"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server.variables[VARIABLE])
            connection.sendall(sent)
    assert json.loads(started(server, place, "told").communicate("", timeout=30)[0])["imported"]


def test_forks_end_with_the_server_and_then_interpreters_run(place: Path) -> None:
    server = fork_server.start(place, {}, None)
    wait_until(Path(server.variables[VARIABLE]).exists)
    with waiting(server, place) as (process, fork):
        server.end()
        assert server.process.returncode == 0
        assert not is_there(fork)
        process.wait(10)
    found = json.loads(started(server, place, "told", "x").communicate("", timeout=30)[0])
    assert (found["arguments"], found["imported"]) == (["x"], False)
