"""Positions of the log by which a stream can start: its end, its oldest file, a GTID set, a time.

All are transaction boundaries that carry the exact GTID set of the log up to them. That set is not the
server's `@@gtid_executed`, which runs ahead of or behind any given position: it is read from the log itself
(a file's PREVIOUS_GTIDS and the GTID events after it), or from `performance_schema.log_status`, which gives
both as of one moment where no XA transactions are in use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tailrace.config.moment import microseconds
from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, StateError
from tailrace.model.gtid_sources import ALL_SERVERS, GtidSources
from tailrace.model.table import TableId
from tailrace.sources.mysql.binlog.archived import all_logs
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.binlog.logfiles import LogFile, end_of_log
from tailrace.sources.mysql.binlog.visibility import log_status, snapshot_position
from tailrace.sources.mysql.connection import connect, is_mariadb, one, retrying, server_facts
from tailrace.sources.mysql.gtid import GtidSet, uuid_of
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.filehead import previous_gtids
from tailrace.sources.mysql.wire.kernels.boundaries import (
    END,
    FILE_START,
    FLAGS,
    GNO,
    NO_TRANSACTION,
    SOURCE,
    START,
    TS_US,
)
from tailrace.sources.mysql.wire.transactions import TransactionIndex
from tailrace.sources.mysql.xa.prepared import prepared_at

T = TypeVar("T")

#: A file's first event is stamped in whole seconds, and transactions a little before they are written.
_STAMP_MARGIN_US = 2_000_000
_DOING = "finding the starting position"


def starting_position(options: SourceOptions) -> MySqlPosition:
    """Where a new stream starts, by the option `startingPosition`, and which XA transactions are open there.

    At `earliest`, a transaction that was prepared before the log begins is not in the log and does not count.

    Raises:
        ConfigError: the position is no transaction boundary, or cannot be parsed.
        PositionLostError: the server does not have, or no longer has, the position.
        StateError: the server's log cannot be continued from the GTID set.
        PreflightError: XA transactions are in use, and the user may not see them.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """
    found = _starting_place(options)
    if options.starting_position.lower() == "earliest":
        return found
    return replace(found, prepared=prepared_at(options, found))


def _starting_place(options: SourceOptions) -> MySqlPosition:
    kind, _, value = options.starting_position.partition(":")
    match kind.lower():
        case "file":
            name, _, offset = value.rpartition(":")
            return position_in_file(options, name, int(offset))
        case "file-at-or-before":
            name, _, offset = value.rpartition(":")
            return position_at_or_before(options, name, int(offset))
        case "gtid":
            return position_by_gtids(options, GtidSet.parse(value), options.gtid_sources)
        case "timestamp":
            return position_by_time(options, _microseconds(value.strip()))
        case "earliest":
            return _scan(options, _files(options)[0].name, lambda _: 0)
        case _:
            found = log_end_position(options)
            if found.gtids and _query(options, _ends_xa_transactions):
                scanned = _scan(options, found.file, lambda rows: _before(rows[:, END] > found.pos))
                return replace(scanned, ts_ms=found.ts_ms)
            return found


def log_end_position(options: SourceOptions) -> MySqlPosition:
    """The log's end now. Where XA transactions are in use its GTIDs may lack the last ones.

    Raises:
        PreflightError: the server writes no binary log.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """

    def ask(connection: BoundedConnection) -> MySqlPosition | str:
        if is_mariadb(connection):
            file, pos = snapshot_position(connection)
            gtids = _value(connection, f"SELECT BINLOG_GTID_POS('{file}', {pos})")
            return MySqlPosition(file, pos, str(GtidSet.parse(gtids)), server_facts(connection).server_uuid)
        found = log_status(connection)
        if found is None:
            return end_of_log(connection)[0]
        facts = server_facts(connection)
        gtids = str(GtidSet.parse(found[2])) if facts.gtid_mode else ""
        return MySqlPosition(found[0], found[1], gtids, facts.server_uuid)

    found = _query(options, ask)
    return found if isinstance(found, MySqlPosition) else _scan(options, found, lambda _: None)


def _ends_xa_transactions(connection: BoundedConnection) -> bool:
    """Whether a MySQL has executed XA COMMIT or XA ROLLBACK since it started.

    They are below the position of log_status an instant before they are among its GTIDs. Called after
    log_status, this covers all that the position counts.
    """
    if is_mariadb(connection):
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_xa_commit', 'Com_xa_rollback')")
        return any(int(row[1]) for row in cursor.fetchall())


def position_in_file(options: SourceOptions, file: str, pos: int) -> MySqlPosition:
    """The position at an offset of a file. Raises as `starting_position`."""
    found = boundary_in_file(options, file, pos)
    if found.pos < pos:
        raise ConfigError(
            f"`{file}:{pos}` is not between two transactions",
            f"the last transaction before it ends at {found.pos}",
            f'set startingPosition to "file:{file}:{found.pos}"',
            code="TR-4001",
        )
    return found


def position_at_or_before(options: SourceOptions, file: str, pos: int) -> MySqlPosition:
    """The last position between two transactions that is at or before an offset of a file.

    Raises:
        ConfigError: the file is shorter.
        PositionLostError: the server does not have the file, or no longer.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """
    size = next((log.size for log in _files(options) if log.name == file), None)
    if size is not None and pos > size:  # of another server, or from before RESET MASTER
        raise ConfigError(
            f"`{file}:{pos}` is not in the log",
            f"the file has {size} bytes",
            "is this the server that the position is of? Take its GTIDs instead: startingPosition gtid:SET",
            code="TR-4001",
        )
    return boundary_in_file(options, file, pos)


def boundary_in_file(options: SourceOptions, file: str, pos: int) -> MySqlPosition:
    """The last transaction boundary at or before an offset of a file. Raises as `starting_position`."""
    return _scan(options, file, lambda rows: _before(rows[:, END] > pos))


def require_in_log(options: SourceOptions, file: str, pos: int) -> None:
    """Check that the log has an offset of a file now.

    Raises:
        PositionLostError: it has not.
        TransientSourceError: the server was unreachable.
    """
    files = _files(options)
    size = next((log.size for log in files if log.name == file), None)
    if size is None or pos > size:
        found = f"the server has the files {files[0].name} to {files[-1].name}"
        raise PositionLostError(
            f"the binary log has no position `{file}:{pos}`",
            found if size is None else f"the file has {size} bytes",
            code="TR-4101",
        )


def position_by_time(options: SourceOptions, at_us: int) -> MySqlPosition:
    """The position before the first transaction committed at or after a time, else the log's end.

    Args:
        options: the server.
        at_us: microseconds since 1970 UTC.

    Raises:
        PositionLostError: transactions of that time may have been purged.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """
    files = _files(options)
    low, high = 0, len(files)  # files[:low] begin before the time, files[high:] do not
    while low < high:
        middle = (low + high) // 2
        if _created_us(options, files[middle].name) + _STAMP_MARGIN_US < at_us:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        first = _scan(options, files[0].name, lambda _: 0)
        if first.gtids or first.file_number > 1:
            raise PositionLostError(
                "the binary log does not reach back to the requested time",
                f"the oldest file is `{first.file}`; purged GTIDs are `{first.gtids}`",
                "set startingPosition to a later time, to earliest or to initial",
                code="TR-4003",
            )
    for log in files[max(low - 1, 0) :]:
        found, stopped = _walk(options, log.name, lambda rows: _before(_late(rows, at_us)))
        if stopped or log == files[-1]:
            return found
    raise AssertionError("the list of files is never empty")


def position_by_gtids(
    options: SourceOptions, gtids: GtidSet, sources: GtidSources = ALL_SERVERS
) -> MySqlPosition:
    """The position up to which the log holds exactly `gtids` (purged ones included).

    Args:
        options: the server.
        gtids: the set.
        sources: the servers whose transactions count: those of others may be in the log or not.

    Raises:
        PositionLostError: the log no longer holds the transactions after them.
        StateError: the log lacks some, or others stand among them.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """
    gtids = gtids.of(sources)
    executed = GtidSet.parse(_query(options, lambda c: _value(c, server_facts(c).executed_gtids_sql)))
    if missing := gtids.subtract(executed):
        raise StateError(
            "the server has not executed all requested GTIDs",
            f"it lacks `{missing}`",
            "wait until it has caught up with its own source, or connect to the right server",
            code="TR-4004",
        )
    for log in reversed(_files(options)):
        before = _scan(options, log.name, lambda _: 0)
        held = GtidSet.parse(before.gtids).of(sources)
        if not held.is_subset(gtids):
            continue
        found = _scan_by_gtids(options, log.name, gtids, sources)
        reached = GtidSet.parse(found.gtids).of(sources)
        if reached != gtids:
            later = gtids.subtract(reached)
            raise StateError(
                "no binlog position corresponds exactly to this GTID set",
                f"`{later}` come after others that are not in the set"
                if later
                else f"the log has `{reached}` where `{gtids}` is requested",
                "a replica keeps its source's order with replica_preserve_commit_order = ON",
                code="TR-4005",
            )
        return found
    lost = held.subtract(gtids)
    raise PositionLostError(
        "the binary log no longer holds all transactions after the GTID set",
        f"purged are `{lost}`",
        "set onPositionLost: refresh to read every table again, or start a new stream with startingPosition "
        "initial",
        code="TR-4101",
    )


def _query(options: SourceOptions, query: Callable[[BoundedConnection], T]) -> T:
    def operation() -> T:
        with closing(connect(options, purpose=_DOING)) as connection:
            return query(connection)

    return retrying(options, operation, _DOING)


def _value(connection: BoundedConnection, statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return str(one(cursor)[0])


def _files(options: SourceOptions) -> list[LogFile]:
    files = _query(options, lambda connection: all_logs(options, connection))
    if not files:
        raise PositionLostError("the server has no binary log files", code="TR-4101")
    return files


def _before(found: np.ndarray) -> int | None:
    """How many values precede the first true one; None: all."""
    at = int(found.argmax()) if len(found) else 0
    return at if len(found) and found[at] else None


def _late(rows: np.ndarray, at_us: int) -> np.ndarray:
    late: np.ndarray = (rows[:, TS_US] >= at_us) & (rows[:, FLAGS] & NO_TRANSACTION == 0)
    return late


def _scan(options: SourceOptions, file: str, stop: Callable[[np.ndarray], int | None]) -> MySqlPosition:
    return _walk(options, file, stop)[0]


def _scan_by_gtids(options: SourceOptions, file: str, gtids: GtidSet, sources: GtidSources) -> MySqlPosition:
    index = TransactionIndex(_nothing)

    def stop(rows: np.ndarray) -> int | None:
        for at, (source, number, flags) in enumerate(rows[:, [SOURCE, GNO, FLAGS]].tolist()):
            if flags & NO_TRANSACTION:
                continue
            if source < 0:
                return at
            its = index.sources[source]
            if not gtids.contains(its, number) and (not sources or sources.has(uuid_of(its))):
                return at
        return None

    return _walk(options, file, stop, index)[0]


def _walk(
    options: SourceOptions,
    file: str,
    stop: Callable[[np.ndarray], int | None],
    index: TransactionIndex | None = None,
) -> tuple[MySqlPosition, bool]:
    """Read a file's transactions from its head on.

    Args:
        options: the server.
        file: the log file.
        stop: given rows of transactions (not of the file's head), how many to read over before stopping;
            None to continue.
        index: indexes the file; new.

    Returns:
        The position reached, and whether `stop` stopped there.
    """
    server = _query(options, lambda c: server_facts(c).server_uuid)
    index = index or TransactionIndex(_nothing)
    stream = DumpStream(options, file, 4, blocking=False, server=server)
    gtids, pos, ts_us, stopped = GtidSet(), 4, 0, False
    with closing(stream.blocks()) as blocks:
        for block in blocks:
            if block.file != file:
                break
            rows = index.feed(block).rows
            if len(rows) and rows[0, FLAGS] & FILE_START:
                gtids = previous_gtids(block, int(rows[0, START]), int(rows[0, END]))
                pos = int(rows[0, END])
                rows = rows[1:]
            count = stop(rows) if len(rows) or pos > 4 else None
            stopped = count is not None
            rows = rows[:count]
            if len(rows):
                pos = int(rows[-1, END])
                ts_us = int(next(iter(rows[rows[:, TS_US] > 0, TS_US][-1:]), ts_us))
            for source in np.unique(rows[:, SOURCE]).tolist():
                if source >= 0:
                    gtids.add_numbers(index.sources[source], rows[rows[:, SOURCE] == source, GNO])
            if stopped:
                break
    return MySqlPosition(file, pos, str(gtids), server, ts_ms=ts_us // 1000), stopped


def _nothing(table: TableId) -> bool:  # noqa: ARG001
    return False


def _created_us(options: SourceOptions, file: str) -> int:
    """When the file was created: the time of its first event, in microseconds."""
    stream = DumpStream(options, file, 4, blocking=False)
    with closing(stream.blocks()) as blocks:
        for block in blocks:
            header = block.buffer[block.start : block.start + 4].tobytes()
            return int.from_bytes(header, "little") * 1_000_000
    raise PositionLostError(f"the binary log `{file}` is empty", code="TR-4101")


def _microseconds(text: str) -> int:
    try:
        return microseconds(text)
    except ValueError:
        raise ConfigError(
            "option `startingPosition` is wrong",
            f"found the time `{text}`, allowed: 2026-01-31T12:00:00Z or epoch milliseconds",
            code="TR-1010",
        ) from None
