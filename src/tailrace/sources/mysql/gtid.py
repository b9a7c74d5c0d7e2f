"""Sets of GTIDs: text, the server's two binary forms, and arithmetic on intervals.

A GTID is `uuid:number` or, since 8.3, `uuid:tag:number`. A set is kept as one sorted list of half-open
intervals per source (uuid and tag), so that the millions of consecutive numbers of a busy server are one.

MariaDB's is `domain-server-number`. All servers that write to a domain continue each other's numbers, so the
last GTID of a domain stands for all before it: a set is one interval from 1 per domain, and the id of the
server that numbered the last one is kept for the text, `0-1-100,1-2-33`.

Source: MySQL reference manual, "GTID Format and Storage"; `Gtid_set::encode` of the server.
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from tailrace.errors import DecodeError, SourceError
from tailrace.model.gtid_sources import GtidSources

#: The source of a number: the server's uuid as 16 bytes, and the tag ("" for none). MariaDB: domain and
#: server id, 8 bytes each, and DOMAIN.
GtidSource = tuple[bytes, str]
#: In place of a tag: the source is a domain of MariaDB.
DOMAIN = "-"

_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")
_DOMAIN_GTID = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})")
_Intervals = list[tuple[int, int]]


def gtid_text(source: GtidSource, number: int) -> str:
    """One GTID as the server writes it."""
    sid, tag = source
    if tag == DOMAIN:
        domain, server = struct.unpack("<QQ", sid)
        return f"{domain}-{server}-{number}"
    return ":".join([str(uuid.UUID(bytes=sid)), *([tag] if tag else []), str(number)])


def uuid_of(source: GtidSource) -> str:
    """The UUID of the server that a number of MySQL is of."""
    return str(uuid.UUID(bytes=source[0]))


class GtidSet:
    """A set of GTIDs that grows.

    Args:
        intervals: half-open intervals by source, in any order.
    """

    def __init__(self, intervals: Iterable[tuple[GtidSource, int, int]] = ()) -> None:
        self._sources: dict[GtidSource, _Intervals] = {}
        #: The server ids of the domains' last GTIDs.
        self._servers: dict[GtidSource, int] = {}
        for source, start, end in intervals:
            self.add(source, start, end)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """The set that MySQL or MariaDB writes as `text`.

        Raises:
            SourceError: it is not a GTID set.
        """
        found = cls()
        for part in re.split(r"[,\s]+", re.sub(r"\s*([:,-])\s*", r"\1", text.strip())):
            if not part:
                continue
            if match := _DOMAIN_GTID.fullmatch(part):
                domain, server, number = (int(group) for group in match.groups())
                found.add(domain_source(domain, server), 1, number + 1)
                continue
            head, *rest = part.split(":")
            tag = ""
            try:
                sid = uuid.UUID(head).bytes
                if not rest:
                    raise ValueError
                for item in rest:
                    if match := _INTERVAL.fullmatch(item):
                        first, last = int(match[1]), int(match[2] or match[1])
                        if first < 1:
                            raise ValueError
                        found.add((sid, tag), first, last + 1)
                    elif _TAG.fullmatch(item.lower()):
                        tag = item.lower()
                    else:
                        raise ValueError
            except ValueError:
                raise SourceError(
                    "not a set of GTIDs",
                    f"found `{part}`, expected uuid[:tag]:first-last[:first-last...]; "
                    "of MariaDB domain-server-number",
                    "SELECT @@gtid_executed shows the server's; of MariaDB, SELECT @@gtid_binlog_pos",
                    code="TR-4006",
                ) from None
        return found

    def __str__(self) -> str:
        by_sid: dict[bytes, list[str]] = {}
        for sid, tag in sorted(self._sources):
            if tag == DOMAIN:
                last = self._sources[sid, tag][-1][1] - 1
                server = self._servers.get((sid, tag), 0)
                by_sid[sid] = [f"{int.from_bytes(sid[:8], 'little')}-{server}-{last}"]
                continue
            parts = by_sid.setdefault(sid, [str(uuid.UUID(bytes=sid))])
            if tag:
                parts.append(tag)
            for start, end in self._sources[sid, tag]:
                parts.append(str(start) if end == start + 1 else f"{start}-{end - 1}")
        return ",".join(":".join(parts) for parts in by_sid.values())

    def __repr__(self) -> str:
        return f"GtidSet.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GtidSet) and self._sources == other._sources and self._servers == other._servers
        )

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._sources)

    def intervals(self) -> Iterator[tuple[GtidSource, int, int]]:
        """(source, start, end) of each half-open interval, sorted."""
        for source in sorted(self._sources):
            server = self._servers.get(source, 0)
            for start, end in self._sources[source]:
                yield (source[0][:8] + struct.pack("<Q", server), DOMAIN) if server else source, start, end

    def copy(self) -> GtidSet:
        """An independent set with the same GTIDs."""
        other = GtidSet()
        other._sources = {source: list(found) for source, found in self._sources.items()}
        other._servers = dict(self._servers)
        return other

    def add(self, source: GtidSource, start: int, end: int) -> None:
        """Add the numbers `start` to `end` - 1 of `source`."""
        if start >= end:
            return
        if source[1] == DOMAIN and (server := int.from_bytes(source[0][8:], "little")):
            start, source = 1, _domain_of(source)
            if source not in self._sources or end > self._sources[source][-1][1]:
                self._servers[source] = server
        found = self._sources.setdefault(source, [])
        if found and found[-1][1] == start:  # the next transaction of a running server
            found[-1] = (found[-1][0], end)
            return
        low = bisect_right(found, start, key=lambda interval: interval[1])
        if low and found[low - 1][1] == start:
            low -= 1
        high = low
        while high < len(found) and found[high][0] <= end:
            start, end = min(start, found[high][0]), max(end, found[high][1])
            high += 1
        found[low:high] = [(start, end)]

    def add_numbers(self, source: GtidSource, numbers: np.ndarray) -> None:
        """Add the numbers in an int64 array, in any order."""
        if not len(numbers):
            return
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first == len(numbers) - 1 and (np.diff(numbers) == 1).all():  # as one server's log has them
            self.add(source, first, last + 1)
            return
        ordered = np.unique(numbers)
        gaps = np.flatnonzero(np.diff(ordered) != 1)
        starts = ordered[np.concatenate(([0], gaps + 1))]
        ends = ordered[np.concatenate((gaps, [len(ordered) - 1]))] + 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self.add(source, start, end)

    def contains(self, source: GtidSource, number: int) -> bool:
        """Whether the GTID `source:number` is in the set."""
        found = self._sources.get(_domain_of(source) if source[1] == DOMAIN else source, [])
        at = bisect_right(found, number, key=lambda interval: interval[0])
        return at > 0 and number < found[at - 1][1]

    def of(self, sources: GtidSources) -> GtidSet:
        """The GTIDs of some servers; all if `sources` names none."""
        if not sources:
            return self
        found = self.intervals()
        return GtidSet(interval for interval in found if sources.has(uuid_of(interval[0])))

    def union(self, other: GtidSet) -> GtidSet:
        """The GTIDs in either."""
        result = self.copy()
        for source, start, end in other.intervals():
            result.add(source, start, end)
        return result

    def subtract(self, other: GtidSet) -> GtidSet:
        """The GTIDs in this set and not in `other`."""
        result = GtidSet()
        result._servers = dict(self._servers)
        for source, found in self._sources.items():
            holes = other._sources.get(source, [])
            for start, end in found:
                at = start
                for low, high in holes[bisect_right(holes, start, key=lambda i: i[1]) :]:
                    if low >= end:
                        break
                    result.add(source, at, low)
                    at = max(at, high)
                result.add(source, at, end)
        return result

    def is_subset(self, other: GtidSet) -> bool:
        """Whether every GTID of this set is in `other`."""
        return not self.subtract(other)

    def encode(self) -> bytes:
        """The set as COM_BINLOG_DUMP_GTID needs it; the tagged form only where there is a tag."""
        tagged = any(tag for _, tag in self._sources)
        count = len(self._sources)
        parts = [struct.pack("<Q", 1 | count << 8 | 1 << 56 if tagged else count)]
        for sid, tag in sorted(self._sources):
            found = self._sources[sid, tag]
            parts.append(sid)
            if tagged:
                parts.append(bytes((len(tag) << 1,)) + tag.encode())
            parts.append(struct.pack("<Q", len(found)))
            parts += [struct.pack("<QQ", start, end) for start, end in found]
        return b"".join(parts)

    @classmethod
    def decode(cls, body: bytes) -> GtidSet:
        """The set that a PREVIOUS_GTIDS event holds.

        Args:
            body: the event without its header and its checksum.

        Raises:
            DecodeError: it is malformed.
        """
        found = cls()
        try:
            (head,) = struct.unpack_from("<Q", body)
            tagged = head >> 56 == 1
            count = (head >> 8) & 0xFFFFFFFFFFFF if tagged else head
            at = 8
            for _ in range(count):
                sid = body[at : at + 16]
                at += 16
                tag = ""
                if tagged:
                    length = body[at] >> 1  # a tag has at most 32 bytes, so its length is one byte
                    tag = body[at + 1 : at + 1 + length].decode("ascii")
                    at += 1 + length
                (intervals,) = struct.unpack_from("<Q", body, at)
                at += 8
                for start, end in struct.iter_unpack("<QQ", _exactly(body, at, 16 * intervals)):
                    found.add((sid, tag), start, end)
                at += 16 * intervals
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise DecodeError("the log's PREVIOUS_GTIDS event cannot be read", code="TR-5201") from error
        return found


def domain_source(domain: int, server: int) -> GtidSource:
    """The source of a GTID that MariaDB's server `server` numbered in a domain."""
    return struct.pack("<QQ", domain, server), DOMAIN


def _domain_of(source: GtidSource) -> GtidSource:
    """The domain alone, whatever server numbered in it."""
    return source[0][:8] + bytes(8), DOMAIN


def _exactly(body: bytes, at: int, length: int) -> bytes:
    if at + length > len(body):
        raise IndexError
    return body[at : at + length]
