"""A process that forks the Python processes of a local Spark: planners, the source, the tasks' daemon.

Spark starts each as an interpreter of its own, which imports PySpark, Arrow and the source before it does
anything: half a second of CPU time, and some 40 MB. One process imports them, while the JVM still starts, and
forks the others: they are there at once and share its memory.

    driver ──starts──▶ fork server ──forks──▶ python -m MODULE
    JVM ────starts──▶ client (`fork_client`, then `cat`) ──asks──▶ fork server

Spark knows the client as the process that it has started. Its streams, variables and directory become those
of the fork. The client ends with the fork, and a client that Spark ends has the fork terminated. The fork
server, and all that it has forked, ends with the driver. Where it cannot be reached, the client becomes the
interpreter that Spark asked for.

`python -m tailrace.spark.fork_server SOCKET` listens on a socket in a directory of this user's only.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

from tailrace.spark.daemon import preload
from tailrace.spark.fork_client import HEAD, VARIABLE, read_exactly

#: What forks run, besides what tasks need.
_MODULES = (
    "encodings.idna",
    "numpy.ma",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "tailrace.spark.limited_reader",
)
#: Connections that may wait for a fork.
_BACKLOG = 64
#: How long the process may take to end, seconds.
_PATIENCE_S = 1.0


def is_available() -> bool:
    """Whether processes can be forked so: elsewhere than on Linux, libraries do not expect it."""
    return sys.platform == "linux"


@dataclass(frozen=True)
class ForkServer:
    """The fork server of a JVM.

    Args:
        process: the process.
        variables: for the JVM, whose Python processes find it by them.
    """

    process: subprocess.Popen[bytes]
    variables: Mapping[str, str]

    def end(self) -> None:
        """End it, and its forks."""
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(directory: Path, environment: Mapping[str, str], errors: IO[bytes] | None) -> ForkServer:
    """Start a fork server.

    Args:
        directory: for its socket; of this user only.
        environment: variables of the JVM, besides this process's own.
        errors: what it prints goes there; None: to the terminal.
    """
    path = str(directory / "fork.sock")
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", __name__, path],
        stdin=subprocess.PIPE,  # it ends when this closes
        stdout=subprocess.DEVNULL,
        stderr=errors,
        # as Spark starts its own: hashes of texts are equal in all of them
        env={**os.environ, **environment, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"},
    )
    return ForkServer(process, {VARIABLE: path})


@dataclass(frozen=True)
class _Fork:
    """What a fork is to run: the module and its arguments; and its streams, variables and directory."""

    arguments: list[str]
    variables: dict[str, str]
    directory: str
    streams: list[int]

    def close(self) -> None:
        """Close the streams."""
        for stream in self.streams:
            os.close(stream)

    def run(self) -> None:
        """Run the module as the program of this process."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        self.close()
        mine = set(sys.path)
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.directory)
        entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [entry for entry in entries if entry and entry not in mine]
        _show("python -m " + " ".join(self.arguments))
        sys.argv[1:] = self.arguments[1:]
        sys.modules.pop(self.arguments[0], None)  # it is executed anew, as `__main__`
        runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)


def _show(command: str) -> None:
    """Have `ps` show this command rather than that of the fork server, as far as there is room."""
    with suppress(OSError):
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        begin, end = map(int, stat.rpartition(")")[2].split()[45:47])  # arg_start, arg_end
        shown = command.replace(" ", "\0").encode()[: end - begin - 1]
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(shown.ljust(end - begin, b"\0"))


def _serve(listener: socket.socket) -> _Fork | None:
    """Serve until the driver ends: None; in each fork: what it is to run."""
    forks: dict[int, socket.socket] = {}
    with _ended_children() as ended, selectors.DefaultSelector() as ready:
        for source in (listener, ended, sys.stdin):
            ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    connection = listener.accept()[0]
                    fork = _request(connection)
                    if fork is None:
                        connection.close()
                    elif pid := os.fork():
                        fork.close()
                        forks[pid] = connection
                        ready.register(connection, selectors.EVENT_READ, pid)
                    else:
                        for each in (*forks.values(), connection):
                            each.close()
                        return fork
                elif key.fileobj is ended:
                    ended.recv(4096)
                    for pid in _reaped():
                        with suppress(KeyError):  # its client ended before
                            ready.unregister(forks[pid])
                        forks.pop(pid).close()
                elif key.fileobj is sys.stdin:
                    _end(forks)
                    return None
                elif key.data in forks:  # Spark has ended the client
                    ready.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)


def _request(connection: socket.socket) -> _Fork | None:
    """What a client asks for; None if it has ended before it said so."""
    head, streams, _, _ = socket.recv_fds(connection, HEAD.size, 3)
    try:
        (size,) = HEAD.unpack(head)
        found = marshal.loads(read_exactly(connection, size))  # noqa: S302 - from this user only
    except (EOFError, OSError, struct.error):
        for stream in streams:
            os.close(stream)
        return None
    arguments, variables, directory = found
    return _Fork(arguments, variables, directory, streams)


@contextmanager
def _ended_children() -> Iterator[socket.socket]:
    """A socket that has something to read when a child has ended; in a fork, all is as it was before."""
    read, write = socket.socketpair()
    with read, write:
        write.setblocking(False)
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        yield read
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, handler)


def _end(forks: Collection[int]) -> None:
    """End the forks, and wait: their CPU time counts for this process, and so for the driver."""
    left = set(forks)
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S / 2
    while left and time.monotonic() < deadline:
        left -= set(_reaped())
        time.sleep(0.01)


def _reaped() -> Iterator[int]:
    """The children that have ended."""
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            yield pid


def main() -> None:
    """Import modules, and serve; each fork runs its module."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the JVM, and all that it starts
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(_BACKLOG)
        preload()
        for module in _MODULES:
            with suppress(ImportError):
                import_module(module)
        gc.freeze()
        fork = _serve(listener)
    if fork is not None:
        fork.run()


if __name__ == "__main__":
    main()
