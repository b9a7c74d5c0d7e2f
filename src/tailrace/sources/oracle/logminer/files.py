"""The redo log files that hold a range of SCNs: archived ones, and online ones for what is not archived."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.errors import PositionLostError, TransientSourceError
from tailrace.sources.oracle.connection import Connection

_ONLINE = """\
SELECT MIN(f.MEMBER), l.SEQUENCE#, l.FIRST_CHANGE#, l.NEXT_CHANGE#, l.STATUS
FROM V$LOG l JOIN V$LOGFILE f ON f.GROUP# = l.GROUP# AND f.TYPE = 'ONLINE'
WHERE l.STATUS IN ('CURRENT', 'ACTIVE', 'INACTIVE')
GROUP BY l.SEQUENCE#, l.FIRST_CHANGE#, l.NEXT_CHANGE#, l.STATUS"""
_ARCHIVED = """\
SELECT MIN(NAME), SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#
FROM V$ARCHIVED_LOG
WHERE NAME IS NOT NULL AND ARCHIVED = 'YES' AND DELETED = 'NO' AND STATUS = 'A' AND STANDBY_DEST = 'NO'
  AND RESETLOGS_CHANGE# = :1 AND NEXT_CHANGE# > :2
GROUP BY SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#"""


@dataclass(frozen=True)
class LogFile:
    """A redo log file.

    Args:
        name: its path on the server.
        sequence: its number.
        first: the first SCN in it.
        next: the first SCN of the file after it; None: it is being written.
        is_archived: whether it stays as it is; an online one is written over.
    """

    name: str
    sequence: int
    first: int
    next: int | None
    is_archived: bool


def read(connection: Connection, since: int, resetlogs: str) -> list[LogFile]:
    """The files from an SCN on, in log order, without a gap.

    Args:
        connection: a session.
        since: the first SCN that is needed.
        resetlogs: SCN of the last RESETLOGS.

    Raises:
        PositionLostError: the log at `since`, or behind it, is not there any more.
    """
    found: dict[int, LogFile] = {}
    # the online ones first: what is archived between the two queries is in both
    for name, sequence, first, next_, status in connection.rows(_ONLINE):
        end = None if status == "CURRENT" else int(next_)
        if end is None or end > since:
            found[int(sequence)] = LogFile(name, int(sequence), int(first), end, is_archived=False)
    for name, sequence, first, next_ in connection.rows(_ARCHIVED, [int(resetlogs), since]):
        found[int(sequence)] = LogFile(name, int(sequence), int(first), int(next_), is_archived=True)
    files = [found[sequence] for sequence in sorted(found)]
    for before, after in itertools.pairwise(files):
        if before.next != after.first:
            raise _lost(since, f"no file holds SCN {before.next}: archived log {before.sequence + 1} is gone")
    if not files or files[0].first > since:
        raise _lost(since, f"the log begins at SCN {files[0].first}" if files else "no file holds it")
    return files


def between(files: Sequence[LogFile], since: int, upto: int | None) -> list[LogFile]:
    """Those that hold SCNs from `since` up to `upto`."""
    return [f for f in files if (f.next is None or f.next > since) and (upto is None or f.first <= upto)]


def require_unchanged(connection: Connection, files: Sequence[LogFile]) -> None:
    """Check that the online files among `files` still have the numbers that they had.

    Raises:
        TransientSourceError: one was written over while it was read; its archived log is there then.
    """
    present = {int(row[1]) for row in connection.rows(_ONLINE)}
    if any(not f.is_archived and f.sequence not in present for f in files):
        raise TransientSourceError(
            "an online redo log was written over while it was read",
            "log switches come faster than the log is read",
            "larger redo logs switch less often: ALTER DATABASE ADD LOGFILE ... SIZE 1G",
            code="TR-4616",
        )


def _lost(since: int, found: str) -> PositionLostError:
    return PositionLostError(
        f"the redo log from SCN {since} on is gone",
        f"{found}; the stream, or a transaction that is open at its position, begins there",
        "keep archived logs longer (RMAN: CONFIGURE ARCHIVELOG DELETION POLICY), or restore them; else set "
        "onPositionLost: refresh, which reads all tables again, or start a new stream",
        code="TR-4616",
    )
