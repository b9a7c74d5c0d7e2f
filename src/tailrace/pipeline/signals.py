"""Ctrl-C and SIGTERM: the first stops after the running batch, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(on_stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set. Enter it in the main thread, after Spark's session.

    Args:
        on_stop: called at the first signal, to tell the user that the stream is stopping.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            # Not sys.exit: threads that wait for Spark would keep the process alive.
            os._exit(128 + number)
        stop.set()
        on_stop()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
