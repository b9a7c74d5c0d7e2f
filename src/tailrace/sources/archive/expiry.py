"""Removing what an archive need not keep any longer: whole log files, the oldest first, never the newest."""

from __future__ import annotations

from itertools import groupby

from tailrace.sources.archive.archive import Archive, now_us
from tailrace.sources.archive.bases import bases, remove_bases


def expire(archive: Archive, seconds: float) -> int:
    """Remove the log files whose last segment was written longer ago; return the number of segments.

    A log file stays or goes as a whole, as streams begin at a file's head. The caller has locked the archive.
    """
    limit_us = now_us() - int(seconds * 1_000_000)
    files = [list(segments) for _, segments in groupby(archive.segments, key=lambda s: (s.server, s.file))]
    count = 0
    for segments in files[:-1]:
        if segments[-1].written_us >= limit_us:
            break
        count += len(segments)
    if count:
        archive.forget(count)
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
