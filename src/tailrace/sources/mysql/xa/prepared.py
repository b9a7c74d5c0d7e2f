"""The XA transactions that are prepared and open at a position of the log.

A position that is reached by following the log carries them. Where a stream starts, or continues in another
server's log, they are found:

    prepared ──── P ─────────── Q = the log's end ── XA RECOVER
              <── │ ──>

Open at P are the transactions that XA RECOVER lists now or that ended in (P, Q], except those prepared in
(P, Q]. The log is searched backwards from P, file by file, for their rows. A transaction that is not found
has no rows in the log: they were purged, or never logged. XA transactions that only read are never logged,
but are listed until they end, so they are given some time; then the stream refuses to start. A transaction
that XA RECOVER lists though the log already has its end is being ended at that moment: it is not open
(`xa_visibility.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

import pymysql
from pymysql.constants import ER

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError, PreflightError
from tailrace.sources import network
from tailrace.sources.mysql.binlog.archived import all_logs
from tailrace.sources.mysql.binlog.dump import DumpStream, read_log
from tailrace.sources.mysql.binlog.held import number_of
from tailrace.sources.mysql.binlog.logfiles import end_of_log
from tailrace.sources.mysql.connection import connect, is_mariadb, one, retrying, translate
from tailrace.sources.mysql.position import MySqlPosition, Prepared
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.rare.xa import XaMark, XaStep, xid_of
from tailrace.sources.mysql.wire.transactions import TransactionIndex

#: How long to wait until transactions that the log does not hold have ended, seconds.
_WAIT_S = 10.0
#: How long to wait before searching the files before that of the position.
_SHORT_S = 1.0
_POLL_S = 0.1
#: XA PREPARE is listed an instant after its GTID counts as executed.
_LISTED_S = 0.05
#: Xids that an error names.
SHOWN_XIDS = 5
_DOING = "looking for prepared XA transactions"


def prepared_at(options: SourceOptions, position: MySqlPosition) -> tuple[Prepared, ...]:
    """The XA transactions with rows of captured tables that are open at a position of the server's log.

    Args:
        options: the server, and the captured tables.
        position: a transaction boundary.

    Raises:
        PositionLostError: the log does not hold the rows of some of them.
        PreflightError: XA transactions are in use, and the user may not see them.
        SourceError: the server does not list them.
        TransientSourceError: the server was unreachable.
    """
    found: dict[str, Prepared | None] = {}
    #: Transactions that are not in the file of `position`; those that are in no earlier file either.
    absent: tuple[set[str], set[str]] = set(), set()
    begun = time.monotonic()
    listed: set[str] | None = None
    while True:
        listed, ended = _open_at(options, position, listed)
        xids = listed | ended
        # read-only transactions usually end soon: the whole log is not read for them
        waited = time.monotonic() - begun
        everywhere = waited > _SHORT_S
        if sought := xids - found.keys() - absent[everywhere]:
            marks = last_marks(options, position, sought, everywhere=everywhere)
            found |= {xid: _opened(xid, *mark) for xid, mark in marks.items()}
            absent[everywhere].update(sought - found.keys())
        if not (missing := xids - found.keys()):
            return _in_order(found[xid] for xid in xids)
        if everywhere and waited > _WAIT_S:
            raise _not_found(
                missing,
                f"they are open at `{position}`, and no log file before it holds an XA PREPARE of them",
            )
        time.sleep(_POLL_S)


def prepared_again(
    options: SourceOptions, position: MySqlPosition, prepared: tuple[Prepared, ...]
) -> tuple[Prepared, ...]:
    """The same prepared transactions in the log of another server, which `position` is in.

    Raises:
        PositionLostError: that log does not hold the rows of some of them.
        SourceError: the server does not list them.
        TransientSourceError: the server was unreachable.
    """
    xids = {transaction.xid for transaction in prepared}
    marks = last_marks(options, position, xids) if xids else {}
    found = {
        xid: transaction for xid, mark in marks.items() if (transaction := _opened(xid, *mark)) is not None
    }
    if missing := xids - found.keys():
        raise _not_found(
            missing, f"the log of the server that took over does not hold them before `{position}`"
        )
    return _in_order(found.values())


def _in_order(found: Iterable[Prepared | None]) -> tuple[Prepared, ...]:
    known = [transaction for transaction in found if transaction is not None]
    return tuple(sorted(known, key=lambda transaction: (number_of(transaction.file), transaction.start)))


def _open_at(
    options: SourceOptions, position: MySqlPosition, among: set[str] | None
) -> tuple[set[str], set[str]]:
    """The xids that may be open at `position`, whatever they change: still open, or ended since.

    Args:
        options: the server.
        position: the position.
        among: the xids that were still open at the previous call; later ones were prepared behind `position`.
    """

    def ask() -> tuple[set[str], MySqlPosition]:
        with closing(connect(options, purpose=_DOING)) as connection:
            listed = listed_xids(connection)
            if among is None:
                time.sleep(_LISTED_S)
                listed |= listed_xids(connection)
            file, pos = end_of_log(connection)
            return listed, replace(position, file=file, pos=pos)

    listed, end = retrying(options, ask, _DOING)
    first: dict[str, XaStep] = {}
    index = _index(options)
    for block in read_log(options, position, end):
        for mark in index.feed(block).xa:
            first.setdefault(mark.xid, mark.step)
    ended = {xid for xid, step in first.items() if step is not XaStep.PREPARES}
    return (listed if among is None else listed & among) - first.keys(), ended


@network.sensible("XA transactions")
def listed_xids(connection: BoundedConnection) -> set[str]:
    """The xids that XA RECOVER lists: prepared, and not ended in the engine.

    Raises:
        PreflightError: XA transactions are in use, and the user may not see them.
        SourceError: the server does not list them.
        TransientSourceError: the connection is lost.
    """
    mariadb = is_mariadb(connection)
    try:
        with connection.cursor() as cursor:
            cursor.execute("XA RECOVER" if mariadb else "XA RECOVER CONVERT XID")
            rows = cursor.fetchall()
    except pymysql.err.MySQLError as error:
        if error.args[:1] == (ER.XAER_RMERR,):
            require_unused(connection)
            return set()
        raise translate(error, _DOING) from error
    except OSError as error:
        raise translate(error, _DOING) from error
    found = set()
    for format_id, gtrid, _, data in rows:
        raw = data if isinstance(data, bytes) else bytes.fromhex(str(data).removeprefix("0x"))
        found.add(xid_of(int(format_id), raw[: int(gtrid)], raw[int(gtrid) :]))
    return found


def require_unused(connection: BoundedConnection) -> None:
    """Check, for a user who may not see prepared transactions, that the server has had none since it started.

    Raises:
        PreflightError: it had one.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_xa_start'")
        if not int(one(cursor)[1]):
            return
        cursor.execute("SELECT CURRENT_USER()")
        user, _, host = str(one(cursor)[0]).rpartition("@")
    raise PreflightError(
        "the user may not see which XA transactions are prepared",
        "some may be open where the stream starts, and commit rows of captured tables later",
        f"GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'{host}'",
        code="TR-2111",
    )


def last_marks(
    options: SourceOptions, position: MySqlPosition, xids: set[str], *, everywhere: bool = True
) -> dict[str, tuple[str, XaMark]]:
    """The last transaction up to `position` that prepares or ends each of `xids`, and its file.

    Xids that are not in the log are not in the result. Only the file of `position` is searched, unless
    `everywhere`.

    Raises:
        SourceError: the server refuses.
        TransientSourceError: the server was unreachable.
    """
    files = retrying(options, lambda: _files(options), _DOING)
    found: dict[str, tuple[str, XaMark]] = {}
    for file in reversed(files):
        if number_of(file) > position.file_number or not xids - found.keys():
            continue
        if file != position.file and not everywhere:
            break
        upto = position.pos if file == position.file else None
        for mark in _marks(options, file, upto, position.server):
            if mark.xid in xids:
                found.setdefault(mark.xid, (file, mark))
    return found


def _opened(xid: str, file: str, mark: XaMark) -> Prepared | None:
    """The open transaction after its last mark, None if it has ended or has no captured rows."""
    if mark.step is not XaStep.PREPARES or not mark.has_rows:
        return None
    return Prepared(xid, file, mark.start, mark.end, mark.rows)


def _files(options: SourceOptions) -> list[str]:
    with closing(connect(options, purpose=_DOING)) as connection:
        return [log.name for log in all_logs(options, connection)]


def _marks(options: SourceOptions, file: str, upto: int | None, server: str) -> list[XaMark]:
    """The XA transactions of a log file up to an offset, last one first."""
    index, marks = _index(options), []
    stream = DumpStream(options, file, 4, blocking=False, server=server)
    with closing(stream.blocks()) as blocks:
        for block in blocks:
            if block.file != file or (upto is not None and block.pos >= upto):
                break
            marks += index.feed(block).xa
    return [mark for mark in reversed(marks) if upto is None or mark.end <= upto]


def _index(options: SourceOptions) -> TransactionIndex:
    return TransactionIndex(
        lambda table: options.captures(str(table)),
        count_rows=options.max_rows_per_trigger is not None,
        past=True,
    )


def _not_found(xids: set[str], why: str) -> PositionLostError:
    shown = sorted(xids)[:SHOWN_XIDS]
    more = f" and {len(xids) - len(shown)} more" if len(xids) > len(shown) else ""
    return PositionLostError(
        f"the binary log does not hold the rows of prepared XA transactions: {'; '.join(shown)}{more}",
        f"{why}: their rows cannot be read when an XA COMMIT commits them",
        "end each of them, then start the stream: "
        + "; ".join(f"XA COMMIT {xid}, or XA ROLLBACK {xid}" for xid in shown)
        + "; if one has ended since, start the stream after its end",
        code="TR-4107",
    )
