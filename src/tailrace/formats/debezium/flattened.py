"""Flat rows (`flat-json`, `flat-avro`): what Debezium's transform ExtractNewRecordState makes of messages.

    value    the columns of the row after the change, then `__deleted`, then the added fields
    headers  those of the message, then the added ones
    delete   `tombstone`                 no value: the tombstone alone
             `rewrite`                   the deleted row, with `__deleted` "true"
             `rewrite-with-tombstone`    the same, then the tombstone

Columns are written as in the envelope, their schema is that of `after`, not optional. Keys and topics are
Debezium's. Logical messages have no row and stay as they are, as with the transform.

Source: Debezium documentation, "New Record State Extraction"; debezium/debezium v3.6.1
(`ExtractNewRecordState`, `AbstractExtractRecordStrategy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.flat_fields import DELETED, AddedField
from tailrace.errors import SinkError
from tailrace.formats.base import SchemaIds, SchemaText
from tailrace.formats.connect.builders import Schema, primitive
from tailrace.formats.connect.envelopes import Envelopes, frame
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.schemas import row_schema
from tailrace.formats.connect.source_block import POSTGRES
from tailrace.formats.debezium.added_fields import (
    added_schema,
    added_values,
    as_json,
    check_fields,
    header_values,
    of_table,
    tombstone_headers,
)
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.avro import AVRO, AvroEncoding
from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.layout import Cell, dumps
from tailrace.formats.encodings.records import FieldGroup, FieldValues, fields, image_columns, write
from tailrace.formats.kernels import records, value_kinds
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableSchema

_DELETED_SCHEMA = primitive("string", DELETED, optional=True)


@dataclass(frozen=True)
class Flat:
    """What flat rows have.

    Args:
        added: the fields after the columns.
        headers: the fields in headers.
        has_rows_of_deletes: whether a delete has its row, with DELETED, rather than no value.
        has_tombstones: whether a message without a value follows a delete.
    """

    added: Sequence[AddedField] = ()
    headers: Sequence[AddedField] = ()
    has_rows_of_deletes: bool = False
    has_tombstones: bool = False

    def check(self, connector: str) -> None:
        """Check that messages of a connector have the fields.

        Raises:
            ConfigError: they have not.
        """
        check_fields(self.added, connector, "add-fields")
        check_fields(self.headers, connector, "add-headers")

    def schema(self, table: TableSchema, envelopes: Envelopes) -> Schema:
        """The Connect schema of a table's rows.

        Raises:
            SinkError: a column has the name of an added field, or cannot be one.
        """
        own = [_DELETED_SCHEMA] if self.has_rows_of_deletes else []
        own += [added_schema(added, table, envelopes) for added in of_table(self.added, table)]
        names = {schema["field"] for schema in own}
        for column in table.columns:
            if column.name in names:
                raise SinkError(
                    f"column `{column.name}` of table `{table.id}` has the name of an added field",
                    f"flat rows have the fields {', '.join(f'`{name}`' for name in sorted(names))}",
                    "set `add-fields-prefix`, or rename the column with a transform",
                    code="TR-7005",
                )
        return row_schema(table, envelopes.topics.topic(table.id), envelopes.modes, own)

    def values(self, batch: ChangeBatch, now_ms: int, envelopes: Envelopes) -> list[FieldValues]:
        """The fields behind the columns, in their order."""
        found = list(added_values(self.added, batch, now_ms, envelopes))
        if self.has_rows_of_deletes:
            marks = pc.if_else(pa.array(operations(batch) == OP_DELETE), "true", "false")
            found.insert(0, FieldValues(_DELETED_SCHEMA, Cell("", marks, value_kinds.STRING)))
        return found

    def with_rows(self, batch: ChangeBatch) -> tuple[ChangeBatch, pa.Array | None]:
        """The changes that have a row, and for each change the index of its row among them; None: all."""
        kept = operations(batch) != OP_DELETE
        if self.has_rows_of_deletes or kept.all():
            return batch, None
        return batch.take(pa.array(np.flatnonzero(kept))), pa.array(np.cumsum(kept) - 1, mask=~kept)


@dataclass(frozen=True)
class FlatHeaders:
    """The added headers.

    Args:
        fields: what they show.
        envelopes: schemas and names of messages.
        schemas: whether values carry their Connect schema.
    """

    fields: Sequence[AddedField]
    envelopes: Envelopes
    schemas: bool

    def values(self, batch: ChangeBatch, now_ms: int) -> Mapping[str, pa.Array]:
        """Each header's value for each change; none for messages without an envelope."""
        if batch.table == MESSAGES:
            return {}
        return header_values(self.fields, batch, now_ms, self.envelopes, schemas=self.schemas)

    def of_tombstones(self, rows: int) -> Mapping[str, pa.Array]:
        """Each header's value for each tombstone."""
        return tombstone_headers(self.fields, rows, schemas=self.schemas)


@dataclass(frozen=True)
class FlatEncoding:
    """Values as flat rows in JSON, keys as Debezium's.

    Args:
        format: writes keys, and rows as objects; with their schemas, if it has them.
        flat: what is written.

    Raises:
        ConfigError: the source's kind has no such field.
    """

    format: DebeziumFormat
    flat: Flat

    def __post_init__(self) -> None:
        self.flat.check(self.format.envelopes.connector)

    @property
    def has_tombstones(self) -> bool:
        """See Encoding."""
        return self.flat.has_tombstones

    def key_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def value_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:  # noqa: ARG002 - has no schemas
        """See Encoding."""
        return self.format.keys(batch)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:  # noqa: ARG002
        """See Encoding.

        Raises:
            SinkError: a column has the name of an added field, or cannot be one.
        """
        if batch.table == MESSAGES:
            return self.format.values(batch, now_ms)
        envelopes = self.format.envelopes
        schema = self.flat.schema(batch.table, envelopes)
        kept, row_of = self.flat.with_rows(batch)
        if not len(kept):
            return pa.nulls(len(batch), pa.binary())
        added = [
            as_json(values, len(kept), f",{dumps(values.schema['field'])}:")
            for values in self.flat.values(kept, now_ms, envelopes)
        ]
        rows = self.format.rows(kept, added, schema if self.format.schemas else None)
        return rows if row_of is None else rows.take(row_of)


@dataclass(frozen=True)
class FlatAvroEncoding:
    """Values as flat rows in Avro, with registered schemas.

    Args:
        envelopes: schemas and names of messages.
        flat: what is written.

    Raises:
        ConfigError: the source's kind has no such field.
    """

    envelopes: Envelopes
    flat: Flat
    _keys: AvroEncoding = field(init=False)

    def __post_init__(self) -> None:
        self.flat.check(self.envelopes.connector)
        object.__setattr__(self, "_keys", AvroEncoding(self.envelopes))

    @property
    def has_tombstones(self) -> bool:
        """See Encoding."""
        return self.flat.has_tombstones

    def key_schema(self, table: TableSchema) -> SchemaText | None:
        """See Encoding."""
        return self._keys.key_schema(table)

    def value_schema(self, table: TableSchema) -> SchemaText:
        """See Encoding."""
        return self._registered(table, self._schema(table))

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:
        """See Encoding."""
        return self._keys.keys(batch, ids)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:
        """See Encoding.

        Raises:
            SinkError: a column has the name of an added field, or cannot be one; or a value is missing.
        """
        table, of = batch.table, self.envelopes
        schema = self._schema(table)
        kept, row_of = self.flat.with_rows(batch)
        if not len(kept):
            return pa.nulls(len(batch), pa.binary())
        names = [column.name for column in table.columns]
        is_postgres = of.connector == POSTGRES
        row = {**schema, "fields": schema["fields"][: len(names)]}
        unknown = kept.absent_after if is_postgres else ()
        before = image_columns(table, names, row, kept.before, of.modes, filled=is_postgres)
        after = image_columns(table, names, row, kept.after, of.modes, unknown=unknown)
        added = [
            FieldValues(own, values.cell, values.constant)
            for own, values in zip(
                schema["fields"][len(names) :], self.flat.values(kept, now_ms, of), strict=True
            )
        ]
        parts = [
            FieldGroup(records.ALWAYS, opening=frame(self._registered(table, schema), ids) + AVRO.opening),
            FieldGroup(records.IF_DELETED, fields(before, AVRO)),
            FieldGroup(records.IF_KEPT, fields(after, AVRO)),
            FieldGroup(records.ALWAYS, fields(added, AVRO)),
        ]
        options: dict[str, Any] = {}
        if is_postgres:
            options["whole_rows"] = f"ALTER TABLE {table.id.sql} REPLICA IDENTITY FULL"
        rows = write(parts, kept, zigzag=AVRO.zigzag, **options)
        return rows if row_of is None else rows.take(row_of)

    def _schema(self, table: TableSchema) -> Schema:
        return adjusted(self.flat.schema(table, self.envelopes))

    def _registered(self, table: TableSchema, schema: Schema) -> SchemaText:
        return AVRO.registered(self.envelopes.subject(table.id, "value", schema["name"]), schema)
