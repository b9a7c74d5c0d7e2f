"""Tells a stream's watcher that its source does not answer, from the first attempts on (`spark.trouble`).

One thread looks at all local checkpoints of the process: with one each, fifty idle pipelines woke it up a
hundred times a second. A checkpoint on a remote file system has a thread, as that may keep it waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tailrace.config.model import Pipeline
from tailrace.errors import TailraceError
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.supervisor import Watcher
from tailrace.spark.checkpoint import absolute, is_local
from tailrace.spark.trouble import POLL_S, REMOTE_POLL_S, Troubles, note_trouble

_log = logging.getLogger(__name__)


class _Rounds:
    """A thread that makes rounds while there is something to look at.

    Args:
        pause_s: time between two rounds, seconds.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._looks: list[Callable[[], None]] = []
        self._runs = False

    def add(self, look: Callable[[], None]) -> None:
        """Call `look` in every round."""
        with self._lock:
            self._looks.append(look)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="trouble", daemon=True).start()

    def remove(self, look: Callable[[], None]) -> None:
        """Call it no more, and not now: a round ends first."""
        with self._lock, suppress(ValueError):
            self._looks.remove(look)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._pause_s)
            with self._lock:
                if not self._looks:
                    self._runs = False
                    return
                for look in list(self._looks):
                    try:
                        look()
                    except Exception:  # noqa: BLE001 - a bug about one stream must not end the looks at all others
                        _log.exception("retries of a stream are not looked at any more")
                        self._looks.remove(look)


#: The rounds of this process.
_ROUNDS = _Rounds(POLL_S)


class TroubleWatch:
    """Looks what is tried again; a context manager round the run of a stream.

    Args:
        pipeline: the pipeline, as it is for one source.
        watcher: hears of it.
    """

    def __init__(self, pipeline: Pipeline, watcher: Watcher) -> None:
        path = absolute(pipeline.checkpoint)
        self._troubles = Troubles(path)
        self._rounds = _ROUNDS if is_local(path) else _Rounds(REMOTE_POLL_S)
        self._watcher = watcher
        self._told: TailraceError | None = None

    def __enter__(self) -> Self:
        note_trouble()  # of this process, which checks the source
        self._look(self._troubles.clear)
        self._tells = in_this_log(lambda: self._look(self._tell))
        self._rounds.add(self._tells)
        return self

    def __exit__(self, *_: object) -> None:
        self._rounds.remove(self._tells)

    def _tell(self) -> None:
        found = self._troubles.current()
        if (found and found.json_values()) != (self._told and self._told.json_values()):
            self._watcher.on_trouble(found)
        self._told = found

    def _look(self, look: Callable[[], None]) -> None:
        try:
            look()
        except OSError as error:  # whoever reads the checkpoint says what is wrong with it
            _log.warning("retries of the stream are not known: %s", error.strerror)
