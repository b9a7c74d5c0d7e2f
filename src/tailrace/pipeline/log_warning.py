"""Warns while the server keeps the log that a stream needs for a few more hours only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.errors import coded
from tailrace.pipeline.spark_report import latest
from tailrace.sources.preflight import Finding, Severity

#: The log is short below this time; it is long again above twice the time.
SHORT_S = 6 * 3600.0


class LogWarning:
    """Looks at Spark's reports.

    Args:
        tell: tells the user something.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = False

    def look(self, progress: Mapping[str, Any]) -> None:
        """Warn if the log has become short."""
        room = latest(progress).get("room") or {}
        seconds = room.get("s")
        if seconds is None or seconds > 2 * SHORT_S:
            self._told = False
        elif seconds < SHORT_S and not self._told:
            self._told = True
            found = short_log(seconds, room.get("limits") or {})
            needed = f"It needs {found.needed}: {found.remedy}"
            self._tell(f"{found.check} {coded(found.found, found.code)}. {needed}")


def short_log(seconds: float, limits: Mapping[str, str]) -> Finding:
    """The warning.

    Args:
        seconds: how long the server keeps the log.
        limits: the settings that limit it.
    """
    found = f"is kept for {duration(seconds)} more"
    return Finding(
        "the log that the pipeline needs",
        found + (f" ({', '.join(f'{name} = {value}' for name, value in limits.items())})" if limits else ""),
        "more time than the pipeline may ever be stopped or behind: afterwards every table is read again",
        "raise the limit",
        Severity.WARNING,
        code="TR-4173",
    )


def duration(seconds: float) -> str:
    """A time span for people, in its two largest units."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if n]
    return " ".join(parts[:2])
