"""Writers whose transactions are mostly XA transactions, and what remains of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count

import pymysql

from tests.support.wait import wait_until
from tests.support.workload import Writers

#: Errors that random writers run into by design: deadlock, lock wait, and what an XA transaction that was
#: rolled back for either says at its next statement.
_EXPECTED = {1062, 1205, 1213, 1397, 1398, 1399, 1400, 1401, 1402, 1613, 1614}


class XaWriters(Writers):
    """Threads that prepare, commit and roll back, mixed with ordinary and one-phase transactions.

    Some prepared transactions are ended by another connection much later, others only by `end_all`.
    """

    #: Errors of a connection after which another one is tried.
    lost: frozenset[int] = frozenset()

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        self._names = count()
        self._left: list[str] = []
        self._lock = threading.Lock()
        self.ended = 0

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        try:
            while not self._stopping.is_set():
                try:
                    left = self._connection(draw)
                    if left is not None:
                        wait_until(partial(_is_detached, self._server, left[0]), 20, "the connection's end")
                        with self._lock:
                            self._left.append(left[1])
                except pymysql.err.MySQLError as error:
                    if error.args[0] not in self.lost:
                        raise
                    self._stopping.wait(0.1)
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.errors.append(error)

    def _connection(self, draw: random.Random) -> tuple[int, str] | None:
        """Transactions up to one that stays prepared, with which the connection is abandoned.

        Returns:
            The connection's id and that transaction's; None: the connection ended otherwise.
        """
        with self._server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            while not self._stopping.wait(self._pause_s):
                xid = f"'w{next(self._names)}','{self._table}',{draw.randrange(1 << 31)}"
                with self._turn():
                    try:
                        if draw.random() < 0.25:
                            cursor.execute("BEGIN")
                            self._change(cursor, draw)
                            cursor.execute("COMMIT")
                        elif self._xa(cursor, draw, xid):
                            return connection.thread_id(), xid
                        elif draw.random() < 0.4:
                            self._end_one(cursor, draw)
                    except pymysql.err.MySQLError as error:
                        if error.args[0] not in _EXPECTED:
                            raise
                        return None
        return None

    def _turn(self) -> AbstractContextManager[object]:
        """Held while writing a transaction."""
        return nullcontext()

    def _xa(self, cursor, draw: random.Random, xid: str) -> bool:
        """Run an XA transaction; returns whether it was left prepared."""
        cursor.execute(f"XA START {xid}")
        self._change(cursor, draw)
        cursor.execute(f"XA END {xid}")
        dice = draw.random()
        if dice < 0.2:
            cursor.execute(f"XA COMMIT {xid} ONE PHASE")
            return False
        if dice < 0.25:
            cursor.execute(f"XA ROLLBACK {xid}")
            return False
        cursor.execute(f"XA PREPARE {xid}")
        if dice < 0.5:
            return True
        cursor.execute(f"XA {'ROLLBACK' if dice < 0.6 else 'COMMIT'} {xid}")
        return False

    def _end_one(self, cursor, draw: random.Random) -> None:
        with self._lock:
            xid = self._left.pop(draw.randrange(len(self._left))) if self._left else None
        if xid is None:
            return
        try:
            cursor.execute(f"XA {'ROLLBACK' if draw.random() < 0.3 else 'COMMIT'} {xid}")
            self.ended += 1
        except pymysql.err.MySQLError as error:
            if error.args[0] != 1397:  # its connection is not quite gone
                raise
            with self._lock:
                self._left.append(xid)


class KillingXaWriters(XaWriters):
    """The same over a server that is killed and restarted twice during the writes.

    It is killed while no transaction is being written, and after a flush of the engine's log. Events that
    prepare and end XA transactions reach the binary log before that flush, clients are answered before it
    too, and after a crash in between, the server does not recover them from the binary log as it does others:
    MariaDB comes back with transactions prepared that its log has committed (also in one phase) or rolled
    back, MySQL 9.7 without the last ones prepared and committed. Then the table differs from the log.
    """

    #: 1053: shutdown, 2003: no connection, 2006 and 2013: lost.
    lost = frozenset({1053, 2003, 2006, 2013})

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)
        self._idle = threading.Condition()
        self._busy, self._killing = 0, False

    def __enter__(self) -> KillingXaWriters:
        super().__enter__()
        self._killer = threading.Thread(target=self._kill, daemon=True)
        self._killer.start()
        return self

    def stop(self) -> None:
        self._killer.join()
        super().stop()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._idle:
            self._idle.wait_for(lambda: not self._killing)
            self._busy += 1
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def _kill(self) -> None:
        try:
            for wanted in (10, 30):
                wait_until(lambda wanted=wanted: self.ended >= wanted, 30, "the writers' XA COMMITs")
                with self._idle:
                    self._killing = True
                    self._idle.wait_for(lambda: not self._busy)
                self._server.execute("FLUSH LOCAL ENGINE LOGS")
                self._server.kill()
                self._server.start()
                with self._idle:
                    self._killing = False
                    self._idle.notify_all()
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.errors.append(error)


def prepare(server, xid: str, *statements: str, first: tuple[str, ...] = ()) -> None:
    """Run statements in an XA transaction and leave it prepared."""
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for sql in (*first, f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(sql)
        thread = connection.thread_id()
    wait_until(partial(_is_detached, server, thread), 20, "the connection's end")


def _is_detached(server, thread: int) -> bool:
    """Whether the engine holds a prepared transaction without the connection that prepared it.

    Before, MariaDB 11.8 logs an XA COMMIT by another connection and says that it is done, but does not
    commit: the rows differ from the log, and their locks stay.
    """
    ((_, _, status),) = server.execute("SHOW ENGINE INNODB STATUS")
    return f"thread id {thread}," not in status.partition("LIST OF TRANSACTIONS")[2]


def end(server, step: str, *xids: str) -> None:
    """XA COMMIT or XA ROLLBACK of prepared transactions, as soon as their connections have ended."""
    for xid in xids:
        wait_until(lambda xid=xid: _ended(server, step, xid), 20, f"XA {step} {xid}")


def _ended(server, step: str, xid: str) -> bool:
    try:
        server.execute(f"XA {step} {xid}")
    except pymysql.err.MySQLError as error:
        if error.args[0] == 1397:  # its connection is still there
            return False
        if error.args[0] != 1402:  # MariaDB: it had changed nothing
            raise
    return True


def end_all(server) -> None:
    """Commit all prepared transactions: their locks would outlive the test."""
    sql = "XA RECOVER FORMAT='SQL'" if server.product == "mariadb" else "XA RECOVER CONVERT XID"
    for format_id, gtrid, _, data in server.execute(sql):
        if server.product == "mariadb":
            end(server, "COMMIT", data.decode() if isinstance(data, bytes) else data)
            continue
        raw = data[2:]
        end(server, "COMMIT", f"X'{raw[: 2 * gtrid]}',X'{raw[2 * gtrid :]}',{format_id}")
