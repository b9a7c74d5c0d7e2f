"""A log that the server keeps for a short time only."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.pipeline.log_warning import SHORT_S, LogWarning, duration


def report(seconds: float | None) -> dict[str, Any]:
    room = {"s": seconds, "limits": {"binlog_expire_logs_seconds": "7200"}}
    return {"sources": [{"latestOffset": {"v": 1, "room": room}}]}


def test_user_is_warned_once_until_the_log_is_long_again() -> None:
    told: list[str] = []
    warning = LogWarning(told.append)
    warning.look({"sources": []})
    warning.look(report(None))
    warning.look(report(SHORT_S + 1))
    assert not told
    warning.look(report(SHORT_S - 1))
    warning.look(report(SHORT_S + 1))
    warning.look(report(60))
    assert len(told) == 1
    assert "is kept for 5 h 59 min more (binlog_expire_logs_seconds = 7200) [TR-4173]" in told[0]
    warning.look(report(2 * SHORT_S + 1))
    warning.look(report(0))
    assert len(told) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_700, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_460, "1 d 1 min"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
