"""Parked tables: those that the stream leaves out while all others go on (docs/design/0008-parking.md).

A stream offset holds them by name, under `parked`:

    "shop.t": {"log": {...position...},      its changes are in the targets up to here
               "had": "all",                 what of its rows the targets have had: nothing, part, all
               "rows": 7,                    rows of its first snapshot, null: it had none
               "code": "TR-7001", "message": "...", "detail": "...", "hint": "...",   why; absent: null
               "resume": {...position...},   to be resumed by the first batch that begins here or later
               "replay": true}               ... with the changes from `log` on, rather than its rows
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tailrace.errors import TailraceError, coded
from tailrace.printable import printable, printable_lines

#: What of a table's rows its targets have had.
Had = Literal["nothing", "part", "all"]


@dataclass(frozen=True)
class Reason:
    """Why a table is parked: an error's parts.

    Args:
        message: what cannot be handled.
        code: of the condition, None if somebody parked the table by hand.
        detail: what was found.
        hint: how to fix it.
    """

    message: str
    code: str | None = None
    detail: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: TailraceError) -> Reason:
        """An error as a reason."""
        return cls(error.message, error.code, error.detail, error.hint)

    def json_values(self) -> dict[str, str | None]:
        """As `TailraceError.json_values`."""
        return {"code": self.code, "message": self.message, "detail": self.detail, "hint": self.hint}

    def __str__(self) -> str:
        lines = [printable(coded(self.message, self.code))]
        lines += [f"Detail: {printable(self.detail)}"] if self.detail else []
        lines += [f"Hint: {printable_lines(self.hint)}"] if self.hint else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Parked:
    """A table that is left out.

    Args:
        reason: why.
        log: position up to which its changes are in the targets, as JSON.
        had: what of its rows the targets have had.
        rows: rows of its first snapshot, None if it had none.
        resume: the first batch that begins at this position or behind it resumes the table; None: it stays
            parked.
        replay: whether it is resumed with the changes since `log`, rather than with its rows.
    """

    reason: Reason
    log: Mapping[str, Any] | None = None
    had: Had = "nothing"
    rows: int | None = None
    resume: Mapping[str, Any] | None = None
    replay: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON values in a fixed order."""
        found: dict[str, Any] = {
            "log": None if self.log is None else dict(self.log),
            "had": self.had,
            "rows": self.rows,
            "message": self.reason.message,
        }
        for name in ("code", "detail", "hint"):
            if (value := getattr(self.reason, name)) is not None:
                found[name] = value
        if self.resume is not None:
            found["resume"] = dict(self.resume)
        if self.replay:
            found["replay"] = True
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Parked:
        """Read the entry that `to_json` wrote."""
        reason = Reason(value["message"], value.get("code"), value.get("detail"), value.get("hint"))
        return cls(
            reason,
            value["log"],
            value["had"],
            value["rows"],
            value.get("resume"),
            value.get("replay", False),
        )


def parked_tables(end: Mapping[str, Any] | None) -> dict[str, Parked]:
    """The parked tables of a stream offset as JSON."""
    return {} if end is None else {n: Parked.from_json(p) for n, p in end.get("parked", {}).items()}


def without_tables(end: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """The end offset of a batch as sinks may see it that do not receive `tables`.

    Without their entries a sink neither deletes the rows of a table whose rereading ends in the batch, nor
    changes the target's schema, nor claims a target.
    """
    found = dict(end)
    for name in ("tables", "done", "again"):
        if name in found:
            found[name] = {table: value for table, value in found[name].items() if table not in tables}
    if "schema" in found:
        found["schema"] = [event for event in found["schema"] if event["table"] not in tables]
    return found
