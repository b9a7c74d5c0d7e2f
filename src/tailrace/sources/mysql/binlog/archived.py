"""The part of a server's log that an archive holds.

It is the log itself, byte by byte: a position means the same in it. A stream reads it where the server no
longer has the log, and goes on with the server where it has:

    archive   binlog.000003 ... binlog.000017
    server                          binlog.000015 ... binlog.000021     (000001 to 000014 are purged)
    read      <------------------->|--------------------------------->
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError
from tailrace.kernels.memory import SLACK
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.segment import FILE_HEAD, Segment
from tailrace.sources.mysql.binlog.held import number_of
from tailrace.sources.mysql.binlog.logfiles import LogFile, binary_logs
from tailrace.sources.mysql.connection import server_facts
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.block import EventBlock


@dataclass(frozen=True)
class ArchivedLog:
    """What an archive has of one server's log.

    Args:
        archive: the archive.
        segments: of the server, in log order. What was archived again, or is of a log that RESET MASTER has
            ended, is not among them.
    """

    archive: Archive
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, archive: Archive, server: str) -> ArchivedLog:
        """The log of a server in an archive: its newest section, and those before it that lead up to it."""
        found: list[Segment] = []
        for segment in reversed(archive.segments):
            if segment.server != server:
                continue
            if found and (segment.file_number, segment.start) >= (found[-1].file_number, found[-1].start):
                continue
            if found and found[-1].begins and not _leads_to(segment, found[-1]):
                break
            found.append(segment)
        return cls(archive, tuple(reversed(found)))

    def files(self) -> list[LogFile]:
        """The log files that it has from their head on, as far as it has them."""
        found: list[LogFile] = []
        for segment in self.segments:
            if segment.start == FILE_HEAD:
                found.append(LogFile(segment.file, segment.end))
            elif found and found[-1] == LogFile(segment.file, segment.start):
                found[-1] = LogFile(segment.file, segment.end)
        return found

    def following(self, file: str, pos: int) -> Iterator[Segment]:
        """The segments that hold the log from an offset on, up to where the archive ends or has a gap."""
        before: Segment | None = None
        for segment in self.segments:
            if before is None and not (segment.file == file and segment.start <= pos <= segment.end):
                continue
            if before is not None and not segment.continues(before):
                return
            before = segment
            yield segment

    def blocks(self, segment: Segment, pos: int) -> Iterator[EventBlock]:
        """The events of a segment from an offset on, an event boundary.

        Raises:
            StateError: the segment is damaged.
            TransientSourceError: it cannot be read.
        """
        for at, data in self.archive.events(segment, pos):
            buffer = np.empty(len(data) + SLACK, np.uint8)
            buffer[: len(data)] = np.frombuffer(data, np.uint8)
            yield EventBlock(buffer, 0, len(data), segment.file, at, segment.checksum)

    def ranges(self) -> str:
        """What it holds, for errors."""
        found: list[list[Segment]] = []
        for segment in self.segments:
            if found and segment.continues(found[-1][-1]):
                found[-1].append(segment)
            else:
                found.append([segment])
        texts = [f"`{r[0].file}:{r[0].start}` to `{r[-1].file}:{r[-1].end}`" for r in found]
        return ", ".join(texts) or "nothing of this server's log"


def _leads_to(before: Segment, segment: Segment) -> bool:
    """Whether a section begins in the log that an earlier section is of: RESET MASTER may lie between.

    If so, the GTIDs say it; without them nobody knows.
    """
    if not before.gtids_after:
        return False
    if before.behind == (segment.file, segment.start):
        return before.gtids_after == segment.gtids
    return GtidSet.parse(before.gtids_after).is_subset(GtidSet.parse(segment.gtids))


def archive_of(options: SourceOptions) -> Archive | None:
    """The archive that a stream reads; None if it has none."""
    return None if options.archive is None else Archive(options.archive, options.archive_key)


def not_in_archive(log: ArchivedLog, file: str, pos: int, files: list[LogFile]) -> PositionLostError:
    """The error for an offset that neither the server nor the archive has."""
    oldest = f"the oldest file the server has is `{files[0].name}`" if files else "the server has no files"
    return PositionLostError(
        f"neither the server nor the archive holds the binary log from `{file}:{pos}` on",
        f"the archive has {log.ranges()}; {oldest}",
        "let `tailrace archive` catch up if it is behind; if the range is lost: set onPositionLost: refresh "
        "to read every table again",
        code="TR-4120",
    )


def all_logs(options: SourceOptions, connection: BoundedConnection) -> list[LogFile]:
    """The log files that the server or the archive has, oldest first.

    Raises:
        SourceError: as `binary_logs`.
        StateError: the archive is damaged.
    """
    files = binary_logs(connection)
    if (archive := archive_of(options)) is None:
        return files
    log = ArchivedLog.of(archive, server_facts(connection).server_uuid)
    oldest = number_of(files[0].name) if files else 1 << 62
    return [*(file for file in log.files() if number_of(file.name) < oldest), *files]
