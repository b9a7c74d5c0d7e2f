"""Says when what protects the source holds or slows the reading of tables, and when it goes on."""

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
        self._is_slowed = False

    def look(self, progress: Mapping[str, Any]) -> None:
        """Say it if reading has been held or slowed, or goes on."""
        found = latest(progress)
        held_by, slowed_by = found.get("held_by", ""), found.get("slowed_by", "")
        if held_by and not self._is_held:
            self._tell(f"no rows of tables are read for now, only the log: {held_by}")
        elif self._is_held and not held_by:
            self._tell("rows of tables are read again")
        self._is_held = bool(held_by)
        if slowed_by and not self._is_slowed:
            self._tell(f"rows of tables are read slowly for now: {slowed_by}")
        elif self._is_slowed and not slowed_by and not held_by:
            self._tell("rows of tables are no longer read slowly")
        self._is_slowed = bool(slowed_by)
