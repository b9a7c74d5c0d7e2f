"""Assembly of messages from encoded keys and values: topics, tombstones and headers.

These are independent of the encodings, as in Debezium, whose converters handle neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.base import NO_IDS, Encoding, SchemaIds, SchemaText
from tailrace.formats.canal import CanalEncoding
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.cloudevents import CloudEventsEncoding
from tailrace.formats.debezium.flattened import Flat, FlatAvroEncoding, FlatEncoding, FlatHeaders
from tailrace.formats.debezium.headers import headers_of
from tailrace.formats.debezium.messages import DebeziumFormat, debezium_schema
from tailrace.formats.encodings.avro import AvroEncoding
from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.protobuf import ProtobufEncoding
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId, TableSchema

KeyEncoding = Literal["json", "avro", "protobuf"]
ValueEncoding = Literal[
    "debezium-json", "canal-json", "avro", "protobuf", "flat-json", "flat-avro", "cloudevents"
]


@dataclass(frozen=True)
class JsonEncoding:
    """Debezium's JSON, as Connect's JSON converter writes it.

    Args:
        format: writes keys and values.
    """

    format: DebeziumFormat
    has_tombstones: bool = True

    def key_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def value_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:  # noqa: ARG002 - has no schemas
        """See Encoding."""
        return self.format.keys(batch)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:  # noqa: ARG002
        """See Encoding."""
        return self.format.values(batch, now_ms)


@dataclass(frozen=True)
class KeyValueFormat:
    """A MessageFormat with an encoding for keys and one for values.

    Args:
        topics: names of topics.
        key: encoding of keys.
        value: encoding of values.
        tombstones: Debezium's `tombstones.on.delete`; ignored for encodings without tombstones.
        json_schemas: whether headers carry their Connect schema.
        context: Debezium's context headers, by the suffix of their names.
        headers: headers that each message has, with their text.
        added: headers of flat rows; None: none.
    """

    topics: Topics
    key: Encoding
    value: Encoding
    tombstones: bool = True
    json_schemas: bool = False
    context: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    added: FlatHeaders | None = None

    def topic(self, table: TableId) -> str:
        """See MessageFormat."""
        return self.topics.topic(table)

    def schemas(self, table: TableSchema) -> tuple[SchemaText, ...]:
        """See MessageFormat."""
        if table == MESSAGES and not all(
            isinstance(e, (JsonEncoding, FlatEncoding)) for e in (self.key, self.value)
        ):
            raise SinkError(
                "logical messages can only be written in JSON",
                "their envelope differs from that of rows",
                "set key-format: json and value-format: debezium-json, or omit `message.prefix.*`",
                code="TR-7601",
            )
        both = (self.key.key_schema(table), self.value.value_schema(table))
        return tuple(schema for schema in both if schema is not None)

    def messages(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """See MessageFormat."""
        keys, values = self.key.keys(batch, ids), self.value.values(batch, now_ms, ids)
        own = np.arange(len(batch))
        added = None if self.added is None else self.added.values(batch, now_ms)
        headers = self._headers(batch, keys, added)
        deletes = operations(batch) == OP_DELETE
        if self.tombstones and self.value.has_tombstones and deletes.any():
            change_of = np.repeat(own, 1 + deletes)
            is_tombstone = np.diff(change_of, prepend=-1) == 0
            of_change = headers.take(pa.array(change_of))
            if self.added is not None and added:
                others = self._headers(batch, keys, self.added.of_tombstones(len(batch)))
                at = np.where(is_tombstone, change_of + len(batch), change_of)
                of_change = pa.concat_arrays([headers, others]).take(pa.array(at))
            keys, headers = keys.take(pa.array(change_of)), of_change
            values = values.take(pa.array(change_of, mask=is_tombstone))
        topic = pa.scalar(self.topic(batch.table.id), pa.string())
        n = len(values)
        columns = [pa.repeat(topic, n), keys, values, headers, pa.nulls(n, pa.int32())]
        return pa.RecordBatch.from_arrays(columns, schema=debezium_schema())

    def _headers(
        self, batch: ChangeBatch, keys: pa.Array, added: Mapping[str, pa.Array] | None
    ) -> pa.ListArray:
        return headers_of(
            batch,
            keys,
            np.arange(len(batch)),
            schemas=self.json_schemas,
            context=self.context,
            added=added,
            constants=self.headers,
        )


def key_value_format(
    envelopes: Envelopes,
    key: KeyEncoding,
    value: ValueEncoding,
    *,
    schemas: bool = False,
    tombstones: bool = True,
    context: Mapping[str, str] | None = None,
    flat: Flat | None = None,
    headers: Mapping[str, str] | None = None,
    extensions: bool = True,
) -> KeyValueFormat:
    """Create the format that the options select.

    Args:
        envelopes: schemas and names of messages.
        key: encoding of keys.
        value: encoding of values.
        schemas: Debezium's `schemas.enable`: whether JSON carries its Connect schema.
        tombstones: Debezium's `tombstones.on.delete`.
        context: context headers by the suffix of their names (Debezium's `extended.headers.enabled`).
        flat: what `flat-json` and `flat-avro` write; None: rows alone.
        headers: headers that each message has, with their text.
        extensions: whether CloudEvents have Debezium's attributes.

    Raises:
        ConfigError: `flat` names a field that the source's kind does not have.
    """
    format_ = DebeziumFormat(envelopes, schemas)

    def encoding(name: KeyEncoding | ValueEncoding) -> Encoding:
        match name:
            case "avro":
                return AvroEncoding(envelopes)
            case "protobuf":
                return ProtobufEncoding(envelopes)
            case "flat-json":
                return FlatEncoding(format_, flat or Flat())
            case "flat-avro":
                return FlatAvroEncoding(envelopes, flat or Flat())
            case "cloudevents":
                return CloudEventsEncoding(format_, extensions)
            case "canal-json":
                return CanalEncoding(format_)
            case "json" | "debezium-json":
                return JsonEncoding(format_)

    parts = encoding(key), encoding(value)
    added = FlatHeaders(flat.headers, envelopes, schemas) if flat is not None and flat.headers else None
    return KeyValueFormat(envelopes.topics, *parts, tombstones, schemas, context, headers, added)
