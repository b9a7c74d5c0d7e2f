"""Keys and values with registered schemas: the encodings of Avro and Protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa

from tailrace.formats.base import SchemaIds, SchemaText
from tailrace.formats.connect.builders import Schema
from tailrace.formats.connect.envelopes import Envelopes, frame
from tailrace.formats.connect.source_block import POSTGRES
from tailrace.formats.encodings.records import (
    BinaryFormat,
    FieldGroup,
    FieldValues,
    closing_columns,
    fields,
    image_columns,
    source_columns,
    transaction_columns,
    write,
)
from tailrace.formats.kernels import records
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema

#: Size of the caches of schemas: keys and values of a thousand tables.
_CACHE_SIZE = 2048


@dataclass(frozen=True)
class RegisteredEncoding:
    """The Encoding of a binary format, which subclasses name.

    Args:
        envelopes: schemas and names of messages.
    """

    envelopes: Envelopes
    has_tombstones: bool = True
    format: ClassVar[BinaryFormat]

    def key_schema(self, table: TableSchema) -> SchemaText | None:
        """See Encoding."""
        return _registered(self, table, "key") if table.key else None

    def value_schema(self, table: TableSchema) -> SchemaText:
        """See Encoding."""
        return _registered(self, table, "value")

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:
        """See Encoding."""
        table = batch.table
        if not table.key:
            return pa.nulls(len(batch), pa.binary())
        schema = _schema(self.envelopes, table, "key")
        parts = [self._opening(table, "key", ids)]
        own = {**schema, "fields": schema["fields"][: len(table.key)]}
        for when, image in ((records.IF_DELETED, batch.before), (records.IF_KEPT, batch.after)):
            columns = image_columns(table, table.key, own, image, self.envelopes.modes)
            parts.append(FieldGroup(when, fields(columns, self.format)))
        if (added := self.envelopes.topics.key_field(table.id)) is not None:
            constant = FieldValues(schema["fields"][-1], None, added[1])
            last = fields([constant], self.format, len(table.key) + 1)
            parts.append(FieldGroup(records.ALWAYS, last))
        return write(parts, batch, zigzag=self.format.zigzag)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:
        """See Encoding."""
        table, of, format_ = batch.table, self.envelopes, self.format
        before, after, source, transaction, *closing = _schema(of, table, "value")["fields"]
        names = [column.name for column in table.columns]
        is_postgres = of.connector == POSTGRES
        unknown = batch.absent_after if is_postgres else ()
        sides = (
            (
                1,
                batch.before,
                image_columns(table, names, before, batch.before, of.modes, filled=is_postgres),
            ),
            (2, batch.after, image_columns(table, names, after, batch.after, of.modes, unknown=unknown)),
        )
        images = [format_.optional_struct(columns, number, image) for number, image, columns in sides]
        parts = [
            self._opening(table, "value", ids),
            *images,
            format_.struct(source_columns(batch, source, of.source), 3),
            format_.optional_struct(transaction_columns(batch, transaction), 4, batch.order),
            FieldGroup(records.ALWAYS, fields(closing_columns(batch, closing, now_ms), format_, 5)),
        ]
        written = [part for part in parts if part is not None]
        if not is_postgres:
            return write(written, batch, zigzag=format_.zigzag)
        whole_rows = f"ALTER TABLE {table.id.sql} REPLICA IDENTITY FULL"
        return write(written, batch, zigzag=format_.zigzag, whole_rows=whole_rows)

    def _opening(self, table: TableSchema, part: str, ids: SchemaIds) -> FieldGroup:
        opening = frame(_registered(self, table, part), ids) + self.format.opening
        return FieldGroup(records.ALWAYS, opening=opening)


@lru_cache(maxsize=_CACHE_SIZE)
def _schema(envelopes: Envelopes, table: TableSchema, part: str) -> Schema:
    return envelopes.key(table) if part == "key" else envelopes.value(table)


@lru_cache(maxsize=_CACHE_SIZE)
def _registered(encoding: RegisteredEncoding, table: TableSchema, part: str) -> SchemaText:
    schema = _schema(encoding.envelopes, table, part)
    name = encoding.envelopes.subject(table.id, part, schema["name"])
    return encoding.format.registered(name, schema)
