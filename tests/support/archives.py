"""Archives of a server's log, in this process and by `tailrace archive`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

from tailrace.config.options import SourceOptions
from tailrace.config.secret import Secret
from tailrace.failpoints import VARIABLE
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.segment import Segment
from tailrace.sources.archive.writing import ArchivingLimits
from tailrace.sources.mysql.start.archiving import BinlogArchiver
from tailrace.sources.postgres.archiving.archiver import WalArchiver
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tests.support.logged import files, purge


def archive_to_end(
    options: SourceOptions, where: Path | str, key: Secret | None = None, **given: Any
) -> Archive:
    """Archive the log up to its end; keywords are those of `BinlogArchiver` and `ArchivingLimits`."""
    limits = {name: given.pop(name) for name in ("segment_bytes", "seconds", "expire_s") if name in given}
    archive = Archive(str(where), key, create=True)
    with archive.store.locked():
        BinlogArchiver(options, archive, ArchivingLimits(**limits), **given).run(threading.Event(), once=True)
    return archive


def archive_wal_to_end(
    options: SourceOptions, where: Path | str, key: Secret | None = None, **given: Any
) -> WalArchive:
    """Archive PostgreSQL's log up to its end; keywords are those of `WalArchiver` and `ArchivingLimits`."""
    limits = {name: given.pop(name) for name in ("segment_bytes", "seconds", "expire_s") if name in given}
    archive = WalArchive(str(where), key, create=True)
    with archive.store.locked():
        WalArchiver(options, archive, ArchivingLimits(**limits), **given).run(threading.Event(), once=True)
    return archive


def messages_of(data: bytes) -> list[tuple[int, bytes]]:
    """The messages of a stream, each with its LSN; what depends on the time is left out."""
    found, at = [], 0
    while at < len(data):
        size = 1 + int.from_bytes(data[at + 1 : at + 5], "big")
        if data[at + 5 : at + 6] == b"w":
            found.append((int.from_bytes(data[at + 6 : at + 14], "big"), data[at + 30 : at + size]))
        at += size
    assert at == len(data)
    return found


def archive_and_purge(options: SourceOptions, where: Path | str, server: Any, **given: Any) -> str:
    """Archive the log up to its end, then let the server forget it; return the file that it still has."""
    server.execute("FLUSH BINARY LOGS")
    archive_to_end(options, where, **given)
    return purge(server)


def content(archive: Archive, segments: list[Segment]) -> bytes:
    """The bytes of segments, one after the other; none may be missing between them."""
    found = b""
    for before, segment in zip([None, *segments], segments, strict=False):
        assert before is None or (before.file, before.end) == (segment.file, segment.start)
        at = segment.start
        for pos, data in archive.events(segment, segment.start):
            assert pos == at
            at += len(data)
            found += data
        assert at == segment.end
    return found


def require_equal(archive: Archive, server: Any) -> int:
    """Check that the archive has the server's closed log files, byte by byte; return their number."""
    closed = files(server)[:-1]
    for name in closed:
        segments = [segment for segment in archive.segments if segment.file == name]
        assert segments[0].start == 4
        assert segments[-1].closed
        assert content(archive, segments) == (server.data / name).read_bytes()[4:], name
    return len(closed)


class ArchiveProcess:
    """`tailrace archive` as a process of its own.

    Args:
        directory: for the pipeline file.
        server: the server.
        where: the archive.
        arguments: further ones of the command.
        source: further options of the source.
    """

    def __init__(
        self, directory: Path, server: Any, where: Path | str, *arguments: str, **source: Any
    ) -> None:
        self._file = directory / "archive.yaml"
        self._directory, self._kills = directory, 0
        self._arguments = (str(self._file), "--to", str(where), *arguments)
        self._file.write_text(
            yaml.safe_dump(
                {
                    "source": {
                        "type": "mysql",
                        "hostname": server.host,
                        "port": server.port,
                        "username": server.user,
                        "password": "${env:TEST_PASSWORD}",
                        "tables": ".*",
                        **source,
                    },
                    "sink": {"type": "console"},
                    "pipeline": {"checkpoint": str(directory / "checkpoint")},
                }
            )
        )
        self._env = {**os.environ, "TEST_PASSWORD": server.password}

    def start(self, failpoint: str | None = None, *arguments: str) -> subprocess.Popen[str]:
        """Start it, to be killed at a failpoint."""
        env = dict(self._env)
        if failpoint is not None:
            self._kills += 1
            env[VARIABLE] = f"{failpoint}=self@{self._directory / f'kill-{self._kills}'}"
        command = [sys.executable, "-m", "tailrace", "archive", *self._arguments, *arguments]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def once(self, failpoint: str | None = None, *arguments: str) -> tuple[int, str, str]:
        """Archive up to the log's end; return exit code and output."""
        with self.start(failpoint, "--once", *arguments) as process:
            out, err = process.communicate(timeout=120)
        if failpoint is not None:
            assert process.returncode == -signal.SIGKILL, err
        return process.returncode, out, err
