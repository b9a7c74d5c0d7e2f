"""An action that a thread repeats beside other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeatedly(act: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Repeat an action on a thread of its own until the end of the context.

    Args:
        act: the action.
        pause_s: the pause before each time, seconds.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            act()

    thread = threading.Thread(target=repeat, name="repeating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
