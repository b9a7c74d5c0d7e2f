"""Where a stream ends, by the option `endingPosition`: pure values, part of the offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.errors import SchemaMismatchError


@dataclass(frozen=True)
class Ending:
    """The end of a stream.

    Args:
        of: the option as it was given; if it is another one now, this counts no more.
        at: the position at which it ends, as JSON; None: it ends at a time, and the log is not known to be
            past it.
        log_read: whether the log is read up to there; rows of tables may be still to be read.
        reached: whether there is nothing left to do.
    """

    of: str
    at: Mapping[str, Any] | None = None
    log_read: bool = False
    reached: bool = False

    def to_json(self) -> dict[str, Any]:
        """The end as JSON values in a fixed order."""
        found: dict[str, Any] = {"of": self.of}
        if self.at is not None:
            found["at"] = dict(self.at)
        if self.log_read:
            found["log_read"] = True
        if self.reached:
            found["reached"] = True
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ending:
        """Read the end that `to_json` wrote."""
        return cls(value["of"], value.get("at"), value.get("log_read", False), value.get("reached", False))


def not_as_of_end(table: object, why: str) -> SchemaMismatchError:
    """Rows of a table cannot be had as of the stream's end, and nothing behind it is read."""
    return SchemaMismatchError(
        f"rows of `{table}` cannot be read as of the end of the stream",
        why,
        "start a new stream whose endingPosition lies behind that, or leave endingPosition out",
        code="TR-4410",
    )
