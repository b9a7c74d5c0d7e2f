"""Names and literals in ClickHouse's SQL, and the table of a target. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.replica.dialect import OWN_PREFIX, TableName, require_unreserved
from tailrace.sinks.route import Router
from tailrace.sinks.tables.text_form import as_text

_SYSTEM = ("system", "information_schema")
#: Of what ClickHouse makes the name of a directory, escaped.
_MOST_BYTES = 200
_ESCAPES = {"\\": "\\\\", "'": "\\'", "`": "\\`", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TABLE = str.maketrans(_ESCAPES)


def name(identifier: str) -> str:
    """An identifier, quoted."""
    return f"`{identifier.translate(_TABLE)}`"


def names(identifiers: Iterable[str]) -> str:
    """Identifiers, quoted, with commas."""
    return ", ".join(map(name, identifiers))


def text(value: str) -> str:
    """A text as a literal."""
    return f"'{value.translate(_TABLE)}'"


def literals(array: pa.Array) -> list[str]:
    """Values as literals that ClickHouse reads as values of their column's type."""
    if pa.types.is_binary(array.type):
        return ["NULL" if v is None else f"'{_bytes(v)}'" for v in array.to_pylist()]
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp("us"))
    if pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    return ["NULL" if v is None else text(v) for v in as_text(array).to_pylist()]


def _bytes(value: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in value)


@dataclass(frozen=True)
class Place:
    """Where targets and Tailrace's own tables are.

    Args:
        database: that of targets without one, and of our own tables.
    """

    database: str

    def table(self, target: str) -> TableName:
        """The table of a target.

        Raises:
            ConfigError: no target may have that name.
        """
        schema, dot, table = target.partition(".")
        if not dot:
            schema, table = self.database, target
        found = TableName(schema, table)
        require_unreserved(target, found, self.database, schema.lower() in _SYSTEM)
        if not schema or not table or max(len(_escaped(schema)), len(_escaped(table))) > _MOST_BYTES:
            raise ConfigError(
                f"target `{target}` cannot be the name of a table",
                f"needed a database and a table of at most {_MOST_BYTES} bytes, where a character other than"
                " a letter, a digit or `_` counts three for each of its bytes",
                "route the table to another name, or leave it out of `tables`",
                code="TR-1507",
            )
        return found

    def own(self, table: str) -> str:
        """The name of one of our own tables, quoted."""
        return qualified(TableName(self.database, f"{OWN_PREFIX}_{table}"))

    def location(self, router: Router, table: TableId) -> str:
        """The place of a table's rows, which no other target may have."""
        return qualified(self.table(router.target(table)))


def qualified(table: TableName) -> str:
    """A table's name with its database, quoted."""
    return f"{name(table.schema)}.{name(table.table)}"


def _escaped(identifier: str) -> bytes:
    """The name of an identifier's directory."""
    return b"".join(
        c.encode() if c.isascii() and (c.isalnum() or c == "_") else b"%xx" * len(c.encode())
        for c in identifier
    )
