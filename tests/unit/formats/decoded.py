"""What the JSON messages of a batch say, compared with what other formats' decoders read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tailrace.formats.base import SchemaText
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.schemas import Schema
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.registry_encoding import RegisteredEncoding
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema


def json_messages(batch: ChangeBatch, now_ms: int, **settings: Any) -> tuple[list[Any], list[Any]]:
    """Keys and values of a batch, parsed; one each per change."""
    form = DebeziumFormat(Envelopes(Topics("app"), **settings))
    keys, values = form.keys(batch).to_pylist(), form.values(batch, now_ms).to_pylist()
    return [k and json.loads(k) for k in keys], [json.loads(v) for v in values]


def as_connect(schema: Schema, value: Any) -> Any:
    """A value as parsed from JSON: bytes as bytes, 32-bit floats as such."""
    if value is None:
        return None
    match schema["type"]:
        case "struct":
            return {f["field"]: as_connect(f, value[f["field"]]) for f in schema["fields"]}
        case "array":
            return [as_connect(schema["items"], item) for item in value]
        case "bytes":
            return base64.b64decode(value)
        case "float":
            return float(np.float32(value))
    return value


def registered(of: RegisteredEncoding, table: TableSchema) -> dict[str, int]:
    """Ids of an encoding's schemas, as a registry gives them: 7 for the key's, or for the only one."""
    schemas = [s for s in (of.key_schema(table), of.value_schema(table)) if s]
    return {s.reference: 7 + i for i, s in enumerate(schemas)}


def assert_says_the_same(
    of: RegisteredEncoding,
    changes: ChangeBatch,
    read: Callable[[SchemaText, bytes, int], Any],
    said: Callable[[Schema, Any], Any] = lambda _, value: value,
) -> None:
    """Every key and value says what the JSON messages of the same batch say.

    Args:
        of: the encoding.
        changes: the batch.
        read: a message's value, by its schema and the schema's id.
        said: what can be said in the format of a Connect value.
    """
    table = changes.table
    ids = registered(of, table)
    keys, values = json_messages(changes, 1_800_000_000_000, modes=of.envelopes.modes)
    made_keys = of.keys(changes, ids).to_pylist()
    made = of.values(changes, 1_800_000_000_000, ids)
    made.validate(full=True)
    key_schema, value_schema = of.key_schema(table), of.value_schema(table)
    if key_schema is None:
        assert made_keys == [None] * len(changes)
    else:
        key = of.envelopes.key(table)
        found = [read(key_schema, message, ids[key_schema.reference]) for message in made_keys]
        assert found == [said(key, as_connect(key, k)) for k in keys]
    value = of.envelopes.value(table)
    found = [read(value_schema, message, ids[value_schema.reference]) for message in made.to_pylist()]
    assert found == [said(value, as_connect(value, v)) for v in values]
