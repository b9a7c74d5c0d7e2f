"""Removing what an archive need not keep any longer: the oldest first, whole log files, never the newest."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tailrace.sources.archive.archive import Archive, LogArchive, now_us
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
        if isinstance(archive, Archive):
            _forget_bases(archive)
    return count


def _forget_bases(archive: Archive) -> None:
    """Remove the bases behind which the archive no longer has the whole log."""
    oldest: dict[str, int] = {}
    for segment in archive.segments:
        oldest.setdefault(segment.server, segment.file_number)
    useless = set()
    for base in bases(archive):
        server, file = str(base.position.get("server")), str(base.position.get("file"))
        number = file.rpartition(".")[2]
        if server not in oldest or not number.isdecimal() or int(number) < oldest[server]:
            useless.add(base.number)
    if useless:
        remove_bases(archive, useless)
