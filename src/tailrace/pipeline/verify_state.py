"""What is known of the comparisons of a pipeline's tables with their targets, kept beside the checkpoint.

    <checkpoint>/_tailrace/verify.json    {"v": 1, "batch": 7, "tables": {"delta": {"shop.orders": {...}}},
                                           "asked": [{"id": "s1", "type": "verify", "tables": [...]}]}

Only the process that runs the pipeline writes it (`tailrace.verify.schedule`); metrics and `tailrace status`
read it. So a schedule goes on after a restart, and a signal that was accepted is not forgotten: `batch` is
the newest one whose answers to signals have been noted, before Spark recorded it as done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tailrace.spark.checkpoint import Directory

_NAME = "_tailrace/verify.json"
_VERSION = 1


@dataclass(frozen=True)
class Comparison:
    """What is known of the comparisons of one table with its target in one sink.

    Args:
        since_ms: when the table was first seen by the schedule; times are milliseconds since 1970 UTC by the
            driver's clock.
        begun_ms: when the last attempt began.
        ended_ms: when that one ended; None: it runs, or was killed.
        attempts: attempts in a row that were killed.
        at_ms: when the table was compared last; None: never.
        batch: number of the batch whose target was compared.
        source_rows: rows of the source, with those of other tables of the target.
        target_rows: rows of the target.
        differences: rows that differed, at least; 0: none.
        found: rows that differed before the repair, where there was one.
        request: the request to read rows again that awaits another comparison.
        reason: why the last attempt could not compare it; "": it could.
    """

    since_ms: int
    begun_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    at_ms: int | None = None
    batch: int | None = None
    source_rows: int | None = None
    target_rows: int | None = None
    differences: int | None = None
    found: int | None = None
    request: str | None = None
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the last attempt has not ended."""
        return self.begun_ms is not None and (self.ended_ms is None or self.ended_ms < self.begun_ms)


@dataclass(frozen=True)
class Asked:
    """A comparison that a signal asks for.

    Args:
        id: the signal's id.
        type: `verify` or `repair`.
        tables: names of tables; none: all.
    """

    id: str
    type: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class VerifyState:
    """The whole file.

    Args:
        batch: the newest batch whose answers are noted.
        tables: by the sink's name and the table's.
        asked: what signals ask for and is not done yet, the oldest first.
    """

    batch: int = -1
    tables: Mapping[str, Mapping[str, Comparison]] = field(default_factory=dict)
    asked: tuple[Asked, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        tables = {
            sink: {name: asdict(comparison) for name, comparison in of_sink.items()}
            for sink, of_sink in self.tables.items()
        }
        return {"v": _VERSION, "batch": self.batch, "tables": tables, "asked": list(map(asdict, self.asked))}

    @classmethod
    def read(cls, checkpoint: str) -> VerifyState:
        """The state of the pipeline with a checkpoint; an empty one if there is none that can be read."""
        text = Directory(checkpoint).read(_NAME)
        try:
            value = json.loads(text or "null")
            if value is None or value["v"] != _VERSION:
                return cls()
            known = {f.name for f in fields(Comparison)}
            tables = {
                sink: {
                    name: Comparison(**{k: v for k, v in one.items() if k in known})
                    for name, one in of_sink.items()
                }
                for sink, of_sink in value["tables"].items()
            }
            asked = tuple(Asked(a["id"], a["type"], tuple(a["tables"])) for a in value["asked"])
            return cls(value["batch"], tables, asked)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def write(self, checkpoint: str) -> None:
        """Store the state."""
        Directory(checkpoint, private=True).write(_NAME, json.dumps(self.to_json()))
