"""Signals, as Debezium's users know them: what somebody asks of a running stream, and what became of it.

    {"id": "ad-hoc-1", "type": "execute-snapshot", "data": {"data-collections": ["shop[.]orders"]}}

A signal comes as a row of a table, a message of a topic or a file. Whatever it holds, it is answered, and
never an error of the stream: `read_signal` notes what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Most characters of a signal's data; Debezium's table holds 2048.
MOST_DATA = 65_536
#: Most characters of its id and type, and of the reason in an answer.
MOST_NAME = 255
MOST_REASON = 1_000
#: How deep its data may be.
_MOST_DEPTH = 8

#: What became of a signal.
Status = Literal[
    "COMPLETED", "ABORTED", "SKIPPED", "PAUSED", "RESUMED", "STOPPED", "UNKNOWN_SCHEMA", "ACCEPTED"
]


@dataclass(frozen=True)
class Signal:
    """A signal.

    Args:
        id: its sender's name for it; notifications carry it.
        type: what it asks for.
        data: its arguments.
        problem: why it cannot be obeyed, None if nothing is wrong with its form.
    """

    id: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The signal as JSON values in a fixed order."""
        found: dict[str, Any] = {"id": self.id, "type": self.type, "data": dict(self.data)}
        if self.problem is not None:
            found["problem"] = self.problem
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Signal:
        """Read the signal that `to_json` wrote."""
        return cls(value["id"], value["type"], value["data"], value.get("problem"))


@dataclass(frozen=True)
class Answer:
    """What became of a signal.

    Args:
        id: the signal's id.
        signal: its type.
        status: what became of it.
        reason: why, or what was done.
        tables: the tables that it concerned; patterns where no table matches.
    """

    id: str
    signal: str
    status: Status
    reason: str = ""
    tables: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values in a fixed order."""
        return {
            "id": self.id,
            "signal": self.signal,
            "status": self.status,
            "reason": self.reason,
            "tables": list(self.tables),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Answer:
        """Read the answer that `to_json` wrote."""
        return cls(value["id"], value["signal"], value["status"], value["reason"], tuple(value["tables"]))


def read_signal(id_: object, type_: object, data: object) -> Signal:
    """A signal of whatever somebody sent.

    Args:
        id_: its id, a text.
        type_: its type, a text.
        data: its arguments: a JSON object, as text or parsed; None, or "": none.
    """
    name = _text(id_) if isinstance(id_, str) else ""
    if not isinstance(type_, str) or not type_:
        return Signal(name, "", problem="it has no type")
    kind = _text(type_.strip())
    if isinstance(data, str):
        if len(data) > MOST_DATA:
            return Signal(name, kind, problem=f"its data has more than {MOST_DATA:,} characters")
        try:
            data = json.loads(data) if data.strip() else {}
        except (ValueError, RecursionError):
            return Signal(name, kind, problem="its data is not JSON")
    if data is None:
        data = {}
    if not isinstance(data, dict):
        return Signal(name, kind, problem="its data is not a JSON object")
    if not _fits_an_offset(data):
        return Signal(name, kind, problem="its data holds what is no JSON, or too much")
    return Signal(name, kind, data)


def _text(given: str) -> str:
    """A name without what UTF-8 lacks."""
    return given[:MOST_NAME].encode("utf-8", "replace").decode()


def _fits_an_offset(data: Mapping[str, Any]) -> bool:
    """Whether data can be stored as JSON by anybody: Python reads NaN, lone surrogates and any depth."""
    inner: list[Any] = [data]
    for _ in range(_MOST_DEPTH):
        inner = [
            value
            for outer in inner
            if isinstance(outer, dict | list)
            for value in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if inner:
        return False
    try:
        return len(json.dumps(data, allow_nan=False, ensure_ascii=False).encode()) <= 4 * MOST_DATA
    except ValueError:
        return False
