"""Which segments of an archive are one server's log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from tailrace.model.table import TableId
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.segment import Segment, next_file
from tailrace.sources.mysql.binlog.archived import ArchivedLog
from tailrace.sources.mysql.binlog.logfiles import LogFile
from tailrace.sources.mysql.binlog.segment_builder import index_of, read_index
from tailrace.sources.mysql.wire.transactions import DdlStatement

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass
class Holder:
    """The segments of an archive."""

    segments: tuple[Segment, ...]


def segment(file: int, start: int, end: int, before: int, after: int, **given: Any) -> Segment:
    """A segment with the transactions `before` + 1 to `after`."""
    sets = [f"{UUID}:1-{n}" if n else "" for n in (before, after)]
    values = {
        "number": 0,
        "token": "0" * 16,
        "begins": False,
        "server": UUID,
        "file": f"log.{file:06d}",
        "checksum": True,
        "closed": True,
        "transactions": 1,
        "first_us": 0,
        "last_us": 0,
        "written_us": 0,
        "size": 1,
        "digest": "0" * 64,
        "previous": "",
    }
    places = {"start": start, "end": end, "gtids": sets[0], "gtids_after": sets[1]}
    return Segment(**{**values, **places, **given})


def log_of(*segments: Segment) -> ArchivedLog:
    return ArchivedLog.of(cast("Archive", Holder(segments)), UUID)


def test_log_is_followed_over_segments_and_files():
    parts = [
        segment(1, 4, 50, 0, 3, begins=True, closed=False),
        segment(1, 50, 90, 3, 5),
        segment(2, 4, 60, 5, 8, closed=False),
    ]
    log = log_of(*parts)
    assert log.files() == [LogFile("log.000001", 90), LogFile("log.000002", 60)]
    assert list(log.following("log.000001", 20)) == parts
    assert list(log.following("log.000001", 60)) == parts[1:]
    assert list(log.following("log.000002", 4)) == parts[2:]
    assert list(log.following("log.000003", 4)) == []
    assert parts[1].behind == ("log.000002", 4)
    assert parts[2].behind == ("log.000002", 60)


def test_gap_ends_what_is_followed():
    parts = [segment(1, 4, 50, 0, 3, begins=True), segment(4, 4, 60, 8, 9, begins=True)]
    log = log_of(*parts)
    assert list(log.following("log.000001", 4)) == parts[:1]
    assert "`log.000001:4` to `log.000001:50`, `log.000004:4` to `log.000004:60`" in log.ranges()


@pytest.mark.parametrize(
    ("before", "after"), [(0, 1), (2, 4), (5, 6)], ids=["began anew", "others", "more than there were"]
)
def test_log_before_reset_master_is_of_another_history(before, after):
    old = [segment(1, 4, 50, 0, 3, begins=True), segment(2, 4, 50, 3, 4)]
    new = segment(3, 4, 50, before, after, begins=True)
    assert log_of(*old, new).segments == (new,)


def test_section_that_was_archived_again_counts_once():
    old = [segment(1, 4, 50, 0, 3, begins=True), segment(2, 4, 50, 3, 4, closed=False)]
    other = segment(7, 4, 90, 0, 9, begins=True, server="other")
    again = segment(2, 4, 80, 3, 9, begins=True)
    assert log_of(*old, other, again).segments == (old[0], again)


def test_log_without_gtids_does_not_lead_to_another_section():
    old = segment(1, 4, 50, 0, 0, begins=True)
    new = segment(2, 4, 50, 0, 0, begins=True)
    assert log_of(old, new).segments == (new,)


def test_next_file_keeps_the_width_of_the_number():
    assert next_file("a.b.000009") == "a.b.000010"
    assert next_file("log.999999") == "log.1000000"


def test_broken_index_is_an_error_and_nothing_worse():
    rows = np.arange(24, dtype=np.int64).reshape(3, 8)
    rows[:, 3] = [0, -1, 0]
    change = DdlStatement("log.000001", 8, 20, "d", "DROP TABLE t", (TableId("d", "t"),))
    good = index_of(rows, [(bytes(16), "")], [change])
    table, ddl = read_index(good, "log.000001")
    assert table.column("start").to_pylist() == rows[:, 0].tolist()
    assert [(c.start, c.text, c.tables) for c in ddl] == [(8, "DROP TABLE t", (TableId("d", "t"),))]
    for at in range(0, len(good), 3):
        with suppress(ValueError):
            read_index(good[:at] + bytes([good[at] ^ 0x85]) + good[at + 1 :], "log.000001")
        with suppress(ValueError):
            read_index(good[:at], "log.000001")
