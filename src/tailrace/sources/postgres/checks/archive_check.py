"""Whether the archive of the log can be read, is this publication's, and is still written.

It is needed only when the stream's slot is lost: a wrong key or a gap must show before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, StateError, TailraceError
from tailrace.sources.postgres.connection import Connection
from tailrace.sources.postgres.position import lsn_text
from tailrace.sources.postgres.replication import slot
from tailrace.sources.postgres.replication.archive.archived import ranges, require_same
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.preflight import Finding, Severity

_NEEDED = "an archive of this publication's log, without a gap up to what its slot has"
_START = "tailrace archive PIPELINE.YAML"
#: Code of the error for an archive that does not exist: the archiver may be started later.
_NONE_YET = "TR-8207"


def archive_findings(options: SourceOptions, connection: Connection) -> Iterator[Finding]:
    """What is to be said about the archive of `options`; nothing if there is none."""
    if options.archive is None:
        return
    try:
        archive = WalArchive(options.archive, options.archive_key)
        require_same(archive, options)
    except TailraceError as error:
        is_definite = isinstance(error, StateError | ConfigError) and error.code != _NONE_YET
        severity = Severity.ERROR if is_definite else Severity.WARNING
        found = "; ".join(filter(None, (error.message, error.detail)))
        yield Finding("archive", found, _NEEDED, error.hint or "", severity, code=error.code)
        return
    if not archive.segments:
        yield Finding("archive", "it is empty", _NEEDED, _START, Severity.WARNING, code="TR-8213")
        return
    newest = archive.segments[-1]
    upto = datetime.fromtimestamp(newest.written_us // 1_000_000, UTC).isoformat()
    found = f"{ranges(archive)}, written until {upto}"
    its = slot.read(connection, archive.slot)
    if its is None or its.is_lost or (its.confirmed is not None and its.confirmed > newest.end):
        found += f"; replication slot `{archive.slot}` does not hold the log from {lsn_text(newest.end)} on"
        yield Finding("archive", found, _NEEDED, f"{_START} --allow-gap", Severity.WARNING, code="TR-8208")
        return
    yield Finding("archive", found, _NEEDED)
