"""Schema changes as events of the stream: what changed, where in the log, and by which statement. Pure.

A batch that holds schema changes begins with them: its log part and the rows it reads come after. Its end
offset lists them, in log order, so that a sink knows of them before it reads a cell, and a batch that comes
again has the same ones. The next batch's offset drops them.

Schemas in cells remain the truth: a target follows the columns that its rows have. Events tell what schemas
cannot: that a column was renamed rather than dropped and added, which default old rows have, that a table was
truncated or dropped. They never tell a sink to delete rows: `model.reread` does, by the user's settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from tailrace.model.table import Column, TableSchema, without_defaults
from tailrace.model.types import ColumnType


@dataclass(frozen=True)
class SchemaChange:
    """One change of one table.

    Attributes:
        kind: its name in settings and offsets; Flink CDC's where it has one.
    """

    kind: ClassVar[str]


@dataclass(frozen=True)
class ColumnAdded(SchemaChange):
    """A new column.

    Args:
        column: the column.
        default: the value that rows have which existed before, as SQL text; None: NULL, or not known.
    """

    kind = "add.column"
    column: Column
    default: str | None = None


@dataclass(frozen=True)
class ColumnDropped(SchemaChange):
    """A column is gone."""

    kind = "drop.column"
    name: str


@dataclass(frozen=True)
class ColumnRenamed(SchemaChange):
    """A column has another name, and its values."""

    kind = "rename.column"
    old: str
    new: str


@dataclass(frozen=True)
class ColumnAltered(SchemaChange):
    """A column has another type, or may hold NULL now, or no longer."""

    kind = "alter.column.type"
    old: Column
    new: Column


@dataclass(frozen=True)
class KeyAltered(SchemaChange):
    """The key consists of other columns.

    Args:
        old: the former ones; (): there were none, or they are not known.
        new: the present ones; (): the table has no key.
    """

    kind = "alter.key"
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class TableCreated(SchemaChange):
    """A new table."""

    kind = "create.table"


@dataclass(frozen=True)
class TableDropped(SchemaChange):
    """The table is gone, with its rows."""

    kind = "drop.table"


@dataclass(frozen=True)
class TableRenamed(SchemaChange):
    """The table has another name.

    Args:
        new: the name, as `database.table`.
    """

    kind = "rename.table"
    new: str


@dataclass(frozen=True)
class TableTruncated(SchemaChange):
    """All rows are gone."""

    kind = "truncate.table"


@dataclass(frozen=True)
class RowsRewritten(SchemaChange):
    """Rows may have changed, in a way that only reading them tells.

    Args:
        why: what may have changed them.
    """

    kind = "rewrite.rows"
    why: str


#: Every kind of change, by its name.
KINDS: Mapping[str, type[SchemaChange]] = {
    change.kind: change
    for change in (
        ColumnAdded,
        ColumnDropped,
        ColumnRenamed,
        ColumnAltered,
        KeyAltered,
        TableCreated,
        TableDropped,
        TableRenamed,
        TableTruncated,
        RowsRewritten,
    )
}


@dataclass(frozen=True)
class SchemaEvent:
    """The changes that one statement makes to one table.

    Args:
        table: the table, as `database.table`, by its name before the change.
        changes: what changed, in the statement's order.
        ddl: the statement; None where the log has none.
        seq: where in the log, as the `seq` of the changes around it; None where that is not known.
        ts_ms: when, milliseconds since 1970 UTC; None where the log does not tell.
        after: the table's schema afterwards; None if it is gone or not known.
        origin: where in the log, by names of `model.change.ORIGIN`, as far as known; of TRUNCATE only.
        shown: the table's schema in the catalog where `after` is not known; of TRUNCATE only. Later schema
            changes may be in it.
    """

    table: str
    changes: tuple[SchemaChange, ...]
    ddl: str | None = None
    seq: str | None = None
    ts_ms: int | None = None
    after: TableSchema | None = None
    origin: Mapping[str, Any] | None = None
    shown: TableSchema | None = None

    @property
    def truncates(self) -> bool:
        """Whether the statement is a TRUNCATE of the table."""
        return any(isinstance(change, TableTruncated) for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values in a fixed order."""
        found: dict[str, Any] = {"table": self.table, "changes": [_to_json(c) for c in self.changes]}
        for name in ("ddl", "seq", "ts_ms"):
            if (value := getattr(self, name)) is not None:
                found[name] = value
        for name in ("after", "shown"):
            if (schema := getattr(self, name)) is not None:
                found[name] = schema.to_json()
        if self.origin is not None:
            found["origin"] = dict(self.origin)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SchemaEvent:
        """Read the event that `to_json` wrote. Raises KeyError for a kind that is not known."""
        after, shown = (
            None if value.get(name) is None else TableSchema.from_json(value[name])
            for name in ("after", "shown")
        )
        return cls(
            value["table"],
            tuple(_from_json(c) for c in value["changes"]),
            value.get("ddl"),
            value.get("seq"),
            value.get("ts_ms"),
            after,
            value.get("origin"),
            shown,
        )


def schema_events(end: Mapping[str, Any] | None) -> list[SchemaEvent]:
    """The schema changes with which the batch that ends at the offset `end` begins, in log order."""
    return [] if end is None else [SchemaEvent.from_json(e) for e in end.get("schema", ())]


def of_table(events: Iterable[SchemaEvent], table: str) -> list[SchemaChange]:
    """The changes of one table, in log order."""
    return [change for event in events if event.table == table for change in event.changes]


def _to_json(change: SchemaChange) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": change.kind}
    for field in fields(change):
        value = getattr(change, field.name)
        if isinstance(value, Column):
            found[field.name] = {
                "name": value.name,
                "nullable": value.nullable,
                "type": without_defaults(asdict(value.type)),
            }
        else:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _from_json(value: Mapping[str, Any]) -> SchemaChange:
    given = {name: _value(v) for name, v in value.items() if name != "kind"}
    return KINDS[value["kind"]](**given)


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return Column(value["name"], ColumnType.from_json(value["type"]), value["nullable"])
    return tuple(value) if isinstance(value, list) else value
