"""The start of a new stream in an archive: at its begin, at an LSN or at a time."""

from __future__ import annotations

from tailrace.config.moment import microseconds
from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.sources.postgres.connection import Connection, connect, retrying
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn
from tailrace.sources.postgres.replication import slot, timeline
from tailrace.sources.postgres.replication.archive.archived import ensure_slot, require_same
from tailrace.sources.postgres.replication.archive.segment import WalArchive, WalSegment, time_text
from tailrace.sources.postgres.replication.timeline import History


def archived_start(options: SourceOptions) -> PostgresPosition | None:
    """The position in the archive at which a new stream starts; its slot is made, as a copy of the archive's.

    None: the option names none, or the archive does not have it and the stream's slot may.

    Raises:
        ConfigError: the archive does not have the time; it is of another database or publication.
        PositionLostError: no slot leads on from the archive's end.
        StateError: the archive is damaged.
        TailraceError: the server refuses, or cannot be reached.
    """
    kind, _, value = options.starting_position.partition(":")
    if options.archive is None or kind.lower() not in ("earliest", "lsn", "timestamp"):
        return None

    def find() -> PostgresPosition | None:
        with connect(options, purpose="looking up the archive", replication=True) as connection:
            return _find(connection, options, kind.lower(), value.strip())

    return retrying(options, find, "looking up the archive")


def _find(connection: Connection, options: SourceOptions, kind: str, value: str) -> PostgresPosition | None:
    assert options.archive is not None
    archive = WalArchive(options.archive, options.archive_key)
    require_same(archive, options)
    history = timeline.read(connection, options)
    segments = _leading_on(archive, history)
    existing = slot.read(connection, options.slot)
    begin = None if existing is None or existing.is_lost else existing.confirmed
    if kind == "timestamp":
        at = _at_time(archive, segments, microseconds(value))
    elif not segments:
        return None
    elif kind == "earliest":
        at = segments[0].start
    else:
        at = parse_lsn(value)
        if not segments[0].start <= at <= segments[-1].end:
            return None
    if begin is not None and begin <= at:
        return history.position(at) if kind == "timestamp" else None
    start = history.position(at)
    ensure_slot(connection, options, archive, start)
    return start


def _leading_on(archive: WalArchive, history: History) -> list[WalSegment]:
    """The segments without a gap up to the archive's end, of the server's log."""
    found: list[WalSegment] = []
    for segment in reversed(archive.segments):
        if not history.has(segment.history.position(segment.end)):
            break
        if found and not found[-1].continues(segment):
            break
        found.append(segment)
    return found[::-1]


def _at_time(archive: WalArchive, segments: list[WalSegment], at_us: int) -> int:
    """LSN of the first transaction that was committed at a time or later."""
    if not segments or at_us < segments[0].since_us:
        begin = (
            f"it begins at {time_text(segments[0].since_us)}" if segments else "it has nothing of this log"
        )
        raise ConfigError(
            f"the archive does not reach back to {time_text(at_us)}",
            begin,
            "set startingPosition to a later time, or to earliest",
            code="TR-8217",
        )
    if (lsn := archive.first_at(segments, at_us)) is not None:
        return lsn
    raise ConfigError(
        f"the archive does not reach up to {time_text(at_us)}",
        f"its newest transaction was committed at {time_text(max(s.last_us for s in segments))}",
        "let `tailrace archive` catch up; or set startingPosition to an earlier time, or to latest",
        code="TR-8217",
    )
