"""The position of a time: before the first transaction, in the order of commits, of then or later.

PostgreSQL stamps a transaction shortly before it writes the commit record, so of two transactions that commit
at once the later stamp may come first in the log. Positions are in the order of commits; so is this rule:
an earlier transaction that stands behind one of then or later does not count.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError
from tailrace.sources.postgres.connection import connect, retrying
from tailrace.sources.postgres.position import PostgresPosition, lsn_text
from tailrace.sources.postgres.replication import timeline
from tailrace.sources.postgres.replication.archive.segment import WalArchive, WalSegment, time_text
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.replication.stream import ReplicationStream
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.starting import log_end_position
from tailrace.sources.postgres.wire.kernels import boundaries as bd

_DOING = "looking up a time in the log"
_PATIENCE_S = 1.0
#: The slot does not hold the log: the archiver has gone on meanwhile, and confirmed it.
_LOST = "TR-4201"


@dataclass(frozen=True)
class TimeInLog:
    """A time in the log.

    Args:
        at_us: the time, microseconds since 1970 UTC.
        position: its position.
        since: LSN from which on the log up to there is in the archive, or behind its end, without a gap.
    """

    at_us: int
    position: PostgresPosition
    since: int


def time_in_log(options: SourceOptions, at_us: int) -> TimeInLog:
    """Where a time is, in the archive or behind its end.

    Raises:
        ConfigError: neither has the time.
        PositionLostError: no slot leads on from the archive's end.
        StateError: the archive is damaged.
        TailraceError: the server refuses, or cannot be reached.
    """
    while True:
        assert options.archive is not None
        archive = WalArchive(options.archive, options.archive_key)
        history = server_history(options)
        runs = _runs(archive, history)
        for number, run in enumerate(reversed(runs)):
            if at_us < run[0].since_us:
                continue
            if (lsn := archive.first_at(run, at_us)) is not None:
                return TimeInLog(at_us, history.position(lsn), run[0].start)
            if number:  # the next one begins behind a gap
                raise _missing(runs, at_us)
            try:
                found = _on_server(options, archive, history.position(run[-1].end), at_us)
                return TimeInLog(at_us, found, run[0].start)
            except PositionLostError as error:
                grown = WalArchive(options.archive, options.archive_key).segments
                if error.code != _LOST:
                    raise
                if grown == archive.segments:
                    raise _lost(run, at_us, error) from error
                break
        else:
            raise _missing(runs, at_us)


def server_history(options: SourceOptions) -> History:
    """The timelines of the server's log.

    Raises:
        TailraceError: the server refuses, or cannot be reached.
    """

    def ask() -> History:
        with connect(options, purpose=_DOING, replication=True) as connection:
            return timeline.read(connection, options)

    return retrying(options, ask, _DOING)


def _runs(archive: WalArchive, history: History) -> list[list[WalSegment]]:
    """The segments of the server's log, in runs without a gap."""
    found: list[list[WalSegment]] = []
    for segment in archive.segments:
        if not history.has(segment.history.position(segment.end)):
            continue
        if found and segment.continues(found[-1][-1]):
            found[-1].append(segment)
        else:
            found.append([segment])
    return found


def _on_server(
    options: SourceOptions, archive: WalArchive, start: PostgresPosition, at_us: int
) -> PostgresPosition:
    """The position, which lies behind the archive's end.

    Asking for the log's end commits a message, which is a transaction of now: of the time, or later.
    """
    end = log_end_position(options)
    given = replace(options, slot_name=archive.slot, publication_name=options.publication)

    def opened() -> ReplicationStream:
        return ReplicationStream(given, start, binary=False, own_slot=False, all_messages=True)

    with closing(retrying(options, opened, _DOING)) as stream:
        incoming = Incoming(stream, lambda _: True, start.lsn, lambda _: True)
        while incoming.head < end.lsn:
            if (came := incoming.next(_PATIENCE_S)) is None:
                continue
            rows = came[2].transactions
            later = np.flatnonzero((rows[:, bd.TS_US] >= at_us) & (rows[:, bd.COMMIT_LSN] >= start.lsn))
            if len(later):
                return stream.history.position(int(rows[later[0], bd.COMMIT_LSN]))
    raise ConfigError(
        f"the log does not reach up to {time_text(at_us)}",
        "no transaction of then or later is in it: by the server's clock that time has not come, or the "
        "server is a standby that has nothing newer",
        "give an earlier time",
        code="TR-8217",
    )


def _lost(run: list[WalSegment], at_us: int, error: PositionLostError) -> PositionLostError:
    return PositionLostError(
        f"neither the archive nor the server has the log up to {time_text(at_us)}",
        f"the archive ends at `{lsn_text(run[-1].end)}`; {error.message}: {error.detail}",
        "give a time that the archive has; start `tailrace archive`: it goes on, or says what is lost",
        code="TR-4120",
    )


def _missing(runs: list[list[WalSegment]], at_us: int) -> ConfigError:
    texts = [f"{time_text(run[0].since_us)} to {time_text(max(s.last_us for s in run))}" for run in runs]
    return ConfigError(
        f"the archive does not have {time_text(at_us)}",
        f"it has {', '.join(texts) or 'nothing of this log'}",
        "give a time that it has; keep it for longer: tailrace archive ... --expire-after",
        code="TR-8217",
    )
