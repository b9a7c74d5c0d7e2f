"""Debezium's side topics: transactions, heartbeats and schema changes.

    topic            key            value                                  derived from
    transaction      {id}           {status, id, event_count,              `transactions`: counts of
                                     data_collections, ts_ms}              the cells; BEGIN and END for each
    heartbeat        {serverName}   {ts_ms}                                the clock
    schema change    {databaseName} {source, ts_ms, databaseName,          the batch's schema changes; and the
                                     schemaName, ddl, tableChanges}        first change with a schema that is
                                                                           new to the sink

There are few of them, so each is written on its own (some 100 k a second): in JSON with or without its
schema, Avro or Protobuf, like the data. All functions are pure and may run in tasks as well as on the driver.

A table's schema has less information than the result of Debezium's DDL parser: no defaults, comments and
character sets. Unknown values are null, `ddl` too where the source's log has no statements (PostgreSQL).

Source: debezium/debezium v3.6.1 `SchemaFactory`, `AbstractTransactionStructMaker`, `HeartbeatImpl`,
`ConnectTableChangeSerializer`, `EventDispatcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tailrace.formats.base import NO_IDS, SchemaIds, SchemaText
from tailrace.formats.connect.builders import Schema, array, primitive, struct
from tailrace.formats.connect.envelopes import Envelopes, frame, subject
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.source_block import source_schema
from tailrace.formats.connect.sql_types import jdbc_code
from tailrace.formats.debezium.messages import debezium_schema
from tailrace.formats.debezium.transactions import Transaction
from tailrace.formats.encodings.avro import AVRO
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.protobuf import PROTOBUF
from tailrace.formats.encodings.records import BinaryFormat
from tailrace.model.change import ORIGIN
from tailrace.model.schema_change import (
    SchemaEvent,
    TableCreated,
    TableDropped,
    TableRenamed,
    TableTruncated,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import Kind

StreamEncoding = Literal["json", "avro", "protobuf"]
Stream = Literal["transaction", "heartbeat", "schema_change"]

_COMMON = "io.debezium.connector.common"
_HISTORY = "io.debezium.connector.schema"
#: The encodings other than JSON.
_FORMATS: Mapping[str, BinaryFormat] = {"avro": AVRO, "protobuf": PROTOBUF}
Message = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class SchemaChangeEvent:
    """A new schema of a table, or its end.

    Args:
        table: the schema; without columns if it is not known.
        type: CREATE for a new table, ALTER for another schema or name of a known one, DROP; None: the schema
            is as it was.
        origin: the origin of the first change with the schema, by the columns of model.change.ORIGIN.
        snapshot: whether that change is a row of a snapshot.
        ddl: the statement, if known.
        renamed: the table's new name.
    """

    table: TableSchema
    type: Literal["CREATE", "ALTER", "DROP"] | None
    origin: Mapping[str, Any]
    snapshot: bool = False
    ddl: str | None = None
    renamed: TableId | None = None

    @property
    def statement(self) -> tuple[str, str] | None:
        """What events of one statement have in common."""
        return None if self.ddl is None else (self.ddl, self.origin["seq"])


def announced(event: SchemaEvent) -> SchemaChangeEvent:
    """A schema change of the stream in Debezium's form."""
    id_ = TableId.parse(event.table)
    kinds = {type(change) for change in event.changes}
    renamed = next((c.new for c in event.changes if isinstance(c, TableRenamed)), None)
    type_: Literal["CREATE", "ALTER", "DROP"] | None = None
    if TableDropped in kinds:
        type_ = "DROP"
    elif TableCreated in kinds and event.after is not None:
        type_ = "CREATE"
    elif renamed is not None or (event.after is not None and kinds != {TableTruncated}):
        type_ = "ALTER"
    origin = dict.fromkeys(ORIGIN.names) | {"seq": event.seq}
    origin |= {} if event.ts_ms is None else {"ts_us": event.ts_ms * 1000}
    table = event.after or TableSchema(id_, ())
    return SchemaChangeEvent(
        table, type_, origin, ddl=event.ddl, renamed=None if renamed is None else TableId.parse(renamed)
    )


@dataclass(frozen=True)
class SideStreams:
    """Messages of the side topics.

    Args:
        envelopes: names of topics, connector and version.
        encoding: encoding of keys and values.
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
        """The schemas to register for a stream's messages: of keys and values; none for JSON."""
        if self.encoding == "json":
            return ()
        return tuple(
            self._registered(stream, part, schema)
            for part, schema in zip(("key", "value"), self._connect(stream), strict=True)
        )

    def transactions(self, transactions: Iterable[Transaction], ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """A BEGIN and an END message for each transaction."""
        messages: list[Message] = []
        for transaction in transactions:
            key = {"id": transaction.id}
            common = {"id": transaction.id, "ts_ms": transaction.ts_ms}
            collections = [{"data_collection": name, "event_count": n} for name, n in transaction.events]
            total = sum(n for _, n in transaction.events)
            messages.append((key, {"status": "BEGIN", **common}))
            end = {"status": "END", **common, "event_count": total, "data_collections": collections}
            messages.append((key, end))
        return self._messages("transaction", messages, ids)

    def heartbeat(self, now_ms: int, ids: SchemaIds = NO_IDS) -> pa.RecordBatch:
        """One heartbeat message."""
        key = {"serverName": self.envelopes.topics.prefix}
        return self._messages("heartbeat", [(key, {"ts_ms": now_ms})], ids)

    def schema_changes(
        self, changes: Iterable[SchemaChangeEvent], now_ms: int, ids: SchemaIds = NO_IDS
    ) -> pa.RecordBatch:
        """One message per new schema of a table; one per statement, where that is known."""
        source = self.envelopes.source
        statements: list[list[SchemaChangeEvent]] = []
        for change in changes:
            if (
                statements
                and change.statement is not None
                and change.statement == statements[-1][0].statement
            ):
                statements[-1].append(change)
            else:
                statements.append([change])
        messages = [
            (
                {"databaseName": first.table.id.database},
                {
                    "source": source.values(first.table.id, first.origin, snapshot=first.snapshot),
                    "ts_ms": now_ms,
                    "databaseName": first.table.id.database,
                    "ddl": first.ddl,
                    "tableChanges": [_table_change(c) for c in (first, *more) if c.type is not None],
                },
            )
            for first, *more in statements
        ]
        return self._messages("schema_change", messages, ids)

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
        """The Connect schemas of a stream's keys and values."""
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
                    _struct(f"{name}.SchemaChangeKey", [primitive("string", "databaseName")]),
                    adjusted(_struct(f"{name}.SchemaChangeValue", value)),
                )


def _whole(schema: Schema, value: Any) -> Any:
    """The value with all fields of its schema, in their order."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: _whole(f, value.get(f["field"])) for f in schema["fields"]}
    return [_whole(schema["items"], item) for item in value] if schema["type"] == "array" else value


def _table_change(change: SchemaChangeEvent) -> dict[str, Any]:
    table = change.table
    columns = [_column(column, position) for position, column in enumerate(table.columns, 1)]
    names = [table.id] if change.renamed is None else [table.id, change.renamed]
    described = {"primaryKeyColumnNames": list(table.key), "columns": columns} if columns else None
    return {
        "type": change.type,
        "id": ",".join(f'"{name.database}"."{name.table}"' for name in names),
        "table": None if change.type == "DROP" else described,
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


def _struct(name: str, fields: Sequence[Schema], *, optional: bool = False) -> Schema:
    return struct(fields, name, optional=optional, version=1)


_TEXT: Schema = {"type": "string", "optional": False}

_TRANSACTION_KEY = _struct(f"{_COMMON}.TransactionMetadataKey", [primitive("string", "id")])
_TRANSACTION_VALUE = _struct(
    f"{_COMMON}.TransactionMetadataValue",
    [
        primitive("string", "status"),
        primitive("string", "id"),
        primitive("int64", "event_count", optional=True),
        array(
            _struct(
                "event.collection",
                [primitive("string", "data_collection"), primitive("int64", "event_count")],
                optional=True,
            ),
            "data_collections",
        ),
        primitive("int64", "ts_ms"),
    ],
)
_HEARTBEAT_KEY = _struct(f"{_COMMON}.ServerNameKey", [primitive("string", "serverName")])
_HEARTBEAT_VALUE = _struct(f"{_COMMON}.Heartbeat", [primitive("int64", "ts_ms")])
_COLUMN = _struct(
    f"{_HISTORY}.Column",
    [
        primitive("string", "name"),
        primitive("int32", "jdbcType"),
        primitive("int32", "nativeType", optional=True),
        primitive("string", "typeName"),
        primitive("string", "typeExpression", optional=True),
        primitive("string", "charsetName", optional=True),
        primitive("int32", "length", optional=True),
        primitive("int32", "scale", optional=True),
        primitive("int32", "position"),
        primitive("boolean", "optional", optional=True),
        primitive("boolean", "autoIncremented", optional=True),
        primitive("boolean", "generated", optional=True),
        primitive("string", "comment", optional=True),
        primitive("string", "defaultValueExpression", optional=True),
        array(_TEXT, "enumValues"),
    ],
)
_TABLE = _struct(
    f"{_HISTORY}.Table",
    [
        primitive("string", "defaultCharsetName", optional=True),
        array(_TEXT, "primaryKeyColumnNames"),
        array(_COLUMN, "columns", optional=False),
        primitive("string", "comment", optional=True),
    ],
    optional=True,
)
_CHANGE = _struct(
    f"{_HISTORY}.Change",
    [primitive("string", "type"), primitive("string", "id"), {**_TABLE, "field": "table"}],
)
_SCHEMA_CHANGE_FIELDS = [
    primitive("int64", "ts_ms"),
    primitive("string", "databaseName", optional=True),
    primitive("string", "schemaName", optional=True),
    primitive("string", "ddl", optional=True),
    array(_CHANGE, "tableChanges", optional=False),
]
