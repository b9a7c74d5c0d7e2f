"""Debezium's streams beside the data: transactions, heartbeats, schema changes.

    topic            key            value                                  made from
    transaction      {id}           {status, id, event_count,              `transactions`: counts of
                                     data_collections, ts_ms}              the cells; BEGIN and END for each
    heartbeat        {serverName}   {ts_ms}                                the clock
    schema change    {databaseName} {source, ts_ms, databaseName,          the first change of a table's shape
                                     schemaName, ddl, tableChanges}        that the sink has not met before

They are few beside the data, so each is written alone (some 100 k a second): JSON with or without its schema,
Avro or Protobuf, as the data is. All of it is pure, and may run in tasks as well as on the driver.

A shape of a table says less than Debezium's DDL parser: there are no defaults, comments, character sets and
no statement (`ddl` is null unless whoever calls has it); what is not known is null. Debezium also announces
dropped tables and databases, which leave no changes behind.

Source: debezium/debezium v3.6.1 `SchemaFactory`, `AbstractTransactionStructMaker`, `HeartbeatImpl`,
`ConnectTableChangeSerializer`, `EventDispatcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tailrace.formats.base import NO_IDS, SchemaIds, SchemaText
from tailrace.formats.connect.envelopes import Envelopes, frame, subject
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.schemas import Schema, source_schema
from tailrace.formats.connect.sql_types import jdbc_code
from tailrace.formats.debezium.messages import debezium_schema
from tailrace.formats.debezium.transactions import Transaction
from tailrace.formats.encodings.avro import AVRO
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.protobuf import PROTOBUF
from tailrace.formats.encodings.records import BinaryFormat
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind

StreamEncoding = Literal["json", "avro", "protobuf"]
Stream = Literal["transaction", "heartbeat", "schema_change"]

_COMMON = "io.debezium.connector.common"
_HISTORY = "io.debezium.connector.schema"
#: How messages are written that are no JSON.
_FORMATS: Mapping[str, BinaryFormat] = {"avro": AVRO, "protobuf": PROTOBUF}
Message = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class SchemaChangeEvent:
    """A shape of a table that is new.

    Args:
        table: the shape.
        type: whether the table is new, or another shape of it was there.
        origin: the columns of model.change.ORIGIN of the first change that has it.
        snapshot: whether that was a row of a snapshot.
        ddl: the statement, where it is known.
    """

    table: TableSchema
    type: Literal["CREATE", "ALTER"]
    origin: Mapping[str, Any]
    snapshot: bool = False
    ddl: str | None = None


@dataclass(frozen=True)
class SideStreams:
    """Messages of the streams beside the data.

    Args:
        envelopes: names of topics, connector and version.
        encoding: how they are written.
        json_schemas: whether JSON carries its schema.
    """

    envelopes: Envelopes
    encoding: StreamEncoding = "json"
    json_schemas: bool = False

    def topic(self, stream: Stream) -> str:
        """The topic of a stream."""
        topics = self.envelopes.topics
        match stream:
            case "transaction":
                return topics.transaction
            case "heartbeat":
                return topics.heartbeat
            case "schema_change":
                return topics.schema_change

    def schemas(self, stream: Stream) -> tuple[SchemaText, ...]:
        """What a stream's messages need registered: a key's schema and a value's, none for JSON."""
        if self.encoding == "json":
            return ()
        return tuple(
            self._registered(stream, part, schema)
            for part, schema in zip(("key", "value"), self._connect(stream), strict=True)
        )

    def transactions(self, of: Iterable[Transaction], ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """A BEGIN and an END for each transaction."""
        messages: list[Message] = []
        for transaction in of:
            key = {"id": transaction.id}
            common = {"id": transaction.id, "ts_ms": transaction.ts_ms}
            collections = [{"data_collection": name, "event_count": n} for name, n in transaction.events]
            total = sum(n for _, n in transaction.events)
            messages.append((key, {"status": "BEGIN", **common}))
            end = {"status": "END", **common, "event_count": total, "data_collections": collections}
            messages.append((key, end))
        return self._messages("transaction", messages, ids)

    def heartbeat(self, now_ms: int, ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """One heartbeat."""
        key = {"serverName": self.envelopes.topics.prefix}
        return self._messages("heartbeat", [(key, {"ts_ms": now_ms})], ids)

    def schema_changes(
        self, changes: Iterable[SchemaChangeEvent], now_ms: int, ids: SchemaIds = NO_IDS
    ) -> pa.RecordBatch:
        """One message per new shape of a table."""
        messages = [
            (
                {"databaseName": change.table.id.database},
                {
                    "source": self._source(change),
                    "ts_ms": now_ms,
                    "databaseName": change.table.id.database,
                    "ddl": change.ddl,
                    "tableChanges": [_table_change(change)],
                },
            )
            for change in changes
        ]
        return self._messages("schema_change", messages, ids)

    def _source(self, change: SchemaChangeEvent) -> dict[str, Any]:
        origin, table = change.origin, change.table.id
        us = origin["ts_us"] or 0
        return {
            "version": self.envelopes.version,
            "connector": self.envelopes.connector,
            "name": self.envelopes.topics.prefix,
            "ts_ms": us // 1000,
            "snapshot": "true" if change.snapshot else "false",
            "db": table.database,
            "ts_us": us,
            "ts_ns": us * 1000,
            "table": table.table,
            "server_id": origin["server_id"] or 0,
            "gtid": origin["txn"],
            "file": origin["file"] or "",
            "pos": origin["pos"] or 0,
            "row": origin["row"] or 0,
            "thread": origin["thread"],
        }

    def _messages(self, stream: Stream, messages: Sequence[Message], ids: SchemaIds) -> pa.RecordBatch:
        key, value = self._connect(stream)
        columns = [
            pa.repeat(pa.scalar(self.topic(stream), pa.string()), len(messages)),
            pa.array([self._encoded(stream, "key", key, k, ids) for k, _ in messages], pa.binary()),
            pa.array([self._encoded(stream, "value", value, v, ids) for _, v in messages], pa.binary()),
            *(pa.nulls(len(messages), debezium_schema().field(i).type) for i in (3, 4)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=debezium_schema())

    def _encoded(
        self, stream: Stream, part: str, schema: Schema, value: Mapping[str, Any], ids: SchemaIds
    ) -> bytes:
        if self.encoding != "json":
            registered = self._registered(stream, part, schema)
            return frame(registered, ids) + _FORMATS[self.encoding].message(schema, value)
        payload = dumps(_whole(schema, value))
        return (
            f'{{"schema":{dumps(schema)},"payload":{payload}}}' if self.json_schemas else payload
        ).encode()

    def _registered(self, stream: Stream, part: str, schema: Schema) -> SchemaText:
        name = subject(self.envelopes.subjects, self.topic(stream), part, schema["name"])
        return _FORMATS[self.encoding].registered(name, schema)

    def _connect(self, stream: Stream) -> tuple[Schema, Schema]:
        """Connect schemas of a stream's keys and values."""
        match stream:
            case "transaction":
                return _TRANSACTION_KEY, _TRANSACTION_VALUE
            case "heartbeat":
                return _HEARTBEAT_KEY, _HEARTBEAT_VALUE
            case "schema_change":
                name = f"io.debezium.connector.{self.envelopes.connector}"
                value = [
                    {**source_schema(self.envelopes.connector), "field": "source"},
                    *_SCHEMA_CHANGE_FIELDS,
                ]
                return (
                    _struct(f"{name}.SchemaChangeKey", [_of("string", "databaseName")]),
                    adjusted(_struct(f"{name}.SchemaChangeValue", value)),
                )


def _whole(schema: Schema, value: Any) -> Any:
    """A value with all fields of its schema, in their order."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: _whole(f, value.get(f["field"])) for f in schema["fields"]}
    return [_whole(schema["items"], item) for item in value] if schema["type"] == "array" else value


def _table_change(change: SchemaChangeEvent) -> dict[str, Any]:
    table = change.table
    columns = [_column(column, position) for position, column in enumerate(table.columns, 1)]
    return {
        "type": change.type,
        "id": f'"{table.id.database}"."{table.id.table}"',
        "table": {"primaryKeyColumnNames": list(table.key), "columns": columns},
    }


def _column(column: Column, position: int) -> dict[str, Any]:
    type_ = column.type
    name = type_.native.upper() + (" UNSIGNED" if type_.unsigned else "")
    length = type_.precision if type_.kind is Kind.DECIMAL else type_.length or type_.fraction or None
    quoted = [f"'{label}'" for label in type_.labels]
    return {
        "name": column.name,
        "jdbcType": jdbc_code(type_),
        "typeName": name,
        "typeExpression": name,
        "length": type_.bits if type_.kind is Kind.BITS else length,
        "scale": type_.scale,
        "position": position,
        "optional": column.nullable,
        "enumValues": quoted or None,
    }


def _of(type_: str, field: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": field}


def _struct(name: str, fields: Sequence[Schema], *, optional: bool = False) -> Schema:
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, "version": 1}


def _list(items: Schema, field: str, *, optional: bool = True) -> Schema:
    return {"type": "array", "items": items, "optional": optional, "field": field}


_TEXT: Schema = {"type": "string", "optional": False}

_TRANSACTION_KEY = _struct(f"{_COMMON}.TransactionMetadataKey", [_of("string", "id")])
_TRANSACTION_VALUE = _struct(
    f"{_COMMON}.TransactionMetadataValue",
    [
        _of("string", "status"),
        _of("string", "id"),
        _of("int64", "event_count", optional=True),
        _list(
            _struct(
                "event.collection",
                [_of("string", "data_collection"), _of("int64", "event_count")],
                optional=True,
            ),
            "data_collections",
        ),
        _of("int64", "ts_ms"),
    ],
)
_HEARTBEAT_KEY = _struct(f"{_COMMON}.ServerNameKey", [_of("string", "serverName")])
_HEARTBEAT_VALUE = _struct(f"{_COMMON}.Heartbeat", [_of("int64", "ts_ms")])
_COLUMN = _struct(
    f"{_HISTORY}.Column",
    [
        _of("string", "name"),
        _of("int32", "jdbcType"),
        _of("int32", "nativeType", optional=True),
        _of("string", "typeName"),
        _of("string", "typeExpression", optional=True),
        _of("string", "charsetName", optional=True),
        _of("int32", "length", optional=True),
        _of("int32", "scale", optional=True),
        _of("int32", "position"),
        _of("boolean", "optional", optional=True),
        _of("boolean", "autoIncremented", optional=True),
        _of("boolean", "generated", optional=True),
        _of("string", "comment", optional=True),
        _of("string", "defaultValueExpression", optional=True),
        _list(_TEXT, "enumValues"),
    ],
)
_TABLE = _struct(
    f"{_HISTORY}.Table",
    [
        _of("string", "defaultCharsetName", optional=True),
        _list(_TEXT, "primaryKeyColumnNames"),
        _list(_COLUMN, "columns", optional=False),
        _of("string", "comment", optional=True),
    ],
    optional=True,
)
_CHANGE = _struct(
    f"{_HISTORY}.Change", [_of("string", "type"), _of("string", "id"), {**_TABLE, "field": "table"}]
)
_SCHEMA_CHANGE_FIELDS = [
    _of("int64", "ts_ms"),
    _of("string", "databaseName", optional=True),
    _of("string", "schemaName", optional=True),
    _of("string", "ddl", optional=True),
    _list(_CHANGE, "tableChanges", optional=False),
]
