"""Says when a limit that protects the source holds the reading of tables, and when it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.pipeline.spark_report import latest


class HeldSnapshot:
    """Looks at Spark's reports.

    Args:
        tell: tells the user something.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._is_held = False

    def look(self, progress: Mapping[str, Any]) -> None:
        """Say it if reading has been held, or goes on."""
        held_by = latest(progress).get("held_by", "")
        if held_by and not self._is_held:
            self._tell(f"no rows of tables are read for now, only the log: {held_by}")
        elif self._is_held and not held_by:
            self._tell("rows of tables are read again")
        self._is_held = bool(held_by)
