"""The server's clock, and where its log is."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tailrace.errors import TransientSourceError
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.connection import Connection
from tailrace.sources.oracle.position import OraclePosition

_ZONE = "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL"
_NOW = "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM DUAL"
_OPEN = "SELECT MIN(START_SCN), COUNT(*) FROM V$TRANSACTION"
#: How long the start of a stream waits for a transaction to have an SCN.
_WAIT_S, _TRIES = 0.5, 20


def to_us(connection: Connection) -> Callable[[str], int]:
    """Makes microseconds since 1970 UTC of a time of the log, which is in the server's zone and lacks it.

    The zone's offset is the present one: within the hour of a change of summer time, times are off by it.
    """
    ((text,),) = connection.rows(_ZONE)
    hours, _, minutes = text.partition(":")
    size = timedelta(hours=abs(int(hours)), minutes=int(minutes))
    offset = -size if text.startswith("-") else size

    def convert(at: str) -> int:
        moment = datetime.fromisoformat(at).replace(tzinfo=UTC) - offset
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    return convert


def now_us(connection: Connection) -> int:
    """The server's clock, microseconds since 1970 UTC."""
    ((text,),) = connection.rows(_NOW)
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def present(connection: Connection, sleep: Callable[[float], None] = time.sleep) -> OraclePosition:
    """The present position, with the SCN at which the oldest open transaction has begun.

    The SCN is read before the open transactions, and after them. A transaction that is open at the second one
    was among them, or has begun at the first SCN or later.

    Raises:
        TransientSourceError: a transaction has no SCN yet.
    """
    for _ in range(_TRIES):
        first = catalog.database(connection).scn
        ((oldest, count),) = connection.rows(_OPEN)
        found = catalog.database(connection)
        if not int(count or 0):
            return OraclePosition(found.scn, first, found.identity)
        if oldest is not None and int(oldest) > 0:
            return OraclePosition(found.scn, min(first, int(oldest)), found.identity)
        sleep(_WAIT_S)
    raise TransientSourceError(
        "it is not known where the log of open transactions begins",
        "V$TRANSACTION has one without a START_SCN",
        "SELECT * FROM V$TRANSACTION WHERE START_SCN = 0 shows it; the stream starts once it has ended",
        code="TR-4617",
    )
