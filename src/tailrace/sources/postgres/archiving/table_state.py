"""What the catalog says of a table at a moment: all that its rows and its logged changes depend on. Pure.

PostgreSQL's log has no schema changes, nor does it say that a table was not published for a time. But the
catalog tells later whether anything of that kind has happened in between: what is altered gets new numbers
there, even if it is altered back (`wire.contents`, `checks.gaps`). So two equal identities of a table, of two
moments, mean that the log between them has all of its changes, and that its rows changed by these only.

Streams forgive some alterations, as they may read a table again. Here nothing is forgiven but a new file
(VACUUM FULL, CLUSTER, TRUNCATE), and only where the log tells all that a new file can mean
(`Publication.tells_new_files`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.model.table import TableSchema
from tailrace.sources.postgres.catalog import CatalogTable
from tailrace.sources.postgres.replication.publication import Publication
from tailrace.sources.postgres.wire.relation import Relation

_VERSION = 1
#: Replica identities by which the log names the row before a change.
_FULL, _BY_COLUMNS = "f", "di"
#: The place of the file in `Contents.text`.
_FILE = 3


@dataclass(frozen=True)
class TableState:
    """A table at a moment.

    Args:
        identity: what its rows and its changes in the log depend on.
        oid: its object id.
        columns: of each published column the name, the type's oid and the modifier, as a Relation message has
            them.
    """

    identity: str
    oid: int
    columns: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, table: CatalogTable, published: Publication) -> TableState:
        """The state of a table that is published."""
        columns = tuple(
            (column.name, type_, modifier)
            for column, (_, type_, modifier) in zip(table.whole.columns, table.numbered, strict=True)
        )
        return cls(_identity(table, published), table.oid, columns)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        columns = [list(column) for column in self.columns]
        return {"v": _VERSION, "identity": self.identity, "oid": self.oid, "columns": columns}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableState | None:
        """What `to_json` wrote; None: a newer version wrote it.

        Raises KeyError, TypeError or ValueError.
        """
        if value["v"] != _VERSION:
            return None
        columns = tuple((str(name), int(type_), int(modifier)) for name, type_, modifier in value["columns"])
        return cls(str(value["identity"]), int(value["oid"]), columns)

    def difference(self, table: TableSchema, relation: Relation) -> str:
        """How a Relation message contradicts the state of a table; "" if its changes can be read by it."""
        if relation.id != table.id:
            return f"it was renamed to `{relation.id}`" if relation.oid == self.oid else ""
        if relation.oid != self.oid:
            return "another table has its name"
        if [(c.name, c.type, c.modifier) for c in relation.columns] != list(self.columns):
            return f"it has the columns {', '.join(c.name for c in relation.columns)}"
        named = {c.name for c in relation.columns if c.in_identity}
        if relation.identity == _FULL:
            return ""
        if relation.identity not in _BY_COLUMNS or named != set(table.key):
            return f"its REPLICA IDENTITY is another one: {', '.join(sorted(named)) or 'none'}"
        return ""


def _identity(table: CatalogTable, published: Publication) -> str:
    *front, contents = table.identity_text.split("/")
    parts = contents.split(".")
    if table.kind != "p" and published.tells_new_files(table.oid):
        del parts[_FILE]
    unlogged = "unlogged" if table.unlogged else ""
    return "/".join([published.identity, *front, ".".join(parts), unlogged])
