"""The thread behind a `Log`: it reads the log ahead of the batches; what both databases' followers share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from tailrace.errors import StateError, TailraceError


class LogFollower(ABC):
    """A thread that starts when it is first needed, and what ended it. Safe to use from several threads.

    `_changed` guards all state; whatever changes the state notifies it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failure: TailraceError | None = None
        self._closed = False

    @abstractmethod
    def _follow(self) -> None:
        """Read the log until the follower is closed; runs in the thread."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Wake the thread if it waits for the server."""

    def _check(self) -> None:
        """Start the thread, or raise what ended it. The lock is held."""
        self._require_open()
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tailrace-log", daemon=True)
            self._thread.start()

    def _is_closed(self) -> bool:
        return self._closed

    def _require_open(self) -> None:
        if self._closed:
            raise StateError("the log is no longer followed", "the follower was closed", code="TR-8004")

    def _run(self) -> None:
        try:
            self._follow()
        except TailraceError as error:
            self._fail(error)
        finally:
            if self._failure is None and not self._closed:
                self._fail(
                    StateError(
                        "the log reader thread crashed",
                        "this is a bug; the traceback is in the log file",
                        code="TR-8004",
                    )
                )

    def _fail(self, error: TailraceError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def close(self) -> None:
        """Stop following."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        self._interrupt()
        if thread is not None:
            thread.join(10)
