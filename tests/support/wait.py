"""Waiting for a condition: the only loop in tests that polls."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], timeout_s: float = 30, what: str | Callable[[], str] = "the condition"
) -> T:
    """The first true value that `condition` returns.

    Args:
        condition: polled a hundred times a second.
        timeout_s: time limit, in seconds.
        what: describes the condition, for the failure; a function is called then.

    Raises:
        AssertionError: it returned no true value in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {timeout_s} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return found


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections at a port, of this machine by default."""
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0
