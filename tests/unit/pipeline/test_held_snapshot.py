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


def test_slow_reading_is_said_once_and_so_is_its_end() -> None:
    told: list[str] = []
    held = HeldSnapshot(told.append)
    slow = {"sources": [{"latestOffset": {"slowed_by": "others run 4.0 statements"}}]}
    slower = {"sources": [{"latestOffset": {"slowed_by": "others run 9.0 statements"}}]}
    free = {"sources": [{"latestOffset": {"log": {}}}]}
    stopped = {"sources": [{"latestOffset": {"held_by": "9 active sessions"}}]}
    for report in (free, slow, slower, free, slow, stopped):
        held.look(report)
    assert told == [
        "rows of tables are read slowly for now: others run 4.0 statements",
        "rows of tables are no longer read slowly",
        "rows of tables are read slowly for now: others run 4.0 statements",
        "no rows of tables are read for now, only the log: 9 active sessions",
    ]
