"""A server that has lost history: transactions that the stream has read and the tables do not have.

Two ways lead there under the same `server_uuid`, and neither breaks the log at the stream's position:

* The server was restored from a backup, or lost the end of its log in a crash and wrote another one. Then it
  lacks GTIDs that the stream has read, until it has given as many to other transactions: `require_history`.
* The server crashed with `innodb_flush_log_at_trx_commit = 0`. Its log is whole, InnoDB has lost up to a
  second of the transactions in it, and `gtid_executed` is read from the log. Only the log itself shows the
  crash (`CrashWatch`): a file that begins with a start of the server (its FORMAT_DESCRIPTION has a creation
  time) behind a file that does not end with a STOP.
"""

from __future__ import annotations

import logging
import re
import time

import pymysql

from tailrace.errors import PositionLostError
from tailrace.sources import network
from tailrace.sources.mysql.connection import is_mariadb, one, server_facts, translate
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels.packets import HEADER

_log = logging.getLogger(__name__)

_STOP, _FORMAT_DESCRIPTION = 3, 15
#: Offset of the creation time in a FORMAT_DESCRIPTION: behind the version and the server's version.
_CREATED = HEADER + 2 + 50
#: How long a transaction that is in the log may be missing from the server's sets.
_PATIENCE_S, _POLL_S = 5.0, 0.1
_READ_AGAIN = "set onPositionLost: refresh to read every table again"
_FLUSH = "innodb_flush_log_at_trx_commit"


@network.sensible("executed GTIDs")
def require_history(connection: BoundedConnection, gtids: GtidSet) -> None:
    """Check that the server still has the transactions that the stream has read.

    Raises:
        PositionLostError: it lacks some.
        TransientSourceError: the connection is lost.
    """
    if not gtids:
        return
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while missing := gtids.subtract(_known(connection)):
            if time.monotonic() > deadline:
                raise PositionLostError(
                    "the server has lost transactions that the stream has read",
                    f"it lacks `{missing}`: it was restored from a backup, or a crash cut its log",
                    _READ_AGAIN,
                    code="TR-4102",
                )
            time.sleep(_POLL_S)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking for executed GTIDs") from error


def _known(connection: BoundedConnection) -> GtidSet:
    """The GTIDs that the server has executed or is committing: these are in the log already."""
    with connection.cursor() as cursor:
        committing = ""
        if not is_mariadb(connection):
            cursor.execute("SELECT @@global.gtid_owned")  # first: what leaves it is executed
            committing = re.sub(r"#[0-9]+", "", str(one(cursor)[0]))
        cursor.execute(server_facts(connection).executed_gtids_sql)
        return GtidSet.parse(str(one(cursor)[0])).union(GtidSet.parse(committing))


class CrashWatch:
    """Finds crashes of the server in its log, block after block.

    Args:
        file: log file that the first block is in, or that ends before it.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._stopped = False

    def crashed_before(self, block: EventBlock) -> str | None:
        """The file that a crash ended, if one did between the last block and this one."""
        ended = None
        head = block.buffer[block.start : block.start + _CREATED + 4].tobytes()
        if block.file != self._file:
            starts = head[4:5] == bytes([_FORMAT_DESCRIPTION]) and any(head[_CREATED:])
            ended = self._file if starts and not self._stopped else None
            self._file = block.file
        size = HEADER + (4 if block.checksum else 0)
        last = block.buffer[max(block.start, block.end - size) : block.end].tobytes()
        self._stopped = last[4:5] == bytes([_STOP]) and int.from_bytes(last[9:13], "little") == size
        return ended


def require_kept(connection: BoundedConnection, file: str) -> None:
    """Check that a server that crashed has kept the transactions of its log.

    Args:
        connection: to the server.
        file: log file that the crash ended.

    Raises:
        PositionLostError: InnoDB may have lost some of them.
        TransientSourceError: the connection is lost.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT @@global.{_FLUSH}")
            found = int(one(cursor)[0])
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking how transactions are flushed") from error
    if found == 0:
        keep = "GLOBAL" if is_mariadb(connection) else "PERSIST"
        raise PositionLostError(
            "the server crashed, and its tables may lack transactions that its log holds",
            f"the log file `{file}` ends without a shutdown, and {_FLUSH} is 0",
            f"SET {keep} {_FLUSH} = 1; then {_READ_AGAIN}",
            code="TR-4111",
        )
    if found != 1:
        _log.warning(
            "the server crashed at the end of log file `%s`: if the whole machine did, its tables may lack "
            "transactions that its log holds, as %s is %d",
            file,
            _FLUSH,
            found,
        )
