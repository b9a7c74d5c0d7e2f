"""Reading ahead: a thread makes what its consumer takes next.

Receiving from a server, decoding, encoding (kernels, Arrow) and writing to Spark run without Python's global
lock: a task makes the next rows while Spark takes the last ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def reading_ahead(items: Iterator[T], most: int = 1) -> Iterator[Iterator[T]]:
    """`items`, up to `most` of which are made before they are taken.

    An error of theirs is raised where the item would have come. At the end nothing is being made any more.
    """
    changed = threading.Condition()
    made: deque[T] = deque()
    error: BaseException | None = None
    has_ended = is_left = False

    def make() -> None:
        nonlocal error, has_ended
        try:
            for item in items:
                with changed:
                    made.append(item)
                    changed.notify_all()
                    changed.wait_for(lambda: is_left or len(made) < most)
                    if is_left:
                        break
        except BaseException as caught:  # noqa: BLE001 - it is raised where the items are taken
            error = caught
        with changed:
            has_ended = True
            changed.notify_all()

    def taken() -> Iterator[T]:
        while True:
            with changed:
                changed.wait_for(lambda: made or has_ended)
                if not made:
                    break
                item = made.popleft()
                changed.notify_all()
            yield item
        if error is not None:
            raise error

    thread = threading.Thread(target=make, name="tailrace-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        with changed:
            is_left = True
            changed.notify_all()
        thread.join()
