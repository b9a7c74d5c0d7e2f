"""Logical messages as Debezium's PostgreSQL connector writes them: `op` m, topic `<prefix>.message`.

    key     {"prefix": ...}
    value   op, ts_ms, source, transaction, message {prefix, content in the form of `binary.handling.mode`}

They are few, so they are written without kernels.

Source: debezium/debezium v3.6.1 `LogicalDecodingMessageMonitor`, `PostgresSchemaFactory`.
"""

from __future__ import annotations

import base64

import pyarrow as pa

from tailrace.formats.connect import postgres, schemas
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.schemas import Schema
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.envelope_rows import snapshot_marks
from tailrace.model.change import ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.types import Kind

_NAME = "io.debezium.connector.postgresql.Message"
_PREFIX: Schema = {"type": "string", "optional": True, "field": "prefix"}


def write(
    batch: ChangeBatch, envelopes: Envelopes, now_ms: int, *, schemas: bool
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of messages.

    Args:
        batch: rows of `model.messages.MESSAGES`.
        envelopes: what they look like.
        now_ms: processing time to write, milliseconds since 1970 UTC.
        schemas: whether they carry their Connect schema.
    """
    about = batch.image("after").to_pylist()
    origins, sequences = batch.origin.to_pylist(), postgres.sequences(batch).to_pylist()
    keys, values = [], []
    for row, origin, sequence, snapshot in zip(
        about, origins, sequences, snapshot_marks(batch).to_pylist(), strict=True
    ):
        us, xid = origin["ts_us"], origin["txn"]
        source = {
            "version": envelopes.version,
            "connector": envelopes.connector,
            "name": envelopes.topics.prefix,
            "ts_ms": us // 1000,
            "snapshot": snapshot,
            "db": envelopes.database,
            "sequence": sequence,
            "ts_us": us,
            "ts_ns": us * 1000,
            "schema": "",
            "table": "",
            "txId": None if xid is None else int(xid),
            "lsn": row["lsn"],
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }
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
    both = (
        ((keys, _key_schema()), (values, _value_schema(envelopes)))
        if schemas
        else ((keys, None), (values, None))
    )
    key_array, value_array = (
        pa.array(
            [dumps(v if schema is None else {"schema": schema, "payload": v}).encode() for v in made],
            pa.binary(),
        )
        for made, schema in both
    )
    return key_array, value_array


def _content(content: bytes, mode: str) -> str:
    if mode == "hex":
        return content.hex()
    encode = base64.urlsafe_b64encode if mode == "base64-url-safe" else base64.b64encode
    return encode(content).decode()


def _key_schema() -> Schema:
    return _struct([_PREFIX], f"{_NAME}Key")


def _value_schema(envelopes: Envelopes) -> Schema:
    (content,) = (c.type for c in MESSAGES.columns if c.type.kind is Kind.BYTES)
    fields = [_PREFIX, {**schemas.type_schema(content, envelopes.modes, optional=True), "field": "content"}]
    return _struct(
        [
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
            {**schemas.source_schema(envelopes.connector), "field": "source"},
            {**schemas.TRANSACTION, "field": "transaction"},
            {**_struct(fields, _NAME), "field": "message"},
        ],
        f"{_NAME}Value",
    )


def _struct(fields: list[Schema], name: str) -> Schema:
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}
