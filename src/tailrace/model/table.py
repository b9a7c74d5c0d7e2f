"""Tables: identity, columns and key. Pure values, the same for every database."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.model.source_type import Declaration
from tailrace.model.types import ColumnType
from tailrace.printable import printable


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table's name in its server.

    Its text, `database.table`, is what patterns are matched against and what is stored. Only a database
    with a dot in its name makes it ambiguous: a stream has `a`.`b.c` or `a.b`.`c`, never both.

    Args:
        database: MySQL database, or PostgreSQL schema.
        table: the table's name, unquoted.
    """

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def is_ambiguous(self) -> bool:
        """Whether another table may have the same text."""
        return str(self).count(".") > 1

    def is_namesake(self, other: TableId) -> bool:
        """Whether it is another table with the same text."""
        return self != other and str(self) == str(other)

    @property
    def quoted(self) -> str:
        """The name for people, database and table told apart."""
        return f"`{self.database}`.`{self.table}`"

    @property
    def sql(self) -> str:
        """The name in a statement for PostgreSQL that people are shown."""
        return ".".join(
            '"' + printable(name).replace('"', '""') + '"' for name in (self.database, self.table)
        )

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Parse what `str()` printed (the database ends at the first dot)."""
        database, _, table = text.partition(".")
        return cls(database, table)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type and whether it may hold NULL.

    Args:
        name: the name.
        type: the type.
        nullable: whether rows may have NULL.
        gone: declared NOT NULL, and NULL in rows that were selected when the source had dropped the column.
        declared: what schemas of messages say of it besides its type, in changes for a sink.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    gone: bool = False
    declared: Declaration | None = None

    def to_json(self) -> dict[str, Any]:
        """The column as JSON values; `from_json` reads them."""
        found = {"name": self.name, "nullable": self.nullable, "type": without_defaults(asdict(self.type))}
        if self.gone:
            found["gone"] = True
        if self.declared is not None:
            found["declared"] = self.declared.to_json()
        return found

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Column:
        """Read the column that `to_json` wrote."""
        declared = value.get("declared")
        return cls(
            value["name"],
            ColumnType.from_json(value["type"]),
            value["nullable"],
            value.get("gone", False),
            None if declared is None else Declaration.from_json(declared),
        )


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in order and the names of its key columns (empty: no key).

    A schema read from the catalog equals one read from the log's TABLE_MAP of the same table.
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = field(default=())

    @cached_property
    def arrow(self) -> pa.StructType:
        """The Arrow type of one row image; every field is nullable."""
        return pa.struct([pa.field(c.name, c.type.arrow) for c in self.columns])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of columns and key, 16 hex digits: equal iff a sink can treat two schemas as one."""
        described: list[Any] = [[(c.name, str(c.type.arrow)) for c in self.columns], self.key]
        declared = [None if c.declared is None else c.declared.to_json() for c in self.columns]
        if any(declared):
            described.append(declared)
        text = json.dumps(described)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def text(self) -> bytes:
        """`to_json` as UTF-8 text, which every cell carries."""
        return json.dumps(self.to_json()).encode()

    def column(self, name: str) -> Column:
        """The column called `name`. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values; `from_json` reads them."""
        return {
            "id": [self.id.database, self.id.table],
            "columns": [c.to_json() for c in self.columns],
            "key": list(self.key),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableSchema:
        """Read the schema that `to_json` wrote."""
        return cls(
            TableId(*value["id"]),
            tuple(map(Column.from_json, value["columns"])),
            tuple(value["key"]),
        )


def without_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a column type that differ from their defaults."""
    return {k: v for k, v in fields.items() if v is not None and v is not False and v != ()}
