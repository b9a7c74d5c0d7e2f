"""What is said while a limit holds the reading of tables."""

from __future__ import annotations

import json

from tailrace.pipeline.held_snapshot import HeldSnapshot


def test_each_hold_is_said_once_and_so_is_its_end() -> None:
    told: list[str] = []
    held = HeldSnapshot(told.append)
    busy = {"sources": [{"latestOffset": json.dumps({"held_by": "9 active sessions"})}]}
    busier = {"sources": [{"latestOffset": {"held_by": "10 active sessions"}}]}
    free = {"sources": [{"latestOffset": {"log": {}}}]}
    for report in (free, busy, busier, free, {}, busy):
        held.look(report)
    assert told == [
        "no rows of tables are read for now, only the log: 9 active sessions",
        "rows of tables are read again",
        "no rows of tables are read for now, only the log: 9 active sessions",
    ]
