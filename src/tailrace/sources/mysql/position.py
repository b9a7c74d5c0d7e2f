"""A position in a MySQL server's binary log, and the `seq` of rows at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.sources.base import Lag, Position


@dataclass(frozen=True, slots=True)
class Prepared:
    """An XA transaction that is prepared and has not ended: its rows are in the log, but do not count yet.

    Args:
        xid: its xid as SQL writes it: `X'6162',X'',1`.
        file: log file that its rows are in.
        start: offset in `file` at or before which they start, between two events.
        end: offset of the end of its XA_PREPARE.
        rows: rows of captured tables in it; 0 where rows are not counted.
    """

    xid: str
    file: str
    start: int
    end: int
    rows: int = 0


@dataclass(frozen=True)
class MySqlPosition(Position):
    """A point between two transactions.

    Args:
        file: binary log file, e.g. `binlog.000003`.
        pos: byte offset of the end of the last transaction before this point; 64 bits, though the
            log's own headers hold 32.
        gtids: the set of all GTIDs in the log up to this point, purged ones included, in MySQL's
            text form without blanks; "" when the server has no GTIDs.
        server: `server_uuid` of the server that `file` and `pos` belong to ("" for MariaDB).
        epoch: counts the servers that the stream has read from; raises `_seq` after a failover.
        ts_ms: commit time of the last transaction up to here, milliseconds since 1970 UTC; 0: unknown.
        prepared: the XA transactions with rows of captured tables that are prepared and open here, in
            the order of the log: as many as the server holds open.
    """

    file: str
    pos: int
    gtids: str = ""
    server: str = ""
    epoch: int = 0
    ts_ms: int = 0
    prepared: tuple[Prepared, ...] = ()

    @property
    def file_number(self) -> int:
        """The number in the file's name: files are ordered by it."""
        return int(self.file.rpartition(".")[2])

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts positions of one stream in log order."""
        return (self.epoch, self.file_number, self.pos)

    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed key order: Spark compares offsets as text."""
        found: dict[str, Any] = {
            "file": self.file,
            "pos": self.pos,
            "gtids": self.gtids,
            "server": self.server,
            "epoch": self.epoch,
            "ts_ms": self.ts_ms,
        }
        if self.prepared:
            found["prepared"] = {
                p.xid: [p.file, p.start, p.end, p.rows] if p.rows else [p.file, p.start, p.end]
                for p in self.prepared
            }
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MySqlPosition:
        """The position that `to_json` wrote."""
        prepared = tuple(Prepared(xid, *place) for xid, place in value.get("prepared", {}).items())
        return cls(**{**value, "prepared": prepared})

    def lag_to(self, head: MySqlPosition) -> Lag:
        """How far `head` lies ahead; in bytes only within one log file."""
        files = head.file_number - self.file_number
        return Lag(files, None if files else head.pos - self.pos)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def seq_of(position: MySqlPosition, row: int = 0) -> str:
    """The `seq` of a row at `position`: 32 hex digits, epoch 4, file number 8, offset 12, row 8.

    A change sorts by the *start* of its event, rows of an event by twice their number (plus one for the
    second half of a key update). A snapshot row as of P has P's own seq: after every change up to P, before
    every later one, since a later event starts at P or after it and its own GTID event lies between.
    """
    return f"{position.epoch:04x}{position.file_number:08x}{position.pos:012x}{row:08x}"


position = MySqlPosition
