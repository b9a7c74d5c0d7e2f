"""Ctrl-C and SIGTERM.

A pipeline: the first stops after the running batch, the second ends the process at once. A command that only
reads: ends at once, because an exception would pass through waiting threads and calls of the JVM, each of
which would print its trace.
"""

from __future__ import annotations

import os
import signal
import sys
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

    with _handled_by(handle):
        yield stop


@contextmanager
def end_on_signals(text: str) -> Iterator[None]:
    """End the process at SIGINT or SIGTERM, with one line.

    Enter it in the main thread, before Spark's session.

    Args:
        text: the line.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
        os._exit(128 + number)

    with _handled_by(handle):
        yield


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
