"""A position in Oracle's redo log, and the `seq` of rows at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.sources.base import Lag, Position


@dataclass(frozen=True)
class OraclePosition(Position):
    """A point between two system change numbers: transactions whose commit has `scn` or less are before it.

    Several transactions may commit at one SCN. A flashback query shows all of them or none, so a position
    never lies between them.

    Args:
        scn: the system change number.
        since: no transaction that is open at `scn` has begun before this SCN: the log is read from here on.
        database: DBID and the SCN of the last RESETLOGS, `DBID/SCN`: SCNs are comparable only within these.
        ts_ms: commit time of the last transaction up to here, milliseconds since 1970 UTC; 0: unknown.
    """

    scn: int
    since: int
    database: str
    ts_ms: int = 0

    @property
    def order(self) -> tuple[int]:
        """Sorts positions of one stream in log order."""
        return (self.scn,)

    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed key order: Spark compares offsets as text."""
        return {"scn": self.scn, "since": self.since, "database": self.database, "ts_ms": self.ts_ms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OraclePosition:
        """The position that `to_json` wrote."""
        return cls(value["scn"], value["since"], value["database"], value["ts_ms"])

    def lag_to(self, head: OraclePosition) -> Lag:
        """How far `head` lies ahead: an SCN is no number of bytes."""
        return Lag(0, 0 if head.scn == self.scn else None)

    def __str__(self) -> str:
        return f"SCN {self.scn}"


def seq_of(scn: int, row: int = 0, epoch: int = 0) -> str:
    """The `seq` of change `row` - 1 of those that commit at `scn`; row 0: of a snapshot as of the SCN before.

    32 hex digits: epoch 4, commit SCN 16, twice the change's number among those of its SCN plus two 12. Rows
    as of P have P + 1 and zeros: they contain what commits at P, and nothing that commits behind it.
    """
    return f"{epoch:04x}{scn:016x}{2 * row:012x}"


position = OraclePosition
