"""Whether the archive of the log can be read, and holds this server's log up to where the server has it.

It is needed only after a purge: a wrong key or a gap must show before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, StateError, TailraceError
from tailrace.sources.mysql.binlog.archived import ArchivedLog, archive_of
from tailrace.sources.mysql.binlog.logfiles import binary_logs
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.preflight import Finding, Severity

_NEEDED = "an archive of this server's log, without a gap up to what the server has"
_START = "tailrace archive PIPELINE.YAML"
#: Code of the error for an archive that does not exist: the archiver may be started later.
_NONE_YET = "TR-8207"


def archive_findings(options: SourceOptions, connection: BoundedConnection, server: str) -> Iterator[Finding]:
    """What is to be said about the archive of `options`; nothing if there is none."""
    try:
        archive = archive_of(options)
    except TailraceError as error:
        is_definite = isinstance(error, StateError | ConfigError) and error.code != _NONE_YET
        severity = Severity.ERROR if is_definite else Severity.WARNING
        found = "; ".join(filter(None, (error.message, error.detail)))
        yield Finding("archive", found, _NEEDED, error.hint or "", severity, code=error.code)
        return
    if archive is None:
        return
    log = ArchivedLog.of(archive, server)
    if not log.segments:
        found = log.ranges()
        yield Finding("archive", found, _NEEDED, _START, Severity.WARNING, code="TR-8213")
        return
    newest = log.segments[-1]
    upto = datetime.fromtimestamp(newest.written_us // 1_000_000, UTC).isoformat()
    found = f"{log.ranges()}, written until {upto}"
    if newest.behind[0] not in {file.name for file in binary_logs(connection)}:
        found += f"; the server no longer has `{newest.behind[0]}`"
        remedy = f"{_START} --allow-gap"
        yield Finding("archive", found, _NEEDED, remedy, Severity.WARNING, code="TR-8208")
        return
    yield Finding("archive", found, _NEEDED)
