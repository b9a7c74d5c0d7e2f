"""Debezium's messages in Protobuf, as Confluent's Protobuf converter writes them.

The schema is proto3 text derived from the Connect schema: one message, in which each struct is a nested
message of the first message that uses it. Fields are numbered from 1 in their order. Connect's Decimal is
`confluent.type.Decimal`, and attributes that Protobuf lacks are in `confluent.field_meta`; Confluent's
registry and libraries know both.

Fields that may be NULL are `optional`: the converter's `optional.for.nullables`. By default the converter
omits that, and consumers read a NULL as 0 or ""; Tailrace never does. Protobuf cannot represent everything: a
NULL list is an empty one, and schemas have no default of a field (`source.snapshot`). Connect's Date, Time
and Timestamp (`time.precision.mode: connect`) would be messages of Google's: they are rejected.

A message begins with the index of its type among the schema's messages: for the first one, a zero byte.

Source: Protocol Buffers documentation, "Encoding"; confluentinc/schema-registry `ProtobufData`,
`MessageIndexes`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.base import SchemaText
from tailrace.formats.connect.builders import Schema
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.records import Field, FieldGroup, FieldValues, fields, varint
from tailrace.formats.encodings.registry_encoding import RegisteredEncoding
from tailrace.formats.kernels import records, value_kinds

_TYPES = {
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "float": "float",
    "double": "double",
    "boolean": "bool",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT = "org.apache.kafka.connect.data."
_DECIMAL = f"{_CONNECT}Decimal"
#: Wire types, the low three bits of a tag: varint, 8 bytes, length-delimited, 4 bytes.
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_WIRE = {"float": _FOUR, "double": _EIGHT, "string": _LENGTH, "bytes": _LENGTH, "struct": _LENGTH}
#: The index list of the first message of a schema, in its short form.
_FIRST_MESSAGE = b"\0"
#: Tags of a geometry's fields, see the kernel.
_POINT_TAGS, _GEOMETRY_TAGS = (0x09, 0x11, 0x1A, 0x20, -1), (0, 0, 0x0A, 0x10, -1)


class _Protobuf:
    """See BinaryFormat."""

    zigzag = False
    opening = _FIRST_MESSAGE

    def field(self, column: FieldValues, number: int) -> Field:
        """See BinaryFormat."""
        schema, cell = column.schema, column.cell
        if cell is None:
            return Field(schema["field"], encode_field(schema, column.constant, number))
        absent: bytes | None = b""
        if not schema["optional"]:
            absent = column.default(lambda default: encode_field(schema, default, number))
        tags: tuple[int, ...] = ()
        if schema["type"] == "struct":
            tags = _POINT_TAGS if schema["name"].endswith(".Point") else _GEOMETRY_TAGS
        elif schema.get("name") == _DECIMAL:
            closing = _decimal_closing(schema)
            tags = (len(closing), *closing)
        present = _tag(number, _wire(schema))
        detail = cell.detail if cell.kind == value_kinds.INSTANT else 0
        return Field(schema["field"], present, cell.array, column.kind, absent, detail, tags)

    def struct(self, columns: Sequence[FieldValues], number: int) -> FieldGroup:
        """See BinaryFormat."""
        return FieldGroup(records.ALWAYS, fields(columns, self), _tag(number, _LENGTH), records.LENGTH)

    def optional_struct(
        self, columns: Sequence[FieldValues], number: int, present: pa.Array | None
    ) -> FieldGroup | None:
        """See BinaryFormat."""
        if present is None:
            return None
        written = fields(columns, self)
        return FieldGroup(records.IF_SET, written, _tag(number, _LENGTH), records.LENGTH, image=present)

    def registered(self, subject: str, schema: Schema) -> SchemaText:
        """See BinaryFormat."""
        return SchemaText(subject, "PROTOBUF", proto_text(schema))

    def message(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        """See BinaryFormat."""
        return encode(schema, value)


PROTOBUF = _Protobuf()


@dataclass(frozen=True)
class ProtobufEncoding(RegisteredEncoding):
    """Keys and values in Protobuf."""

    format = PROTOBUF


def proto_text(schema: Schema) -> str:
    """The proto3 schema of a Connect schema.

    Raises:
        SinkError: Protobuf has no equivalent of a type.
    """
    namespace, _, name = schema["name"].rpartition(".")
    body = list(_message(schema, name, {}, ""))
    types = {_type_of(f) for f in _all_fields(schema)}
    imports = []
    if any("confluent.field_meta" in line for line in body):
        imports.append("confluent/meta.proto")
    if "confluent.type.Decimal" in types:
        imports.append("confluent/type/decimal.proto")
    lines = ['syntax = "proto3";']
    if namespace:
        lines.append(f"package {'.'.join(map(_identifier, namespace.split('.')))};")
    lines += ["", *(f'import "{path}";' for path in imports), *([""] if imports else []), *body]
    return "\n".join(lines) + "\n"


def encode(schema: Schema, value: Mapping[str, Any]) -> bytes:
    """Encode a struct of a Connect schema as a message of the first type: for messages that are few."""
    return _FIRST_MESSAGE + _encode_struct(schema, value)


def encode_field(schema: Schema, value: Any, number: int) -> bytes:
    """Encode a field with its tag; a null field has no bytes."""
    if value is None:
        return b""
    if schema["type"] == "array":
        items = schema["items"]
        return b"".join(_tag(number, _wire(items)) + _encode(items, item) for item in value)
    return _tag(number, _wire(schema)) + _encode(schema, value)


def _encode_struct(schema: Schema, value: Mapping[str, Any]) -> bytes:
    return b"".join(
        encode_field(f, value.get(f["field"]), number) for number, f in enumerate(schema["fields"], 1)
    )


def _encode(schema: Schema, value: Any) -> bytes:
    match schema["type"]:
        case "struct":
            data = _encode_struct(schema, value)
            return _varint(len(data)) + data
        case "float" | "double" as kind:
            return struct.pack("<f" if kind == "float" else "<d", value)
        case "string" | "bytes":
            data = value.encode() if isinstance(value, str) else bytes(value)
            if schema.get("name") == _DECIMAL:
                digits = _varint(len(data)) + data
                data = bytes([records.DECIMAL_VALUE]) + digits + _decimal_closing(schema)
            return _varint(len(data)) + data
    return _varint(value)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _wire(schema: Schema) -> int:
    if schema["type"] == "array":
        # numbers are packed; items of other types have a tag each
        return _LENGTH
    return _WIRE.get(schema["type"], _VARINT)


def _varint(value: int) -> bytes:
    return varint(value % 2**64)


def _decimal_closing(schema: Schema) -> bytes:
    """Precision and scale of a `confluent.type.Decimal`, which follow its bytes."""
    precision, scale = _digits(schema)
    return _tag(2, _VARINT) + _varint(precision) + (_tag(3, _VARINT) + _varint(scale) if scale else b"")


def _digits(schema: Schema) -> tuple[int, int]:
    parameters = schema["parameters"]
    return int(parameters["connect.decimal.precision"]), int(parameters["scale"])


def _message(schema: Schema, name: str, known: dict[str, str], indent: str) -> Iterator[str]:
    """The lines of a message; `known`: names of the messages in scope by the schemas' full names."""
    yield f"{indent}message {name} {{"
    inner, known = indent + "  ", dict(known)
    names = {f["field"] for f in schema["fields"]}
    nested = []
    for number, f in enumerate(schema["fields"], 1):
        item = f["items"] if f["type"] == "array" else f
        if item["type"] == "struct" and item["name"] not in known:
            short = item["name"].rpartition(".")[2]
            # a message must not have the name of a field in the same message
            known[item["name"]] = f"{short}Message" if short in names else short
            nested.append(item)
        label = "repeated " if f["type"] == "array" else "optional " if f["optional"] else ""
        type_ = known[item["name"]] if item["type"] == "struct" else _type_of(item)
        yield f"{inner}{label}{type_} {f['field']} = {number}{_meta(item)};"
    for item in nested:
        yield ""
        yield from _message(item, known[item["name"]], known, inner)
    yield f"{indent}}}"


def _meta(schema: Schema) -> str:
    """The attributes of a field that its type does not express."""
    parameters: dict[str, str] = {}
    if schema["type"] in ("int8", "int16"):
        parameters["connect.type"] = schema["type"]
    elif schema.get("name") == _DECIMAL:
        precision, scale = _digits(schema)
        parameters = {"precision": str(precision), "scale": str(scale)}
    if not parameters:
        return ""
    pairs = ", ".join(f"{{ key: {dumps(k)}, value: {dumps(v)} }}" for k, v in parameters.items())
    return f" [(confluent.field_meta) = {{ params: [{pairs}] }}]"


def _type_of(schema: Schema) -> str:
    name = schema.get("name", "")
    if name == _DECIMAL:
        return "confluent.type.Decimal"
    if name.startswith(_CONNECT):
        raise SinkError(
            f"`{name}` cannot be encoded in Protobuf",
            "`time-precision-mode: connect` uses it for dates and times",
            "set time-precision-mode: adaptive_time_microseconds",
            code="TR-7604",
        )
    return _TYPES.get(schema["type"], "message")


def _all_fields(schema: Schema) -> Iterator[Schema]:
    for f in schema["fields"]:
        item = f["items"] if f["type"] == "array" else f
        yield item
        if item["type"] == "struct":
            yield from _all_fields(item)


def _identifier(name: str) -> str:
    return f"_{name}" if name[:1].isdigit() else name
