"""What a manifest says of a segment: a part of a server's log.

A segment begins and ends between two transactions. Segments are numbered from 0; each names the digest of the
one before it, so that none can be missing, exchanged or changed unseen. `Segment` is a part of one file of a
binary log, byte by byte; `tailrace.sources.postgres.replication.archive.segment` has PostgreSQL's.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

#: A log file's first event is behind its magic number.
FILE_HEAD = 4
_LOG_FILE = re.compile(r"[^/\0]+\.[0-9]{1,18}")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class StoredSegment(ABC):
    """What manifests say of every kind of segment.

    Args:
        number: its place in the archive.
        token: tells its file from one that another writer gave the same number.
        begins: whether a section begins with it: the log before it is not, or not wholly, in the archive.
        server: the server whose log it is of.
        transactions: how many it has.
        first_us: when its first transaction was committed, microseconds since 1970 UTC; 0: it has none.
        last_us: when its last one was.
        written_us: when the segment was written, by the archive's clock.
        size: bytes of its file in the archive.
        digest: SHA-256 of that.
        previous: the digest of the segment before it, "" for the first.
    """

    number: int
    token: str
    begins: bool
    server: str
    transactions: int
    first_us: int
    last_us: int
    written_us: int
    size: int
    digest: str
    previous: str

    @property
    def name(self) -> str:
        """Its file in the archive."""
        return segment_name(self.number, self.token)

    @property
    @abstractmethod
    def bounds(self) -> tuple[str, str]:
        """Where it begins and ends, for people."""

    @property
    @abstractmethod
    def unit(self) -> Hashable:
        """Neighbours of the same unit expire together."""

    @abstractmethod
    def continues(self, before: Self) -> bool:
        """Whether the log goes on from the end of `before` to this segment without a gap."""

    @abstractmethod
    def is_behind(self, position: Mapping[str, Any]) -> bool:
        """Whether the log between a position of the same server and the segment is missing, or may be.

        Args:
            position: the position, as JSON; anybody may have written it.
        """

    @abstractmethod
    def _is_possible(self) -> bool:
        """Whether a segment can have such values."""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `to_json` wrote. Raises ValueError: it is something else."""
        types = {field.name: str(field.type) for field in fields(cls)}
        if value.keys() != types.keys() or any(
            type(value[name]).__name__ != kind for name, kind in types.items()
        ):
            raise ValueError("not the fields of a segment")
        found = cls(**value)
        previous_is_digest = not found.previous or _DIGEST.fullmatch(found.previous)
        if not (
            found.number >= 0
            and _DIGEST.fullmatch(found.digest)
            and _TOKEN.fullmatch(found.token)
            and previous_is_digest
            and found._is_possible()
        ):
            raise ValueError("values that no segment has")
        return found


@dataclass(frozen=True, kw_only=True)
class Segment(StoredSegment):
    """A part of one file of a binary log.

    Args:
        file: the log file.
        start: offset of its first event.
        end: offset of its last event's end.
        checksum: whether its events end in a CRC32.
        closed: whether the log file ends with it.
        gtids: the GTIDs in the log before it.
        gtids_after: those in the log up to its end.
    """

    file: str
    start: int
    end: int
    checksum: bool
    closed: bool
    gtids: str
    gtids_after: str

    @property
    def file_number(self) -> int:
        """The number in the log file's name."""
        return int(self.file.rpartition(".")[2])

    @property
    def behind(self) -> tuple[str, int]:
        """Log file and offset at which the log goes on."""
        return (next_file(self.file), FILE_HEAD) if self.closed else (self.file, self.end)

    @property
    def bounds(self) -> tuple[str, str]:
        """Log file and offsets."""
        return f"{self.file}:{self.start}", f"{self.file}:{self.end}"

    @property
    def unit(self) -> Hashable:
        """The log file: streams begin at a file's head."""
        return self.server, self.file

    def continues(self, before: Segment) -> bool:
        """Whether the log goes on from the end of `before` to this segment without a gap."""
        if self.begins or self.server != before.server:
            return False
        if self.file == before.file:
            return not before.closed and self.start == before.end
        return self.start == FILE_HEAD and self.file == next_file(before.file)

    def is_behind(self, position: Mapping[str, Any]) -> bool:
        """Whether the position lies in an earlier log file."""
        number = str(position.get("file")).rpartition(".")[2]
        return not number.isdecimal() or int(number) < self.file_number

    def _is_possible(self) -> bool:
        return 0 <= self.start < self.end < 1 << 62 and _LOG_FILE.fullmatch(self.file) is not None


def segment_name(number: int, token: str) -> str:
    """The file of a segment in the archive."""
    return f"segments/{number:012d}-{token}"


def next_file(file: str) -> str:
    """The log file that a server writes after `file`."""
    base, _, number = file.rpartition(".")
    return f"{base}.{int(number) + 1:0{len(number)}d}"
