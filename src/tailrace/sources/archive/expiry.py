"""Removing what an archive need not keep any longer: the oldest first, whole log files, never the newest."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tailrace.sources.archive.archive import LogArchive, now_us
from tailrace.sources.archive.bases import bases, remove_bases


def expire(archive: LogArchive[Any], seconds: float) -> int:
    """Remove the segments that were written longer ago; return their number.

    A log file stays or goes as a whole, as streams begin at a file's head. The caller has locked the archive.
    """
    limit_us = now_us() - int(seconds * 1_000_000)
    units = [list(segments) for _, segments in groupby(archive.segments, key=lambda s: s.unit)]
    count = 0
    for segments in units[:-1]:
        if segments[-1].written_us >= limit_us:
            break
        count += len(segments)
    if count:
        archive.forget(count)
        _forget_bases(archive)
    return count


def _forget_bases(archive: LogArchive[Any]) -> None:
    """Remove the bases behind which the archive no longer has the whole log."""
    oldest: dict[str, Any] = {}
    for segment in archive.segments:
        oldest.setdefault(segment.server, segment)
    useless = set()
    for base in bases(archive):
        first = oldest.get(str(base.position.get("server")))
        if first is None or first.is_behind(base.position):
            useless.add(base.number)
    if useless:
        remove_bases(archive, useless)
