"""Times in settings: ISO 8601, or milliseconds since 1970 UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def microseconds(text: str) -> int:
    """Microseconds since 1970 UTC; a time without a zone is one of UTC. Raises ValueError."""
    if text.isdecimal():
        return int(text) * 1000
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)
