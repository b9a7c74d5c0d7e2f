"""A pipeline's messages to systemd: whether it is ready, what it does, that it stops.

    READY=1       with Spark's first report: the unit counts as started (`Type=notify`)
    STATUS=...    the line that a terminal would show, for `systemctl status`
    STOPPING=1    a stop was requested; the running batch finishes

Source: sd_notify(3). Without NOTIFY_SOCKET in the environment nothing is sent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.printable import printable
from tailrace.sinks.base import Written


class ServiceManager:
    """Tells systemd; a `Watcher`.

    Args:
        summary: the stream's state in one line.
    """

    def __init__(self, summary: Callable[[], str]) -> None:
        self._summary = summary
        # Spark's processes do not inherit it: they are not the service.
        address = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_ready = False
        self._status = ""

    def stopping(self) -> None:
        """A stop was requested."""
        self._send("STOPPING=1", "STATUS=stopping after the running batch")

    def on_progress(self, progress: Mapping[str, Any]) -> None:  # noqa: ARG002
        """See `Watcher`."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")
        self._tell(self._summary())

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""
        self._tell(f"start {attempt} in {pause_s:.0f} s: {error.message}")

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""
        if not self._is_ready:
            self._tell(step)

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""

    def _tell(self, status: str) -> None:
        if status != self._status:
            self._status = status
            self._send(f"STATUS={printable(status)}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            # systemd may restart, or its queue be full: the next line comes soon
            sending.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)
