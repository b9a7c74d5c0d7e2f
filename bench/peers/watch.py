"""Runs a peer on a work and watches it: events from the lines it prints, CPU time and memory from outside.

    start ......... first event .......... half the time ............. last event, or the time is up
      |  start-up        |   cold, classes are compiled |   warm                    | ended here

A peer reads until all events of the work came or its seconds since the first event are over, so that slow
ones do a share of the same work: the rate is what counts. Its rate is the better of two, first event to last
and the later half alone, so that a JVM's warming up is not held against it; the start-up counts in neither.
CPU time is that between first and last event.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.peers.peers import Peer
from bench.processes import Sampler, cpu_seconds

#: Longest wait for the first event, and beyond a peer's seconds for its next line.
PATIENCE_S = 120


class PeerFailedError(Exception):
    """A peer printed no events; the text ends with what it said."""


@dataclass(frozen=True)
class PeerRun:
    """What a peer did.

    Args:
        events: rows or row events it counted.
        rate: events per second, from the first to the last.
        warm_rate: the same of the later half of the time.
        wall_s: from the start of its process to the last event.
        cpu_s: CPU seconds between the first event and the last.
        peak_rss_mb: its largest resident set.
        complete: whether all of the work's events came.
    """

    events: int
    rate: float
    warm_rate: float
    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    complete: bool

    @property
    def best_rate(self) -> float:
        """The better rate."""
        return max(self.rate, self.warm_rate)

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds per million events."""
        return 1e6 * self.cpu_s / self.events


@dataclass(frozen=True)
class _Line:
    """One line of a peer, and what its process had used when it came."""

    events: int
    seconds: float
    done: bool
    cpu_s: float


def run(peer: Peer, task: Mapping[str, str], seconds: float) -> PeerRun:
    """Run a peer until the work is done or its share of `seconds` is over since its first event.

    Raises:
        PeerFailedError: it ended or fell silent.
        toolkit.UnavailableError: it cannot run on this machine.
    """
    command = peer.command()
    seconds *= peer.patience
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-peer-") as directory,
        started(command, {**task, **peer.task, "directory": directory}, Path(directory) / "log") as process,
        Sampler([process.pid]) as sampler,
    ):
        begin = time.perf_counter()
        lines = []
        for line in _lines(process, seconds):
            lines.append(line)
            if line.done or line.seconds >= seconds:
                break
        wall_s = time.perf_counter() - begin
        if len(lines) < 2:
            said = (Path(directory) / "log").read_text(encoding="utf-8", errors="replace")
            raise PeerFailedError(f"{peer.name} came to {len(lines)} lines, and said: ...{said[-2000:]}")
    return _outcome(lines, wall_s, max(sampler.usage.peak_rss_mb.values(), default=0.0))


def _outcome(lines: list[_Line], wall_s: float, peak_rss_mb: float) -> PeerRun:
    first, last = lines[0], lines[-1]
    half = next(line for line in lines if line.seconds >= last.seconds / 2)
    half = half if half.seconds < last.seconds else first
    return PeerRun(
        last.events,
        _rate(first, last),
        _rate(half, last),
        wall_s,
        last.cpu_s - first.cpu_s,
        peak_rss_mb,
        last.done,
    )


def _rate(begin: _Line, end: _Line) -> float:
    return (end.events - begin.events) / max(end.seconds - begin.seconds, 1e-9)


def _lines(process: subprocess.Popen[str], seconds: float) -> Iterator[_Line]:
    """The peer's lines; it is killed when it is silent for too long."""
    assert process.stdout is not None
    alarm = threading.Timer(PATIENCE_S + seconds, process.kill)
    alarm.start()
    try:
        for text in process.stdout:
            cpu_s = cpu_seconds(process.pid)
            if text.startswith('{"events"') and cpu_s is not None:
                yield _Line(**json.loads(text), cpu_s=cpu_s)
    finally:
        alarm.cancel()


@contextmanager
def started(command: list[str], task: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A peer's process with its task, killed at the end; what it complains about goes to `log`."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        assert process.stdin is not None
        # its input stays open: a peer ends when it is closed, however we end
        with suppress(BrokenPipeError):
            process.stdin.write("".join(f"{name}={value}\n" for name, value in task.items()) + "\n")
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        with process:
            pass
