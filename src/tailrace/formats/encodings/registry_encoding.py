"""Keys and values whose schemas a registry keeps: the encodings of Avro and Protobuf but for their values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa

from tailrace.formats.base import SchemaIds, SchemaText
from tailrace.formats.connect.envelopes import Envelopes, frame
from tailrace.formats.connect.schemas import Schema
from tailrace.formats.encodings.records import BinaryFormat, FieldGroup, fields, image_columns, write
from tailrace.formats.kernels import records
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema

#: Schemas of keys and values that are kept: those of a thousand tables.
_KEPT = 2048


@dataclass(frozen=True)
class RegisteredEncoding(ABC):
    """An Encoding of a binary format, which says itself how values look.

    Args:
        envelopes: what they look like.
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
        for when, image in ((records.IF_DELETED, batch.before), (records.IF_KEPT, batch.after)):
            columns = image_columns(table, table.key, schema, image, self.envelopes.modes)
            parts.append(FieldGroup(when, fields(columns, self.format)))
        return write(parts, batch, zigzag=self.format.zigzag)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:
        """See Encoding."""
        table = batch.table
        parts = self._value(batch, _schema(self.envelopes, table, "value")["fields"], now_ms)
        return write([self._opening(table, "value", ids), *parts], batch, zigzag=self.format.zigzag)

    @abstractmethod
    def _value(self, batch: ChangeBatch, envelope: Sequence[Schema], now_ms: int) -> list[FieldGroup]:
        """The parts of a value; `envelope`: the fields of its schema."""

    def _opening(self, table: TableSchema, part: str, ids: SchemaIds) -> FieldGroup:
        opening = frame(_registered(self, table, part), ids) + self.format.opening
        return FieldGroup(records.ALWAYS, opening=opening)


@lru_cache(maxsize=_KEPT)
def _schema(envelopes: Envelopes, table: TableSchema, part: str) -> Schema:
    return envelopes.key(table) if part == "key" else envelopes.value(table)


@lru_cache(maxsize=_KEPT)
def _registered(encoding: RegisteredEncoding, table: TableSchema, part: str) -> SchemaText:
    schema = _schema(encoding.envelopes, table, part)
    name = encoding.envelopes.subject(table.id, part, schema["name"])
    return encoding.format.registered(name, schema)
