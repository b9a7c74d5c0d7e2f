"""Logical messages as Debezium's PostgreSQL connector writes them: `op` m, topic `<prefix>.message`.

    key     {"prefix": ...}
    value   op, ts_ms, source, transaction, message {prefix, content as of `binary.handling.mode`}

There are few of them, so they are written without kernels.

Source: debezium/debezium v3.6.1 `LogicalDecodingMessageMonitor`, `PostgresSchemaFactory`.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from tailrace.formats.connect.builders import Schema, primitive, struct
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.schemas import TRANSACTION, type_schema
from tailrace.formats.connect.source_block import source_schema
from tailrace.formats.encodings.layout import dumps
from tailrace.model.change import ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.types import Kind

_NAME = "io.debezium.connector.postgresql.Message"
_PREFIX = primitive("string", "prefix", optional=True)
_KEY_SCHEMA = struct([_PREFIX], f"{_NAME}Key", version=1)


def write(
    batch: ChangeBatch, envelopes: Envelopes, now_ms: int, *, schemas: bool
) -> tuple[pa.Array, pa.Array]:
    """Encode messages.

    Args:
        batch: rows of `model.messages.MESSAGES`.
        envelopes: schemas and names.
        now_ms: processing time to write, milliseconds since 1970 UTC.
        schemas: whether keys and values carry their Connect schema.

    Returns:
        Keys and values.
    """
    keys, values = [], []
    for row, origin in zip(batch.image("after").to_pylist(), batch.origin.to_pylist(), strict=True):
        source = envelopes.source.values(batch.table.id, origin, snapshot=batch.is_read)
        source |= {"schema": "", "table": "", "lsn": row["lsn"]}
        content = _content(row["content"], envelopes.modes.binary)
        values.append(
            {
                "op": "m",
                "ts_ms": now_ms,
                "source": source,
                "transaction": None,
                "message": {"prefix": row["prefix"], "content": content},
            }
        )
        keys.append({"prefix": row["prefix"]})
    if schemas:
        value_schema = _value_schema(envelopes)
        keys = [{"schema": _KEY_SCHEMA, "payload": key} for key in keys]
        values = [{"schema": value_schema, "payload": value} for value in values]
    return _encoded(keys), _encoded(values)


def _encoded(documents: list[dict[str, Any]]) -> pa.Array:
    return pa.array([dumps(document).encode() for document in documents], pa.binary())


def _content(content: bytes, mode: str) -> str:
    if mode == "hex":
        return content.hex()
    encode = base64.urlsafe_b64encode if mode == "base64-url-safe" else base64.b64encode
    return encode(content).decode()


def _value_schema(envelopes: Envelopes) -> Schema:
    (content,) = (c.type for c in MESSAGES.columns if c.type.kind is Kind.BYTES)
    fields = [_PREFIX, {**type_schema(content, envelopes.modes, optional=True), "field": "content"}]
    return struct(
        [
            primitive("string", "op"),
            primitive("int64", "ts_ms", optional=True),
            {**source_schema(envelopes.connector), "field": "source"},
            {**TRANSACTION, "field": "transaction"},
            {**struct(fields, _NAME, version=1), "field": "message"},
        ],
        f"{_NAME}Value",
        version=1,
    )
