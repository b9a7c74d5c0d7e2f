"""Which segments of an archive a server's log has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.writing import SegmentWriter
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication.archive.archived import ArchivedLog, ranges
from tailrace.sources.postgres.replication.archive.segment import WalArchive, WalSegment, timelines_text
from tailrace.sources.postgres.replication.timeline import History
from tests.unit.sources.postgres.replication.archive.test_session import segment

ONE = History("s", (), 1, 1000)
#: The standby was promoted at 50.
TWO = History("s", ((1, 50),), 2, 1000)


def add(archive: WalArchive, start: int, end: int, history: History = ONE, **given: object) -> WalSegment:
    last = archive.segments[-1] if archive.segments else None
    writer = SegmentWriter(archive, last.number + 1 if last else 0)
    size, digest = writer.finish(b"")
    values = {
        "number": last.number + 1 if last else 0,
        "token": writer.token,
        "begins": last is None,
        "size": size,
        "digest": digest,
        "previous": last.digest if last else "",
        "timelines": timelines_text(history),
        "start": start,
        "end": end,
    }
    found = WalSegment(**segment(**{**values, **given}))
    archive.append(found)
    return found


def bounds(archive: WalArchive, history: History, lsn: int) -> list[tuple[int, int]]:
    log = ArchivedLog(archive, history, history.position(lsn))
    return [(s.start, s.end) for s in log.segments]


def test_segments_of_a_log_that_the_server_does_not_have_are_not_read(tmp_path: Path) -> None:
    archive = WalArchive(str(tmp_path), None, create=True)
    add(archive, 10, 40)
    add(archive, 40, 60)
    assert bounds(archive, ONE, 20) == [(10, 40), (40, 60)]
    assert bounds(archive, TWO, 20) == [(10, 40)], "behind 50 the promoted server has another log"
    add(archive, 45, 70, TWO, begins=True)
    assert bounds(archive, ONE, 20) == [(10, 40), (40, 60)]
    assert bounds(archive, TWO, 20) == [(10, 40)]
    assert bounds(archive, TWO, 47) == [(45, 70)]
    add(archive, 70, 80, TWO)
    assert bounds(archive, TWO, 70) == [(70, 80)]
    assert bounds(archive, TWO, 80) == [(70, 80)], "a position at the end: nothing is left to read"
    assert bounds(archive, TWO, 81) == []
    assert bounds(archive, History("other", (), 1, 1000), 20) == []
    assert bounds(archive, History("s", (), 1, 50), 20) == [(10, 40)], "the server's log ends at 50"
    assert ranges(archive) == "`0/A` to `0/3C`, `0/2D` to `0/50`"


def test_gap_ends_the_log(tmp_path: Path) -> None:
    archive = WalArchive(str(tmp_path), None, create=True)
    add(archive, 10, 40)
    add(archive, 50, 60, begins=True)
    assert bounds(archive, ONE, 10) == [(10, 40)]
    assert bounds(archive, ONE, 45) == []
    assert ArchivedLog(archive, ONE, PostgresPosition(45, "s")).end is None


def test_archive_of_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    WalArchive(str(tmp_path / "wal"), None, create=True)
    Archive(str(tmp_path / "binlog"), None, create=True)
    for kind, other in ((Archive, "wal"), (WalArchive, "binlog")):
        with pytest.raises(ConfigError, match="another kind of database") as caught:
            kind(str(tmp_path / other), None)
        assert caught.value.code == "TR-8214"
