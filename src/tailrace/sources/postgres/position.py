"""A position in PostgreSQL's write-ahead log (WAL), and the `seq` of rows at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.sources.base import Lag, Position


@dataclass(frozen=True)
class PostgresPosition(Position):
    """A point between two transactions: those whose commit record starts below `lsn` are before it.

    A transaction counts by the position of its commit, never by those of its rows, so every LSN is a
    transaction boundary.

    Args:
        lsn: byte offset in the WAL.
        server: system identifier of the cluster; replicas and promoted standbys share it.
        ts_ms: commit time of the last transaction up to here, milliseconds since 1970 UTC; 0: unknown.
        timeline: the timeline that it lies on, its number and where it begins (`2@0/3018F30`); "": unknown,
            as in offsets from before this field existed.
        held_bytes: WAL that the slot holds back, where a position is reported for progress only.
        left_bytes: WAL that may still be written before `max_slot_wal_keep_size` invalidates the slot;
            for progress only, None: no limit.
    """

    lsn: int
    server: str = ""
    ts_ms: int = 0
    timeline: str = ""
    held_bytes: int | None = None
    left_bytes: int | None = None

    @property
    def order(self) -> tuple[int]:
        """Sorts positions of one stream in log order."""
        return (self.lsn,)

    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed key order: Spark compares offsets as text."""
        value: dict[str, Any] = {"lsn": lsn_text(self.lsn), "server": self.server, "ts_ms": self.ts_ms}
        if self.timeline:
            value["timeline"] = self.timeline
        for name in ("held_bytes", "left_bytes"):
            if getattr(self, name) is not None:
                value[name] = getattr(self, name)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PostgresPosition:
        """The position that `to_json` wrote."""
        return cls(parse_lsn(value["lsn"]), value["server"], value["ts_ms"], value.get("timeline", ""))

    def lag_to(self, head: PostgresPosition) -> Lag:
        """How far `head` lies ahead."""
        return Lag(0, head.lsn - self.lsn)

    def __str__(self) -> str:
        return lsn_text(self.lsn)


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it, e.g. `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The LSN written as `text`. Raises ValueError."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(text)
    return int(high, 16) << 32 | int(low, 16)


def seq_of(lsn: int, row: int = 0, epoch: int = 0) -> str:
    """The `seq` of change `row` - 1 of the transaction that commits at `lsn`; row 0: of a snapshot.

    32 hex digits: epoch 4, LSN of the commit 16, twice the change's number in its transaction plus two 12.
    Transactions come in the order of their commits, while their changes are interleaved in the log: so the
    commit's LSN sorts first. A snapshot as of P has P and zeros: a transaction that is in it commits below P,
    one that is not at P or above.
    """
    return f"{epoch:04x}{lsn:016x}{2 * row:012x}"


def seq_of_truncate(commit_lsn: int, lsn: int) -> str:
    """The `seq` of the TRUNCATE at `lsn`, in the transaction that commits at `commit_lsn`.

    It sorts behind all changes of its transaction: their LSNs tell which ones come before it.
    """
    behind = 1 << 47
    return f"{0:04x}{commit_lsn:016x}{behind | (lsn & (behind - 1)):012x}"


position = PostgresPosition
