"""A few start at a time."""

from __future__ import annotations

import threading
import time

from tailrace.control.start_turns import StartTurns


def _taking(turns: StartTurns, who: str, stop: threading.Event) -> tuple[threading.Thread, threading.Event]:
    taken = threading.Event()

    def take() -> None:
        turns.take(who, stop)
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    return thread, taken


def test_third_waits_until_one_has_started() -> None:
    turns, stop = StartTurns(2, 60), threading.Event()
    for who in ("a", "b"):
        turns.take(who, stop)
    thread, taken = _taking(turns, "c", stop)
    assert not taken.wait(0.1)
    turns.end("unknown")
    assert not taken.wait(0.1)
    turns.end("a")
    turns.end("a")  # it ends after it has started
    assert taken.wait(5)
    thread.join()
    thread, taken = _taking(turns, "d", stop)
    assert not taken.wait(0.1)
    stop.set()
    assert taken.wait(5)
    thread.join()


def test_one_that_does_not_start_keeps_nobody_for_long() -> None:
    turns, stop = StartTurns(1, 0.2), threading.Event()
    turns.take("a", stop)
    began = time.monotonic()
    turns.take("b", stop)
    assert 0.15 < time.monotonic() - began < 5
