"""The process that compares tables for a running pipeline, seen from the pipeline's."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tailrace.verify.worker import Task

#: What the process runs.
_WORKER = "from tailrace.verify.worker import main; main()"


class WorkerProcess:
    """A process that does a task; its events are read by iteration.

    Args:
        task: the task.
    """

    def __init__(self, task: Task) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the pipeline alone
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(pickle.dumps(task))
            self._process.stdin.flush()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    yield json.loads(line)
        self._end()

    def close(self) -> None:
        """End it and its Spark at once, unless it has ended."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
