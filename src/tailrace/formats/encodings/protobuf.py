"""Debezium's messages in Protobuf, as Confluent's Protobuf converter writes them.

The schema is proto3 text made from the Connect schema: one message, the structs in it as messages in the one
that needs them first, fields numbered from 1 in their order. Connect's Decimal is `confluent.type.Decimal`,
and what Protobuf has no word for stands in `confluent.field_meta`; Confluent's registry and libraries know
both.

Fields that may be NULL are `optional`: the converter's `optional.for.nullables`. Its default leaves that out,
and a NULL is then 0 or "" to whoever reads it; here it never is. What Protobuf cannot say is not said: a
list that is NULL is an empty one, a field's default (`source.snapshot`) stands in no schema. Connect's Date,
Time and Timestamp (`time.precision.mode: connect`) would be messages of Google's: refused.

A message begins with the indexes of its type among the schema's messages: the first, in short a zero byte.

Source: Protocol Buffers documentation, "Encoding"; confluentinc/schema-registry `ProtobufData`,
`MessageIndexes`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError
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
from tailrace.formats.kernels import documents, records
from tailrace.model.change import ChangeBatch

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
#: How a value is written, three bits of its tag: a varint, 8 or 4 bytes, a length and so many bytes.
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_WIRE = {"float": _FOUR, "double": _EIGHT, "string": _LENGTH, "bytes": _LENGTH, "struct": _LENGTH}
#: The first message of a schema: no list of indexes but its short form.
_FIRST_MESSAGE = b"\0"
#: Tags of a geometry's fields, see the kernel.
_POINT_TAGS, _GEOMETRY_TAGS = (0x09, 0x11, 0x1A, 0x20, -1), (0, 0, 0x0A, 0x10, -1)


class _Protobuf:
    """See BinaryFormat."""

    zigzag = False
    opening = _FIRST_MESSAGE

    def of(self, column: FieldValues, number: int) -> Field:
        """See BinaryFormat."""
        schema, cell = column.schema, column.cell
        if cell is None:
            return Field(schema["field"], encode_field(schema, column.constant, number))
        absent: bytes | None = b""
        if not schema["optional"]:
            standing = json.loads(cell.absent)
            absent = None if standing is None else encode_field(schema, standing, number)
        tags: tuple[int, ...] = ()
        if schema["type"] == "struct":
            tags = _POINT_TAGS if schema["name"].endswith(".Point") else _GEOMETRY_TAGS
        elif schema.get("name") == _DECIMAL:
            closing = _decimal_closing(schema)
            tags = (len(closing), *closing)
        present = _tag(number, _wire(schema))
        detail = cell.detail if cell.kind == documents.INSTANT else 0
        return Field(schema["field"], present, cell.array, column.kind, absent, detail, tags)

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

    def _value(self, batch: ChangeBatch, envelope: Sequence[Schema], now_ms: int) -> list[FieldGroup]:
        table, of = batch.table, self.envelopes
        before, after, source, transaction, *closing = envelope
        names = [column.name for column in table.columns]
        parts = [
            _part(number, image_columns(table, names, schema, image, of.modes), image)
            for number, schema, image in ((1, before, batch.before), (2, after, batch.after))
            if image is not None
        ]
        parts.append(_part(3, source_columns(batch, source, of)))
        if batch.order is not None:
            parts.append(_part(4, transaction_columns(batch, transaction), batch.order))
        last = enumerate(closing_columns(batch, closing, now_ms), 5)
        parts.append(FieldGroup(records.ALWAYS, [PROTOBUF.of(column, number) for number, column in last]))
        return parts


def _part(number: int, columns: Sequence[FieldValues], image: pa.StructArray | None = None) -> FieldGroup:
    """A message as field `number`, left out where `image` is null."""
    when = records.ALWAYS if image is None else records.IF_SET
    return FieldGroup(when, fields(columns, PROTOBUF), _tag(number, _LENGTH), records.LENGTH, image=image)


def proto_text(schema: Schema) -> str:
    """The proto3 schema of a Connect schema.

    Raises:
        SinkError: it has a type for which there is none.
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
    """A struct of a Connect schema as a message of the first type, for messages that are few."""
    return _FIRST_MESSAGE + _encode_struct(schema, value)


def encode_field(schema: Schema, value: Any, number: int) -> bytes:
    """A field with its tag; nothing if it is null."""
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
            data = value.encode() if isinstance(value, str) else value
            return _varint(len(data)) + data
    return _varint(value)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _wire(schema: Schema) -> int:
    if schema["type"] == "array":
        # numbers in one piece; of anything else each item has a tag of its own
        return _LENGTH
    return _WIRE.get(schema["type"], _VARINT)


def _varint(value: int) -> bytes:
    return varint(value % 2**64)


def _decimal_closing(schema: Schema) -> bytes:
    """Precision and scale of a `confluent.type.Decimal`, behind its bytes."""
    precision, scale = _digits(schema)
    return _tag(2, _VARINT) + _varint(precision) + (_tag(3, _VARINT) + _varint(scale) if scale else b"")


def _digits(schema: Schema) -> tuple[int, int]:
    parameters = schema["parameters"]
    return int(parameters["connect.decimal.precision"]), int(parameters["scale"])


def _message(schema: Schema, name: str, known: dict[str, str], indent: str) -> Iterator[str]:
    """The lines of a message; `known`: names of messages around it by the schemas' full names."""
    yield f"{indent}message {name} {{"
    inner, known = indent + "  ", dict(known)
    names = {f["field"] for f in schema["fields"]}
    nested = []
    for number, f in enumerate(schema["fields"], 1):
        item = f["items"] if f["type"] == "array" else f
        if item["type"] == "struct" and item["name"] not in known:
            short = item["name"].rpartition(".")[2]
            # a message may not be called like a field beside it
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
    """What the type of a field does not say."""
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
            f"`{name}` is not written in Protobuf",
            "time.precision.mode `connect` gives it to dates and times",
            "set time.precision.mode to adaptive_time_microseconds",
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
