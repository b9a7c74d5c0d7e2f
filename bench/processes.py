"""CPU time and memory of process trees, sampled from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Part of a command line -> what the process is. The first that matches counts.
_ROLES = (
    ("python_streaming_source_runner", "source process"),
    # the JVM's command line names the daemon too, as a setting
    ("-m pyspark.daemon", "python worker"),
    ("-m tailrace.spark.daemon", "python worker"),
    ("tailrace.spark.fork_server", "fork server"),
    ("pyspark.", "python helper"),
    ("java", "driver JVM"),
    ("mysqld", "mysqld"),
)


@dataclass
class Usage:
    """What some processes used between two moments.

    Args:
        cpu_s: CPU seconds, user and system, by role.
        peak_rss_mb: the largest resident set a single process of the role had, by role.
    """

    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_rss_mb: dict[str, float] = field(default_factory=dict)

    @property
    def total_cpu_s(self) -> float:
        """CPU seconds of all roles."""
        return sum(self.cpu_s.values())


class Sampler:
    """Samples the processes below `roots` while it is entered; `usage` holds the outcome afterwards.

    A process that lives for less than `period_s` may be missed.
    """

    def __init__(self, roots: list[int], period_s: float = 0.2) -> None:
        self.usage = Usage()
        self._roots = roots
        self._period_s = period_s
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._role: dict[int, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        for pid in descendants(self._roots):
            if (cpu := cpu_seconds(pid)) is not None:
                self._first[pid] = cpu
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        for pid, cpu in self._last.items():
            role = self._role[pid]
            used = cpu - self._first.get(pid, 0.0)
            self.usage.cpu_s[role] = self.usage.cpu_s.get(role, 0.0) + used

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._sample()

    def _sample(self) -> None:
        for pid in descendants(self._roots):
            cpu, rss = cpu_seconds(pid), rss_mb(pid)
            if cpu is None or rss is None:
                continue
            # a forked child takes another command line later on, and a dying process has none
            role = role_of(pid) or self._role.get(pid, "other")
            self._role[pid] = role
            self._last[pid] = cpu
            self.usage.peak_rss_mb[role] = max(self.usage.peak_rss_mb.get(role, 0.0), rss)


def descendants(roots: list[int]) -> Iterator[int]:
    """The processes `roots` and all below them that are there now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children.get(pid, ()))


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process so far, None if it is gone."""
    stat = _stat(pid)
    return None if stat is None else (int(stat[11]) + int(stat[12])) / _TICKS


def tree_cpu_seconds(root: int) -> float:
    """User and system time so far of a process and of all below it, with those of them that have ended."""
    stats = [stat for pid in descendants([root]) if (stat := _stat(pid))]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / _TICKS


def rss_mb(pid: int) -> float | None:
    """Resident memory of a process in MB (10^6), None if it is gone."""
    stat = _stat(pid)
    return None if stat is None else int(stat[21]) * _PAGE / 1e6


def role_of(pid: int) -> str | None:
    """What the process is, by its command line; None for one that is unknown or gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return next((role for part, role in _ROLES if part in command), None)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
