"""Ctrl-C and SIGTERM: the first asks to stop after the running batch, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(asked: Callable[[], None]) -> Iterator[threading.Event]:
    """Gives an event that SIGINT or SIGTERM set. To be entered by the main thread, after Spark's session.

    Args:
        asked: called at the first signal, to tell the user that the stream is stopping.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            # Not sys.exit: threads that wait for Spark would hold the process back.
            os._exit(128 + number)
        stop.set()
        asked()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
