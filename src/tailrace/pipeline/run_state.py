"""What a run of a pipeline notes of itself beside the checkpoint, for `tailrace status`.

    <checkpoint>/_tailrace/run.json    {"v": 1, "host": "...", "pid": 7, "started": "...", "at_ms": ..., ...}

The file says which process runs the pipeline, or ran it last, and what only a running stream knows: up to
which time the targets are complete by the source's clock, and how fast the server's log grows. It is written
after each report of Spark, but at most once a second (on remote file systems: every half minute), and once
more when the run ends. What the targets hold is not in it: the checkpoint says that.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.spark_report import latest
from tailrace.sinks.base import Written
from tailrace.spark.checkpoint import Directory, is_local

_log = logging.getLogger(__name__)
_VERSION = 1
_NAME = "_tailrace/run.json"
#: Shortest time between two writes, by whether the checkpoint is local, seconds.
_EVERY_S = {True: 1.0, False: 30.0}


@dataclass(frozen=True)
class RunState:
    """What a run has noted.

    Args:
        host: the machine.
        pid: the process.
        started: identifies the process among those that had the same number.
        started_ms: when the run began, milliseconds since 1970 UTC, as all times by the driver's clock.
        at_ms: when this was noted.
        ended: how the run ended: `done`, `failed`; None: it has not, or was killed.
        step: what it does.
        restarts: starts after transient errors.
        error: code and message of the newest error, with its time; None: none yet.
        complete_us: the targets hold everything that was committed up to this time, in microseconds since
            1970 UTC by the source's clock; None: not known.
        log_rate: bytes per second by which the server's log grows; None: not known.
        held_by: the limit because of which no rows of tables are read now; "": there is none.
        slowed_by: why rows of tables are read slowly now; "": they are not.
    """

    host: str
    pid: int
    started: str
    started_ms: int
    at_ms: int
    ended: str | None = None
    step: str = ""
    restarts: int = 0
    error: Mapping[str, Any] | None = None
    complete_us: int | None = None
    log_rate: float | None = None
    held_by: str = ""
    slowed_by: str = ""

    @classmethod
    def read(cls, checkpoint: str) -> RunState | None:
        """What the last run with this checkpoint has noted; None: nothing that this version can read."""
        text = Directory(checkpoint).read(_NAME)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError:  # being written, on a file system without renaming
            return None
        if value.get("v") != _VERSION:
            return None
        known = {field.name for field in fields(cls)}
        return cls(**{name: item for name, item in value.items() if name in known})

    @property
    def runs(self) -> bool | None:
        """Whether the process still runs; None: it was on another machine."""
        if self.ended is not None:
            return False
        return _identity(self.pid) == self.started if self.host == platform.node() else None


def forget_run(checkpoint: str) -> None:
    """Forget what the last run has noted: the checkpoint was changed, and it no longer holds."""
    Directory(checkpoint).remove(_NAME)


class RunNotes:
    """Notes what a run does; a `Watcher`, and a context manager round the run.

    Args:
        checkpoint: the checkpoint's directory.
    """

    def __init__(self, checkpoint: str) -> None:
        self._directory = Directory(checkpoint, private=True)
        self._every_s = _EVERY_S[is_local(checkpoint)]
        self._lock = threading.Lock()
        now_ms = _now_ms()
        self._state = RunState(platform.node(), os.getpid(), _identity(os.getpid()), now_ms, now_ms)
        self._written_s = float("-inf")

    def __enter__(self) -> RunNotes:
        self._note(at_once=True)
        self._written_s = float("-inf")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        more = _of_error(error) if isinstance(error, TailraceError) else {}
        self._note(at_once=True, ended="done" if error is None else "failed", **more)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        found = latest(progress)
        known = {
            "complete_us": found.get("complete_us"),
            "log_rate": (found.get("room") or {}).get("rate"),
            "held_by": found.get("held_by", ""),
            "slowed_by": found.get("slowed_by", ""),
        }
        self._note(**{name: value for name, value in known.items() if value is not None})

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:  # noqa: ARG002
        """See `Watcher`."""
        restarts = self._state.restarts + 1
        self._note(at_once=True, restarts=restarts, step="waiting to start again", **_of_error(error))

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""
        self._note(step=step)

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""

    def _note(self, *, at_once: bool = False, **more: Any) -> None:
        with self._lock:
            self._state = RunState(**{**asdict(self._state), **more, "at_ms": _now_ms()})
            now_s = time.monotonic()
            if not at_once and now_s - self._written_s < self._every_s:
                return
            self._written_s = now_s
            try:
                self._directory.write(_NAME, json.dumps({"v": _VERSION, **asdict(self._state)}))
            except (
                OSError
            ) as error:  # a full disk, a store out of reach: the stream itself decides about these
                _log.warning("the state of the run could not be noted: %s", error)


def _of_error(error: TailraceError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message, "at_ms": _now_ms()}}


def _identity(pid: int) -> str:
    """What tells a process from others that had its number; "" if there is no such process."""
    try:
        # the command in parentheses may hold blanks; the 20th field after it is the time of its start
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    except (OSError, IndexError):
        return ""
    try:  # a system without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
