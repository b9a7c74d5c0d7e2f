"""What people should know while a stream waits; it goes to the log of the process."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def say(text: str) -> None:
    """Write a warning."""
    _log.warning("%s", text)
