"""The workers of a server: processes that run one subscription each (`control.worker`).

    <data>/subscriptions/<name>/pipeline.yaml    what the worker runs: the subscription's file, paths absolute
                                tailrace.log     its log
                                worker.out       what it printed, since its last start

A worker is the leader of a session of its own, so that it and Spark's processes end together.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.control.leases import Lease
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.subscriptions import Subscription
from tailrace.control.worker import environment
from tailrace.private import make_private_directory, open_private, write_private

#: How long a worker may take to finish its batch once it is asked to stop, seconds.
GRACE_S = 60.0


@dataclass
class Running:
    """A worker.

    Args:
        process: its process.
        lease: under which it runs.
        version: of the subscription that it runs.
        asked_s: when it was asked to stop, monotonic seconds; None: it was not.
    """

    process: subprocess.Popen[bytes]
    lease: Lease
    version: int
    asked_s: float | None = None

    def stop(self) -> None:
        """Ask it to stop after the running batch; kill it if that takes too long."""
        if self.asked_s is None:
            self.asked_s = time.monotonic()
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
        elif time.monotonic() - self.asked_s > GRACE_S:
            self.kill()

    def kill(self) -> None:
        """Kill it with its children, stopped ones too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Runner:
    """Starts workers and knows which run.

    Args:
        database: of the control plane.
        directory: the server's data directory.
        variables: of each worker, beyond the server's own.
    """

    database: ControlDatabase
    directory: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers: dict[int, Running] = {}

    def start(self, subscription: Subscription, lease: Lease, spec: str) -> None:
        """Start the worker of a subscription.

        Args:
            subscription: what to run.
            lease: the lease that this server has of it.
            spec: its file, with absolute paths.

        Raises:
            OSError: a file cannot be written, or no process be started.
        """
        home = make_private_directory(self.directory / "subscriptions" / subscription.name)
        write_private(home / "pipeline.yaml", spec)
        with open(home / "worker.out", "wb", opener=open_private) as printed:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a file that was checked
                [
                    *(sys.executable, "-m", "tailrace", "run", str(home / "pipeline.yaml")),
                    *("--log-file", str(home / "tailrace.log")),
                ],
                cwd=home,
                env={**os.environ, **self.variables, **environment(self.database, lease)},
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers[subscription.id] = Running(process, lease, subscription.version)

    def ended(self) -> Iterator[tuple[Running, int]]:
        """The workers that have ended since the last call, each with its exit code; they are forgotten."""
        for id_, running in list(self.workers.items()):
            code = running.process.poll()
            if code is None:
                continue
            running.kill()  # what is left of its session
            assert running.process.stdin is not None
            running.process.stdin.close()
            del self.workers[id_]
            yield running, code

    def printed(self, name: str, most: int = 4_000) -> str:
        """The end of what a subscription's worker has printed.

        Args:
            name: the subscription.
            most: bytes of it.
        """
        try:
            content = (self.directory / "subscriptions" / name / "worker.out").read_bytes()
        except FileNotFoundError:
            return ""
        return content[-most:].decode("utf-8", "replace")
