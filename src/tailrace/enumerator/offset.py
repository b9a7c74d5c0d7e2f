"""The stream offset: the whole state of a stream, as the JSON that Spark stores.

    {"v": 1,
     "mode": "initial",                                   how the stream was started
     "log": {...position...},                             the log is read up to here
     "tables": {"shop.orders": {"c": [42], "n": 42, "e": 1000}},   snapshot unfinished: cursor, rows, estimate
     "done": {"shop.items": 7, "shop.old": null}}         finished: rows read; null: never snapshotted

A cursor is the greatest key already read, null before the first row. The offset's size does not grow with
rows or chunks. Spark compares offsets as text, so the order of keys is fixed. The first offset, which Spark
requests twice and never stores, is the constant {"v": 1}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.errors import StateError
from tailrace.model.split import Key
from tailrace.model.table import TableId

VERSION = 1


@dataclass(frozen=True)
class TableProgress:
    """Progress of an unfinished snapshot.

    Args:
        cursor: greatest key read, None before the first row.
        rows: rows planned so far.
        estimated: total rows, as the catalog estimated when the table was added.
    """

    cursor: Key | None = None
    rows: int = 0
    estimated: int = 0


@dataclass(frozen=True)
class StreamOffset:
    """A stream's state between two batches.

    Args:
        mode: `startingPosition` at the start of the stream; "" before the first batch.
        log: position up to which the log is read, as JSON; None before the first batch.
        tables: unfinished snapshots by table name.
        done: finished snapshots by table name: rows read, or None for tables followed without a snapshot.
    """

    mode: str = ""
    log: Mapping[str, Any] | None = None
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    done: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether no batch has been planned yet."""
        return self.log is None

    def knows(self, name: str) -> bool:
        """Whether the table is part of the stream."""
        return name in self.tables or name in self.done

    def table_ids(self) -> list[TableId]:
        """The tables of the stream, dropped ones too."""
        return [TableId.parse(name) for name in (*self.tables, *self.done)]

    def with_table(self, name: str, progress: TableProgress) -> StreamOffset:
        """A copy with the snapshot of `name` unfinished, at `progress`."""
        return replace(self, tables={**self.tables, name: progress})

    def with_done(self, name: str, rows: int | None) -> StreamOffset:
        """A copy with the snapshot of `name` finished after `rows` rows (None: without a snapshot)."""
        tables = {n: p for n, p in self.tables.items() if n != name}
        return replace(self, tables=tables, done={**self.done, name: rows})

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON values in a fixed order."""
        if self.log is None:
            return {"v": VERSION}
        return {
            "v": VERSION,
            "mode": self.mode,
            "log": dict(self.log),
            "tables": {
                n: {"c": None if p.cursor is None else list(p.cursor), "n": p.rows, "e": p.estimated}
                for n, p in sorted(self.tables.items())
            },
            "done": dict(sorted(self.done.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read the offset that `to_json` wrote.

        Raises:
            StateError: a newer Tailrace wrote it, or it is not an offset of Tailrace.
        """
        version = value.get("v")
        if version != VERSION:
            raise StateError(
                "the checkpoint's offset cannot be read",
                f"found version {version!r}, this Tailrace supports version {VERSION}",
                "use the version of Tailrace that wrote it, or a newer one",
                code="TR-6001",
            )
        if "log" not in value:
            return cls()
        return cls(
            value["mode"],
            value["log"],
            {
                n: TableProgress(None if p["c"] is None else tuple(p["c"]), p["n"], p["e"])
                for n, p in value["tables"].items()
            },
            dict(value["done"]),
        )
