"""Tells a stream's watcher that its source does not answer, from the first attempts on (`spark.trouble`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Self

from tailrace.config.model import Pipeline
from tailrace.errors import TailraceError
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.supervisor import Watcher
from tailrace.spark.checkpoint import absolute
from tailrace.spark.trouble import Troubles, note_trouble

_log = logging.getLogger(__name__)


class TroubleWatch:
    """Looks what is tried again; a context manager round the run of a stream.

    Args:
        pipeline: the pipeline, as it is for one source.
        watcher: hears of it.
    """

    def __init__(self, pipeline: Pipeline, watcher: Watcher) -> None:
        self._troubles = Troubles(absolute(pipeline.checkpoint))
        self._watcher = watcher
        self._told: TailraceError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=in_this_log(self._watch), name="trouble", daemon=True)

    def __enter__(self) -> Self:
        note_trouble()  # of this process, which checks the source
        self._look(self._troubles.clear)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._troubles.poll_s):
            self._look(self._tell)

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
