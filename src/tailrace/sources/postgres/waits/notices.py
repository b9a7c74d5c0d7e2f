"""What people should know while a stream waits; it goes to the log of the process."""

from __future__ import annotations

import logging

from tailrace.errors import TailraceError

_log = logging.getLogger(__name__)


def say(text: str) -> None:
    """Write a warning."""
    _log.warning("%s", text)


def error_text(error: TailraceError) -> str:
    """An error's message and detail on one line."""
    return f"{error.message}: {error.detail}" if error.detail else error.message
