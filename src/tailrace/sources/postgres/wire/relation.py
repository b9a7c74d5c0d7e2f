"""Relation messages: the schema of a table in the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import DecodeError
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources.postgres.wire.types import PostgresTypes

#: Replica identities that make the flagged columns identify a row; in FULL all of them are flagged.
_BY_COLUMNS = "di"


@dataclass(frozen=True)
class RelationColumn:
    """A column.

    Args:
        name: its name.
        in_identity: whether it belongs to the replica identity.
        type: oid of its type.
        modifier: `atttypmod`.
    """

    name: str
    in_identity: bool
    type: int
    modifier: int


@dataclass(frozen=True)
class Relation:
    """A Relation message.

    Args:
        oid: oid of the table.
        id: its name.
        identity: replica identity: d default, n nothing, f full, i index.
        columns: in the order of the tuples.
    """

    oid: int
    id: TableId
    identity: str
    columns: tuple[RelationColumn, ...]

    @classmethod
    def parse(cls, body: bytes) -> Relation:
        """The relation of a message without its letter and xid.

        Raises:
            DecodeError: it is malformed.
        """
        try:
            (oid,) = struct.unpack_from(">I", body)
            schema, at = _text(body, 4)
            name, at = _text(body, at)
            identity, count = struct.unpack_from(">cH", body, at)
            at += 3
            columns = []
            for _ in range(count):
                flags = body[at]
                column, at = _text(body, at + 1)
                columns.append(RelationColumn(column, bool(flags & 1), *struct.unpack_from(">Ii", body, at)))
                at += 8
            if at != len(body) or len({c.name for c in columns}) != count:
                raise ValueError
            return cls(oid, TableId(schema or "pg_catalog", name), identity.decode("ascii"), tuple(columns))
        except (struct.error, ValueError, IndexError) as error:  # UnicodeDecodeError is a ValueError
            raise DecodeError("a Relation message of the log cannot be read", code="TR-5201") from error

    @property
    def lacking(self) -> tuple[str, ...]:
        """Columns missing from an old row of which only the key is sent."""
        return tuple(c.name for c in self.columns if not c.in_identity)

    def schema(
        self,
        types: PostgresTypes,
        key: tuple[str, ...],
        known: TableSchema | None,
        unfit: Callable[[str], str | None],
    ) -> TableSchema:
        """The table's schema.

        Args:
            types: the database's types.
            key: key columns, used as long as the table has them, and its primary key, if that is its replica
                identity, is no other one; else the replica identity is used, if it has columns, else the
                columns of the same numbers, if the table has columns of the same types.
            known: the schema in the catalog; used if it has these columns of these types, since it has what a
                message lacks: which columns can be NULL, and the key's order.
            unfit: `SourceOptions.unfit`.
        """
        found = tuple(
            Column(c.name, types.column_type(c.type, c.modifier, unfit=unfit(f"{self.id}.{c.name}")))
            for c in self.columns
        )
        names = {c.name for c in found}
        identity: tuple[str, ...] = ()
        if self.identity in _BY_COLUMNS:
            identity = tuple(c.name for c in self.columns if c.in_identity)
        had_another = self.identity == "d" and identity and not set(identity).issuperset(key)
        if not key or not names.issuperset(key) or had_another:
            key = identity
            if known is not None and set(known.key) == set(key):
                key = known.key
            elif known is not None and not key:
                key = _renamed_key(known, found)
        if known is not None and [(c.name, c.type) for c in known.columns] == [
            (c.name, c.type) for c in found
        ]:
            found = known.columns
        return TableSchema(self.id, found, key)


def _renamed_key(known: TableSchema, found: tuple[Column, ...]) -> tuple[str, ...]:
    """The key of a table whose columns had other names; () where it may have had other columns."""
    if [c.type for c in known.columns] != [c.type for c in found]:
        return ()
    names = {before.name: now.name for before, now in zip(known.columns, found, strict=True)}
    return tuple(names[name] for name in known.key)


def _text(body: bytes, at: int) -> tuple[str, int]:
    """A text that ends in a zero byte, and the offset behind it."""
    end = body.index(0, at)
    return body[at:end].decode(), end + 1
