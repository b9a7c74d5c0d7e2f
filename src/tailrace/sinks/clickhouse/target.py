"""The table of a target: whose it is, and which columns it has. Pure.

    upsert       ReplacingMergeTree(_tailrace_version, _tailrace_deleted) ORDER BY (the key)
    changelog    MergeTree ORDER BY (_seq)

Of a key's rows ReplacingMergeTree keeps the one with the highest version (`sinks.versions`), at some time;
with FINAL it reads that one alone, or none if it is deleted. The deleted row stays, so that no stale row
brings its key back. A change log keeps all changes, each once (`sinks.clickhouse.division`).

What we know of the table is in its comment, after the word `Tailrace`, and goes with it. An ALTER TABLE sets
the comment together with the columns.

    stream      the stream that owns it; a table of another stream, or of nobody, is not touched
    schema      its columns and its key
    mode        `changelog`, or nothing for rows
    keys        of a change log: the keys of its source tables
    readings    by source table that is read again: the reading's id, and the version that it began with
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.config.sinks import WriteMode
from tailrace.model.table import Column
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.columns import log_columns, row_columns, type_of
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.versions import ReadingStart

#: The format of what the comment notes, and what it begins with.
FORMAT, WORD = 1, "Tailrace "


@dataclass(frozen=True)
class Target:
    """A target's table.

    Args:
        name: the target's name.
        table: the table's name.
        stream: the stream that owns it.
        schema: its columns and its key.
        readings: its source tables that are read again, or were at last.
        mode: what it holds: rows or changes.
        keys: of a change log, the keys of its source tables, as its columns are called.
    """

    name: str
    table: TableName
    stream: StreamId
    schema: TargetSchema
    readings: Mapping[str, ReadingStart] = field(default_factory=dict)
    mode: WriteMode = WriteMode.UPSERT
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """The table's columns, with their types."""
        return (row_columns if self.mode is WriteMode.UPSERT else log_columns)(self.schema)

    @property
    def path(self) -> str:
        """The table's name, quoted."""
        return sql.qualified(self.table)

    @property
    def comment(self) -> str:
        """What the table's comment notes."""
        noted: dict[str, Any] = {
            "v": FORMAT,
            "stream": self.stream.query,
            "pipeline": self.stream.pipeline,
            "target": self.name,
            "schema": json.loads(self.schema.to_json()),
            "readings": {t: {"id": r.id, "first": r.first} for t, r in self.readings.items()},
        }
        if self.mode is not WriteMode.UPSERT:
            noted |= {"mode": self.mode.value, "keys": {t: list(key) for t, key in self.keys.items()}}
        return WORD + json.dumps(noted, separators=(",", ":"))

    def with_reading(self, table: str, reading: ReadingStart) -> Target:
        """This target with a table that is read again; a reading that is noted already stays as it is."""
        known = self.readings.get(table)
        if known is not None and known.id == reading.id:
            return self
        return replace(self, readings={**self.readings, table: reading})

    def type_of(self, column: Column) -> str:
        """The type of a column."""
        return type_of(column, self.schema)
