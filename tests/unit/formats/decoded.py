"""What the JSON messages of a batch say, to be compared with what other formats' decoders read."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from tailrace.formats.connect import Schema
from tailrace.formats.debezium import DebeziumFormat
from tailrace.formats.envelopes import Envelopes
from tailrace.formats.topics import Topics
from tailrace.model.change import ChangeBatch


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
