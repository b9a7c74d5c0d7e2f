"""Debezium's messages in Avro, as Confluent's Avro converter writes them.

The schema is derived from the Connect schema: structs become records with the schema's full name, and
optional fields become unions with null first (last if the field has a default). Attributes that Avro lacks
become properties (`connect.name`, `connect.version`, `connect.parameters`, `connect.type`,
`connect.default`). Connect's own Decimal, Date, Time and Timestamp are Avro's logical types; Debezium's types
are not: their values are the same integers as in JSON. A struct that occurs twice is written in full the
first time, then by name.

The bytes are the schema's values in order: `formats.encodings.records`.

Source: Apache Avro 1.12 specification, "Binary encoding"; confluentinc/schema-registry `AvroData`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.formats.base import SchemaText
from tailrace.formats.connect.builders import Schema
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.records import Field, FieldGroup, FieldValues, fields, varint
from tailrace.formats.encodings.registry_encoding import RegisteredEncoding
from tailrace.formats.kernels import records

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
#: Indices of a union's branches, encoded.
_FIRST, _SECOND = b"\x00", b"\x02"
#: Tags of a geometry's fields, see the kernel: wkb and srid may be unions.
_POINT_TAGS, _GEOMETRY_TAGS = (0, 0, 2, 2, 0), (0, 0, 0, 2, 0)


class _Avro:
    """See BinaryFormat."""

    zigzag = True
    opening = b""

    def field(self, column: FieldValues, number: int) -> Field:  # noqa: ARG002 - Avro's fields have no numbers
        """See BinaryFormat."""
        schema, cell = column.schema, column.cell
        if cell is None:
            return Field(schema["field"], encode(schema, column.constant))
        null, value = _branches(schema)
        absent = null if schema["optional"] else column.default(lambda default: encode(schema, default))
        tags: tuple[int, ...] = ()
        if schema["type"] == "struct":
            tags = _POINT_TAGS if schema["name"].endswith(".Point") else _GEOMETRY_TAGS
        return Field(schema["field"], value, cell.array, column.kind, absent, cell.detail, tags)

    def struct(self, columns: Sequence[FieldValues], number: int) -> FieldGroup:  # noqa: ARG002
        """See BinaryFormat."""
        return FieldGroup(records.ALWAYS, fields(columns, self))

    def optional_struct(
        self,
        columns: Sequence[FieldValues],
        number: int,  # noqa: ARG002
        present: pa.Array | None,
    ) -> FieldGroup:
        """See BinaryFormat."""
        if present is None:
            return FieldGroup(records.ALWAYS, opening=_FIRST)
        written = fields(columns, self)
        return FieldGroup(records.IF_SET, written, opening=_SECOND, missing=_FIRST, image=present)

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


def avro_schema(schema: Schema) -> Any:
    """The Avro schema of a Connect schema, as JSON values."""
    return _avro(schema, "", set())


def encode(schema: Schema, value: Any) -> bytes:
    """Encode one value of a Connect schema, structs given as mappings: for messages that are few."""
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
    """The bytes of a null, and the bytes before a value."""
    if not schema["optional"]:
        return b"", b""
    return (_SECOND, _FIRST) if "default" in schema else (_FIRST, _SECOND)


def _long(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def _avro(schema: Schema, enclosing: str, seen: set[str]) -> Any:
    """See `avro_schema`; `enclosing`: namespace of the outer record; `seen`: records already written."""
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
    """The attributes of a schema that Avro lacks, in AvroData's order."""
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
