"""Debezium's messages in Avro, as Confluent's Avro converter writes them.

The schema is made from the Connect schema: structs become records with the schema's full name, optional
fields unions with null first (last where the field has a default), and what Avro has no word for stands in
properties (`connect.name`, `connect.version`, `connect.parameters`, `connect.type`, `connect.default`).
Connect's own Decimal, Date, Time and Timestamp are Avro's logical types; Debezium's are not, their values are
the same integers as in JSON. A struct that occurs twice is written out the first time and named after that.

The bytes are the schema's values in order: `formats.encodings.records`.

Source: Apache Avro 1.12 specification, "Binary encoding"; confluentinc/schema-registry `AvroData`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.formats.base import SchemaText
from tailrace.formats.connect.schemas import Schema
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.records import (
    Field,
    FieldGroup,
    FieldValues,
    closing_columns,
    fields,
    image_columns,
    source_columns,
    transaction_columns,
    varint,
)
from tailrace.formats.encodings.registry_encoding import RegisteredEncoding
from tailrace.formats.kernels import records
from tailrace.model.change import ChangeBatch

_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LOGICAL_TYPES = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
#: Branches of a union: the first and the second.
_FIRST, _SECOND = b"\x00", b"\x02"
#: Of a geometry's fields, see the kernel: wkb and srid may be unions.
_POINT_TAGS, _GEOMETRY_TAGS = (0, 0, 2, 2, 0), (0, 0, 0, 2, 0)


class _Avro:
    """See BinaryFormat."""

    zigzag = True
    opening = b""

    def of(self, column: FieldValues, number: int) -> Field:  # noqa: ARG002 - Avro's fields have no numbers
        """See BinaryFormat."""
        schema, cell = column.schema, column.cell
        if cell is None:
            return Field(schema["field"], encode(schema, column.constant))
        null, value = _branches(schema)
        absent: bytes | None = null
        if not schema["optional"]:
            standing = json.loads(cell.absent)
            absent = None if standing is None else encode(schema, standing)
        tags: tuple[int, ...] = ()
        if schema["type"] == "struct":
            tags = _POINT_TAGS if schema["name"].endswith(".Point") else _GEOMETRY_TAGS
        return Field(schema["field"], value, cell.array, column.kind, absent, cell.detail, tags)

    def registered(self, subject: str, schema: Schema) -> SchemaText:
        """See BinaryFormat."""
        return SchemaText(subject, "AVRO", dumps(avro_schema(schema)))

    def message(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        """See BinaryFormat."""
        return encode(schema, value)


AVRO = _Avro()


@dataclass(frozen=True)
class AvroEncoding(RegisteredEncoding):
    """Keys and values in Avro."""

    format = AVRO

    def _value(self, batch: ChangeBatch, envelope: Sequence[Schema], now_ms: int) -> list[FieldGroup]:
        table, of = batch.table, self.envelopes
        before, after, source, transaction, *closing = envelope
        names = [column.name for column in table.columns]
        parts = [
            _optional(image, image_columns(table, names, schema, image, of.modes))
            for schema, image in ((before, batch.before), (after, batch.after))
        ]
        parts.append(FieldGroup(records.ALWAYS, fields(source_columns(batch, source, of), AVRO)))
        place = batch.order
        parts.append(_optional(place, [] if place is None else transaction_columns(batch, transaction)))
        parts.append(FieldGroup(records.ALWAYS, fields(closing_columns(batch, closing, now_ms), AVRO)))
        return parts


def _optional(image: pa.StructArray | None, columns: Sequence[FieldValues]) -> FieldGroup:
    """A record that is null where `image` is."""
    if image is None:
        return FieldGroup(records.ALWAYS, opening=_FIRST)
    return FieldGroup(records.IF_SET, fields(columns, AVRO), opening=_SECOND, missing=_FIRST, image=image)


def avro_schema(schema: Schema) -> Any:
    """The Avro schema of a Connect schema, as JSON values."""
    return _avro(schema, "", set())


def encode(schema: Schema, value: Any) -> bytes:
    """One value of a Connect schema in Avro: structs as mappings, for messages that are few."""
    null, present = _branches(schema)
    if value is None and schema["optional"]:
        return null
    match schema["type"]:
        case "struct":
            assert isinstance(value, Mapping)
            made = b"".join(encode(f, value.get(f["field"])) for f in schema["fields"])
        case "array":
            items = b"".join(encode(schema["items"], item) for item in value)
            made = _long(len(value)) + items + b"\0" if value else b"\0"
        case "boolean":
            made = bytes([bool(value)])
        case "float" | "double" as kind:
            made = struct.pack("<f" if kind == "float" else "<d", value)
        case "string" | "bytes":
            data = value.encode() if isinstance(value, str) else value
            made = _long(len(data)) + data
        case _:
            made = _long(value)
    return present + made


def _branches(schema: Schema) -> tuple[bytes, bytes]:
    """What stands for null and before a value."""
    if not schema["optional"]:
        return b"", b""
    return (_SECOND, _FIRST) if "default" in schema else (_FIRST, _SECOND)


def _long(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def _avro(schema: Schema, enclosing: str, seen: set[str]) -> Any:
    """See `avro_schema`; `enclosing`: namespace of the record around, `seen`: records written out already."""
    made: Any = _named(schema, enclosing, seen) if schema["type"] == "struct" else _unnamed(schema, seen)
    if not schema["optional"]:
        return made
    return [made, "null"] if "default" in schema else ["null", made]


def _named(schema: Schema, enclosing: str, seen: set[str]) -> Any:
    namespace, _, name = schema["name"].rpartition(".")
    if schema["name"] in seen:
        return name if namespace == enclosing else schema["name"]
    seen.add(schema["name"])
    made: dict[str, Any] = {"type": "record", "name": name}
    if namespace and namespace != enclosing:
        made["namespace"] = namespace
    made["fields"] = [_avro_field(f, namespace, seen) for f in schema["fields"]]
    return made | _properties(schema)


def _avro_field(schema: Schema, namespace: str, seen: set[str]) -> dict[str, Any]:
    made = {"name": schema["field"], "type": _avro(schema, namespace, seen)}
    if "default" in schema or schema["optional"]:
        made["default"] = schema.get("default")
    return made


def _unnamed(schema: Schema, seen: set[str]) -> Any:
    properties = _properties(schema)
    if schema["type"] == "array":
        return {"type": "array", "items": _avro(schema["items"], "", seen), **properties}
    type_ = _TYPES[schema["type"]]
    if schema.get("name") == _DECIMAL:
        parameters = schema["parameters"]
        digits = {
            "scale": int(parameters["scale"]),
            "precision": int(parameters["connect.decimal.precision"]),
        }
        return {"type": type_, **digits, **properties, "logicalType": "decimal"}
    if schema.get("name") in _LOGICAL_TYPES:
        properties["logicalType"] = _LOGICAL_TYPES[schema["name"]]
    return {"type": type_, **properties} if properties else type_


def _properties(schema: Schema) -> dict[str, Any]:
    """What a schema says beyond its type, in AvroData's order."""
    made: dict[str, Any] = {}
    for name, key in (
        ("doc", "connect.doc"),
        ("version", "connect.version"),
        ("parameters", "connect.parameters"),
        ("default", "connect.default"),
        ("name", "connect.name"),
    ):
        if name in schema:
            made[key] = schema[name]
    if schema["type"] in ("int8", "int16"):
        made["connect.type"] = schema["type"]
    return made
