"""The demo's processes: pipeline, writers, verifications. They are ended by id, never by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace_dev.servers.server import wait_until

#: How long a process may take to end on a signal, in seconds.
STOP_TIMEOUT_S = 30.0


class Process:
    """A Python process of ours with all its child processes.

    It has its own session: Ctrl-C in the terminal does not reach it, only the demo's signals do.

    Args:
        arguments: the interpreter's arguments.
        output: file to append its output to.
    """

    def __init__(self, arguments: Sequence[str], output: Path) -> None:
        self.output = output
        # with this variable every Python worker of Spark would compile all its modules anew
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with output.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**environment, "COLUMNS": "110"},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def require_running(self, title: str) -> None:
        """Raise TailraceError, with the end of its output, if the process has ended."""
        if self.exit_code is not None:
            lines = self.output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise TailraceError(
                f"{title} ended with exit code {self.exit_code}",
                "its output ends with:\n" + "\n".join(lines[-12:]),
                f"see {self.output}",
                code="TR-9002",
            )

    def stop(self, number: signal.Signals) -> bool:
        """Send a signal; kill the process if it does not end in time. Returns whether it ended in order."""
        if self.exit_code is None:
            self._process.send_signal(number)
            if not wait_until(lambda: self.exit_code is not None, STOP_TIMEOUT_S):
                self.kill()
        return self.exit_code == 0

    def kill(self) -> int:
        """SIGKILL the process and all its descendants at once; returns how many processes those were."""
        below = descendants(self.pid)
        for pid in (self.pid, *below):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        return 1 + len(below)


def descendants(pid: int) -> list[int]:
    """The child processes of `pid` and all theirs, parents first."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found.extend(below)
        todo.extend(below)
    return found


def _parents() -> list[tuple[int, int]]:
    """(process, its parent) of every process."""
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-axo", "pid=,ppid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return [(int(a), int(b)) for a, b in (line.split() for line in listed.stdout.splitlines())]
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                stat = (directory / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # ended in the meantime
            found.append((int(directory.name), int(stat.rpartition(")")[2].split()[1])))
    return found
