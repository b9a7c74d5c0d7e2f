"""The workers of a server: processes that run subscriptions (`control.worker`).

    <data>/subscriptions/<name>/pipeline.yaml    what the worker runs: the subscription's file, paths absolute
                                tailrace.log     its log
                                worker.out       what it printed, since its last start
    <data>/groups/<group>/<server>/<number>/     log and output of a worker that runs several

A worker is the leader of a session of its own, so that it and Spark's processes end together.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tailrace.config import host_guard
from tailrace.control.groups import GROUP_SIZE
from tailrace.control.leases import Lease, Room
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.subscriptions import Subscription
from tailrace.control.worker import environment, start_command
from tailrace.model.paths import file_name
from tailrace.private import make_private_directory, open_private, write_private

#: How long a worker may take to finish its batches once all are to end, seconds.
GRACE_S = 60.0


@dataclass
class Process:
    """A worker.

    Args:
        process: its process.
        channel: our end of what it hears.
        group: of its subscriptions; None: it runs one that is in none.
        home: the directory of its log.
        hosts: that pipeline files name, as far as it knows.
    """

    process: subprocess.Popen[bytes]
    channel: socket.socket
    group: str | None
    home: Path
    hosts: frozenset[str]
    members: dict[int, Running] = field(default_factory=dict)
    is_closed: bool = False
    _unread: bytes = b""

    def send(self, command: Mapping[str, object]) -> None:
        """Tell it something; one that does not listen is killed."""
        try:
            self.channel.sendall(json.dumps(command).encode() + b"\n")
        except OSError:
            self.kill()

    def ended(self) -> Iterator[int]:
        """The subscriptions that it says have ended."""
        with suppress(OSError):  # nothing to read, or it has ended
            while found := self.channel.recv(65536):
                self._unread += found
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            yield json.loads(line)["ended"]

    def close(self) -> None:
        """Let it end: it runs nothing any more."""
        self.is_closed = True
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Kill it with its children, stopped ones too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Running:
    """A subscription that a worker runs.

    Args:
        worker: the worker.
        lease: under which it runs.
        version: of the subscription that it runs.
        asked_s: when it was asked to stop, monotonic seconds; None: it was not.
        is_lost: whether the lease is another's, or has ended.
    """

    worker: Process
    lease: Lease
    version: int
    asked_s: float | None = None
    is_lost: bool = False

    def stop(self) -> None:
        """Ask it to stop after the running batch; kill the worker if all are to stop and take too long."""
        if self.asked_s is None:
            self.asked_s = time.monotonic()
            self.worker.send({"stop": self.lease.subscription_id})
            return
        asked = [member.asked_s for member in self.worker.members.values()]
        if all(each is not None and time.monotonic() - each > GRACE_S for each in asked):
            self.worker.kill()

    def lose(self) -> None:
        """Its lease is lost: end it; if all of the worker are, the worker hangs, or should have ended."""
        self.is_lost = True
        if all(member.is_lost for member in self.worker.members.values()):
            self.worker.kill()
        else:
            self.stop()


@dataclass
class Runner:
    """Starts workers and knows which run.

    Args:
        database: of the control plane.
        directory: the server's data directory.
        server: the server's name.
        group_size: subscriptions of one group that share a worker at most.
        variables: of each worker, beyond the server's own.
    """

    database: ControlDatabase
    directory: Path
    server: str = ""
    group_size: int = GROUP_SIZE
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers: list[Process] = []

    @property
    def running(self) -> dict[int, Running]:
        """What runs, by the subscription's number."""
        return {id_: member for worker in self.workers for id_, member in worker.members.items()}

    def room(self, workers: int, at_once: int) -> Room:
        """What may be claimed.

        Args:
            workers: how many workers there may be.
            at_once: how many may be started now.
        """
        groups: dict[str, int] = {}
        for worker in self.workers:
            if worker.group is not None and not worker.is_closed:
                left = self.group_size - len(worker.members)
                groups[worker.group] = groups.get(worker.group, 0) + left
        new = min(workers - len(self.workers), at_once)
        return Room(new, self.group_size, groups, held=set(self.running))

    def start(self, subscription: Subscription, lease: Lease, spec: str) -> None:
        """Run a subscription, in a worker of its group if one has room.

        Args:
            subscription: what to run.
            lease: the lease that this server has of it.
            spec: its file, with absolute paths.

        Raises:
            OSError: a file cannot be written, or no process be started.
        """
        home = make_private_directory(self.directory / "subscriptions" / subscription.name)
        write_private(home / "pipeline.yaml", spec)
        write_private(home / "worker.out", "")
        worker = self._worker_for(subscription.group) or self._started(subscription.group, home)
        worker.members[subscription.id] = Running(worker, lease, subscription.version)
        hosts = host_guard.names()
        worker.send(start_command(lease, home, hosts - worker.hosts))
        worker.hosts = hosts

    def _worker_for(self, group: str | None) -> Process | None:
        for worker in self.workers:
            has_room = len(worker.members) < self.group_size and not worker.is_closed
            if group is not None and worker.group == group and has_room:
                return worker
        return None

    def _started(self, group: str | None, home: Path) -> Process:
        if group is not None:
            used = {worker.home for worker in self.workers}
            place = self.directory / "groups" / group / file_name(self.server)
            home = next(path for n in count(1) if (path := place / str(n)) not in used)
            make_private_directory(home)
            write_private(home / "worker.out", "")
        hosts = host_guard.names()
        ours, its = socket.socketpair()
        with its, open(home / "worker.out", "ab", opener=open_private) as printed:
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-m", "tailrace.control.worker", str(home / "tailrace.log")],
                cwd=home,
                env={**os.environ, **self.variables, **environment(self.database, group)},
                stdin=its.fileno(),
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ours.setblocking(False)
        worker = Process(process, ours, group, home, hosts)
        self.workers.append(worker)
        return worker

    def ended(self) -> Iterator[tuple[Running, str]]:
        """What has ended since the last call, and how; it is forgotten, as are workers that have ended."""
        for worker in list(self.workers):
            code = worker.process.poll()
            for id_ in worker.ended():
                yield worker.members.pop(id_), "it says so"
            if code is not None:
                worker.kill()  # what is left of its session
                worker.channel.close()
                self.workers.remove(worker)
                for running in worker.members.values():
                    yield running, f"signal {-code}" if code < 0 else f"exit code {code}"
            elif not worker.members and not worker.is_closed:
                worker.close()

    def printed(self, running: Running, most: int = 4_000) -> str:
        """The end of what the worker of a subscription has printed.

        Args:
            running: the subscription.
            most: bytes of it.
        """
        try:
            content = (running.worker.home / "worker.out").read_bytes()
        except FileNotFoundError:
            return ""
        return content[-most:].decode("utf-8", "replace")
