"""An archive of a server's log: segments, and the manifests that say which there are.

    archive.json           its version, id and kind of log, and whether it is encrypted
    manifests/<n>          up to 256 segments each, by the number of the first; the newest is replaced
    segments/<n>-<token>   the events (`sealing`), and the index of their transactions
    bases/<name>...        tables as of a position (`bases`)
    sightings              PostgreSQL: up to where tables are known to have been the same; replaced

A segment counts once a manifest names it: what a crash leaves behind is removed.
Every reader checks the whole chain of the manifests, and a segment's digest before it uses a byte of it.

Nothing in an archive names a path: files are called by numbers. So whoever can write to it can make readers
fail, but not read other files.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from typing import BinaryIO, Generic, TypeVar

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, StateError
from tailrace.failpoints import failpoint
from tailrace.sources.archive.sealing import (
    EVENTS,
    HEADER,
    INDEX,
    SealedReader,
    SealedWriter,
    SealingKey,
    damaged,
    raw_key,
    require_key,
)
from tailrace.sources.archive.segment import Segment, StoredSegment
from tailrace.sources.archive.store import Store, another_writer

S = TypeVar("S", bound=StoredSegment)

#: Kinds of logs; archives of version 1 hold a binary log.
BINLOG, PGOUTPUT = "binlog", "pgoutput"
_VERSIONS = {BINLOG: 1, PGOUTPUT: 2}
_DATABASES = {BINLOG: "MySQL or MariaDB", PGOUTPUT: "PostgreSQL"}
_DESCRIPTION = "archive.json"
_NUMBER = re.compile(r"[0-9]{12}")
_SEGMENT = re.compile(r"[0-9]{12}-[0-9a-f]{16}(\.new)?")
#: Segments of one manifest.
MANIFEST_SEGMENTS = 256
#: No such file is larger.
_MOST_DESCRIPTION, _MOST_MANIFEST = 1 << 16, 64 << 20
_HASHED_BYTES = 1 << 20


class LogArchive(Generic[S]):
    """One archive; readers open it anew to see what was added.

    Args:
        url: its address.
        key: the key, in base64 or hex; None: it is not encrypted.
        create: whether it is created if there is none.

    Raises:
        ConfigError: the key is missing, malformed, or not needed; or it is of another kind of log.
        StateError: there is no archive, or it is damaged.
        TransientSourceError: it cannot be read.
    """

    #: The kind of log, and what manifests say of its segments.
    log: str
    segment: type[S]

    def __init__(self, url: str, key: Secret | None, *, create: bool = False) -> None:
        self.store = Store(url)
        raw = raw_key(key)
        self.id = self._opened(raw, create=create)
        self.key = SealingKey(raw, self.id)
        #: The newest manifest, as it was read or written last.
        self._newest: tuple[int, bytes] | None = None
        self.segments: tuple[S, ...] = tuple(self._read_segments())

    def _opened(self, raw: bytes | None, *, create: bool) -> str:
        text = self.store.read(_DESCRIPTION, _MOST_DESCRIPTION)
        if text is None:
            if not create:
                raise StateError(
                    "there is no archive at the address",
                    f"`{_DESCRIPTION}` is missing there",
                    "tailrace archive PIPELINE.YAML --to URL begins one",
                    code="TR-8207",
                )
            if self.store.names("manifests"):
                raise damaged(_DESCRIPTION, "it is missing")
            id_ = str(uuid.uuid4())
            value = {"v": _VERSIONS[self.log], "id": id_, "sealed": raw is not None}
            if self.log != BINLOG:
                value["log"] = self.log
            self.store.write(_DESCRIPTION, json.dumps(value).encode())
            return id_
        try:
            value = json.loads(text)
            version, id_, is_sealed = int(value["v"]), str(uuid.UUID(value["id"])), value["sealed"] is True
            log = str(value.get("log", BINLOG))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(_DESCRIPTION, "it is not the description of an archive") from None
        if _VERSIONS.get(log) != version:
            raise StateError(
                "the archive is of another version",
                f"it has {version}, this Tailrace reads {max(_VERSIONS.values())} and older ones",
                "use the Tailrace that wrote it",
                code="TR-8207",
            )
        if log != self.log:
            raise ConfigError(
                "the archive is of another kind of database",
                f"it holds the log of {_DATABASES[log]}, the source is {_DATABASES[self.log]}",
                "give the archive of this server",
                code="TR-8214",
            )
        require_key(is_sealed=is_sealed, is_set=raw is not None)
        return id_

    # -- manifests ------------------------------------------------------------------------------------

    def _read_segments(self) -> list[S]:
        while True:
            found: list[S] = []
            names = self._manifests()
            for name in names:
                data = self.store.read(f"manifests/{name}", _MOST_MANIFEST)
                if data is None:  # it has expired meanwhile
                    break
                if name == names[-1]:
                    self._newest = int(name), data
                found += self._of_manifest(name, data)
            else:
                for before, segment in pairwise(found):
                    _require_next(before, segment)
                return found

    def _manifests(self) -> list[str]:
        return [name for name in self.store.names("manifests") if _NUMBER.fullmatch(name)]

    def _of_manifest(self, name: str, data: bytes) -> list[S]:
        where = f"manifests/{name}"
        frames = list(SealedReader(BytesIO(data), where, self.key).frames(_MOST_MANIFEST))
        try:
            (frame,) = frames
            found = [self.segment.from_json(value) for value in json.loads(frame.data or b"")]
            if frame.kind != HEADER or not found or len(found) > MANIFEST_SEGMENTS:
                raise ValueError
        except (ValueError, TypeError, AttributeError):
            raise damaged(where, "it does not list segments") from None
        return found

    def append(self, segment: S) -> None:
        """Make a written segment count.

        Raises:
            StateError: another writer has added one.
        """
        self._require_unchanged()
        first = self._newest[0] if self._newest is not None else segment.number
        listed = [s for s in self.segments if s.number >= first]
        if len(listed) >= MANIFEST_SEGMENTS:
            first, listed = segment.number, []
        self._write_manifest(first, [*listed, segment])
        self.segments = (*self.segments, segment)

    def forget(self, count: int) -> None:
        """Remove the oldest segments from the manifests, then their files.

        A file whose manifest is gone counts no longer; what a crash leaves is removed by the next call.
        """
        self._require_unchanged()
        kept = self.segments[count:]
        oldest = kept[0].number
        manifests = [int(name) for name in self._manifests()]
        for number, following in zip(manifests, [*manifests[1:], kept[-1].number + 1], strict=True):
            if following <= oldest:
                self.store.remove(f"manifests/{number:012d}")
            elif number < oldest:
                # under the same name, as readers may be listing it
                self._write_manifest(number, [s for s in kept if s.number < following])
        self.segments = kept
        failpoint("archive.expired")
        for name in self.store.names("segments"):
            if _SEGMENT.fullmatch(name) and int(name.partition("-")[0]) < oldest:
                self.store.remove(f"segments/{name}")

    def remove_unfinished(self) -> None:
        """Remove what writers that crashed have left; the caller has locked the archive.

        Object stores have no lock: it stays there until it would have expired.
        """
        if self.store.is_local:
            known = {segment.name for segment in self.segments}
            for name in self.store.names("segments"):
                if _SEGMENT.fullmatch(name) and f"segments/{name}" not in known:
                    self.store.remove(f"segments/{name}")

    def _write_manifest(self, first: int, segments: list[S]) -> None:
        name = f"manifests/{first:012d}"
        text = json.dumps([segment.to_json() for segment in segments]).encode()
        buffer = BytesIO()
        writer = SealedWriter(buffer, name, self.key)
        writer.write(HEADER, text)
        writer.end()
        data = buffer.getvalue()
        self.store.write(name, data)
        if self._newest is None or first >= self._newest[0]:
            self._newest = first, data

    def _require_unchanged(self) -> None:
        names = self._manifests()
        newest = None
        if names and (data := self.store.read(f"manifests/{names[-1]}", _MOST_MANIFEST)) is not None:
            newest = int(names[-1]), data
        if newest != self._newest:
            raise another_writer()

    # -- segments -------------------------------------------------------------------------------------

    @contextmanager
    def verified(self, segment: StoredSegment) -> Iterator[BinaryIO]:
        """The file of a segment, once its digest is right.

        Raises:
            StateError: it is damaged or missing.
        """
        try:
            with self.store.reading(segment.name) as file:
                digest, size = hashlib.sha256(), 0
                while part := file.read(_HASHED_BYTES):
                    digest.update(part)
                    size += len(part)
                if (size, digest.hexdigest()) != (segment.size, segment.digest):
                    raise damaged(segment.name, "its digest is not the one in the manifest")
                file.seek(0)
                yield file
        except FileNotFoundError:
            raise damaged(segment.name, "it is missing") from None

    def _content(self, segment: StoredSegment, start: int, end: int, pos: int) -> Iterator[tuple[int, bytes]]:
        """The log in a segment, from an offset on, in pieces of whole events, each with its offset.

        Args:
            segment: the segment.
            start: offset of its first byte.
            end: offset of its last byte's end.
            pos: an offset between two events.
        """
        at = start

        def skips(kind: int, size: int) -> bool:
            return kind != EVENTS or at + size <= pos

        with self.verified(segment) as file:
            reader = SealedReader(file, segment.name, self.key)
            for frame in reader.frames(skip=skips):
                if frame.kind != EVENTS:
                    continue
                before, at = at, at + frame.size
                if at > end:
                    break
                if frame.data is not None:
                    cut = max(pos - before, 0)
                    yield before + cut, frame.data[cut:]
        if at != end:
            raise damaged(segment.name, "its events do not end where the manifest says")

    def index(self, segment: S) -> bytes:
        """The index of a segment's transactions, as its writer gave it.

        Only the index is read and checked, by its own digest: it is small.
        """
        try:
            with self.store.reading(segment.name) as file:
                reader = SealedReader(file, segment.name, self.key)
                for frame in reader.frames(skip=lambda kind, _: kind != INDEX):
                    if frame.data is not None:
                        return frame.data
        except FileNotFoundError:
            raise damaged(segment.name, "it is missing") from None
        raise damaged(segment.name, "it has no index")


class Archive(LogArchive[Segment]):
    """An archive of a binary log: see `LogArchive`."""

    log, segment = BINLOG, Segment

    def events(self, segment: Segment, pos: int) -> Iterator[tuple[int, bytes]]:
        """The events of a segment from an offset of its log file on, in pieces of whole events.

        Args:
            segment: the segment.
            pos: an offset between two events.

        Returns:
            For each piece its offset and its bytes.

        Raises:
            StateError: the segment is damaged.
        """
        return self._content(segment, segment.start, segment.end, pos)


def _require_next(before: StoredSegment, segment: StoredSegment) -> None:
    """Check that a segment follows the one before it."""
    if segment.number != before.number + 1:
        why = f"number {segment.number} follows {before.number}: segments between them are missing"
    elif segment.previous != before.digest:
        why = "it was not written behind the one before it"
    elif not segment.begins and not segment.continues(before):
        why = f"it begins at `{segment.bounds[0]}`, behind `{before.bounds[1]}`"
    else:
        return
    raise damaged(segment.name, why)


def now_us() -> int:
    """This machine's clock, microseconds since 1970 UTC."""
    return time.time_ns() // 1000
