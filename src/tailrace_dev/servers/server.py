"""A server for a test, a demo or a developer: one process with its own data, port and log.

    start() ──► running ──stop()/kill()──► stopped ──start()──► running (same data, same port)
                                              └─remove()─► gone

Its state is in `run/<name>/server.json` of the cache, so that other processes find it (`tailrace dev list`,
`stop`), and the password of its administrator in `password` next to it; only the current user can read them.
A server started from Python belongs to its process: if that dies without stopping it, the next process that
starts or lists servers removes it. A detached one (`tailrace dev start`) stays.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from tailrace.cache import cache_dir
from tailrace.errors import TailraceError
from tailrace.private import make_private_directory, open_private, write_private
from tailrace_dev.servers import account

STATE_VERSION = 1
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60

#: Servers that this process started, by process id: only their parent can see that they have ended.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass
class ServerState:
    """The facts about a server that other processes need; stored as JSON.

    Args:
        name: unique among the servers of this cache.
        product: `mysql`, `mariadb` or `postgres`.
        version: the server's version.
        port: TCP port on 127.0.0.1.
        command: command line that runs it.
        data: its data directory.
        pid: the server's process, None while it is stopped.
        owner: process that it ends with, None for a detached one.
        run_as: user and group id to run it as; None: the current user.
        environment: variables added to our own.
    """

    name: str
    product: str
    version: str
    port: int
    command: list[str]
    data: str
    pid: int | None = None
    owner: int | None = None
    run_as: tuple[int, int] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    v: int = STATE_VERSION


class DevServer(ABC):
    """A real server on 127.0.0.1, controlled by its process."""

    product: ClassVar[str]
    scheme: ClassVar[str]
    #: Its administrator; "" for products without users.
    user: ClassVar[str]
    host: ClassVar[str] = "127.0.0.1"
    #: The TCP ports that it can listen on; None: any.
    ports: ClassVar[range | None] = None
    #: How long it may take to start, seconds.
    start_timeout_s: ClassVar[float] = START_TIMEOUT_S
    #: Requests an orderly shutdown.
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, state: ServerState) -> None:
        self.state = state

    @classmethod
    def require_port(cls, port: int | None) -> None:
        """Refuse a port that servers of this class cannot listen on.

        Raises:
            TailraceError: it is one.
        """
        if port is not None and cls.ports is not None and port not in cls.ports:
            raise TailraceError(
                f"{cls.product} cannot listen on port {port}",
                f"it takes ports from {cls.ports[0]} to {cls.ports[-1]}",
                "give one of these with --port, or omit --port",
                code="TR-9004",
            )

    @property
    def name(self) -> str:
        """Unique name, e.g. `mysql-43121`."""
        return self.state.name

    @property
    def port(self) -> int:
        """TCP port."""
        return self.state.port

    @property
    def version(self) -> str:
        """The server's version, e.g. `9.7.4`."""
        return self.state.version

    @property
    def directory(self) -> Path:
        """Where the server's state and log are."""
        return cache_dir("run") / self.name

    @property
    def data(self) -> Path:
        """The server's data directory."""
        return Path(self.state.data)

    @property
    def private(self) -> Path:
        """The directory of the data directory and of other files of the user that runs the server."""
        return self.data.parent

    @property
    def password_file(self) -> Path:
        """The file with the administrator's password, for this user only; missing without one."""
        return self.directory / "password"

    @property
    def password(self) -> str:
        """The administrator's password; "" for servers without one, such as those of Tailrace 1.0."""
        if not self.password_file.exists():
            return ""
        return self.password_file.read_text(encoding="utf-8")

    @property
    def log(self) -> Path:
        """The server's error log."""
        return self.directory / "log"

    @property
    def url(self) -> str:
        """The server's address in the form of Tailrace's option `url`."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's process exists."""
        return is_running(self.state)

    def _command(self) -> list[str]:
        """The command line for the next start."""
        return self.state.command

    @abstractmethod
    def _probe(self) -> str | None:
        """None when the server accepts connections, else the reason why not."""

    def start(self) -> Self:
        """Start the server on its data and port and wait until it accepts connections.

        Raises:
            TailraceError: it ended, or took longer than `start_timeout_s`; with the last lines of its log.
        """
        if self.running:
            return self
        make_private_directory(self.directory)
        user, group = self.state.run_as or (None, None)
        with open(self.log, "ab", opener=open_private) as log:
            try:
                child = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.data,
                    env={**account.environment(), **self.state.environment},
                    start_new_session=True,
                    user=user,
                    group=group,
                    extra_groups=None if group is None else [],
                )
            except OSError as error:
                raise TailraceError(
                    f"{self.product} server `{self.name}` cannot be started",
                    f"`{self.state.command[0]}`: {error.strerror}",
                    "the user that runs it must be able to read that program",
                    code="TR-9007",
                ) from None
        _children[child.pid] = child
        self.state.pid = child.pid
        self.save()
        reason: str | None = "not tried"

        def ready() -> bool:
            nonlocal reason
            reason = self._probe()
            return reason is None or not self.running

        wait_until(ready, self.start_timeout_s)
        if not self.running:
            self._failed("ended while it started")
        if reason is not None:
            self.kill()
            self._failed(f"accepts no connections after {self.start_timeout_s:g} s: {reason}")
        return self

    def stop(self) -> None:
        """Stop the server in order; its data stays."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End the server by SIGKILL: a crash."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the server in order and start it again."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """End the server and delete all its files."""
        if self.running:
            self.kill()
        delete_files(self.state)

    def save(self) -> None:
        """Write the state to the file that other processes of this user read."""
        make_private_directory(self.directory)
        write_private(self.directory / "server.json", json.dumps(asdict(self.state), indent=1))

    def hand_over(self) -> None:
        """Make the server's user the owner of the private directory; once, before the first start."""
        account.give(self.private, self.state.run_as)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _end(self, how: signal.Signals) -> None:
        pid = self.state.pid
        if pid is not None and self.running:
            os.kill(pid, how)
            if not wait_until(lambda: not self.running, STOP_TIMEOUT_S):
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not self.running, STOP_TIMEOUT_S)
        self.state.pid = None
        if self.directory.exists():
            self.save()

    def _failed(self, what: str) -> None:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        raise TailraceError(
            f"{self.product} server `{self.name}` {what}",
            "its log ends with: " + " | ".join(text.strip().splitlines()[-5:]),
            f"see {self.log}",
            code="TR-9007",
        )


def free_port(ports: range | None = None) -> int:
    """A TCP port of 127.0.0.1 without a listener.

    Args:
        ports: those to choose from; None: any.

    Raises:
        TailraceError: none of them is free.
    """
    for wanted in (0,) if ports is None else random.sample(ports, len(ports)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise TailraceError(
        "no TCP port is free",
        "of any number" if ports is None else f"from {ports[0]} to {ports[-1]}",
        "stop other servers",
        code="TR-9004",
    )


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `condition` holds, checked 20 times a second; False when it did not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def is_running(state: ServerState) -> bool:
    """Whether the server's process exists, and is not a later one with the same number."""
    if state.pid is None:
        return False
    child = _children.get(state.pid)
    if child is not None:
        return child.poll() is None
    process = Path(f"/proc/{state.pid}")
    if Path("/proc/self").exists():
        try:
            command = (process / "cmdline").read_bytes()
            # A process that is ending no longer has a command line, but may still hold its files.
            ending = not command and (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False
        return ending or state.data.encode() in command
    listed = subprocess.run(
        ["ps", "-o", "command=", "-p", str(state.pid)], capture_output=True, text=True, check=False
    )
    return state.data in listed.stdout


def delete_files(state: ServerState) -> None:
    """Delete the data, log and state of a server that has ended."""
    data = Path(state.data)
    shutil.rmtree(data, ignore_errors=True)
    if data.parent.name.startswith(account.PRIVATE_PREFIX):
        shutil.rmtree(data.parent, ignore_errors=True)
    shutil.rmtree(cache_dir("run") / state.name, ignore_errors=True)


def terminate(state: ServerState) -> None:
    """End the process of a server by SIGKILL and wait until it has ended."""
    if state.pid is not None and is_running(state):
        os.kill(state.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(state), STOP_TIMEOUT_S)
