"""Debezium's `source` block, the origin of a change: its fields are declared here once, for all formats.

    FIELDS      name, Connect type and filling of each field, in Debezium's order, by connector
      ├─▶ source_schema        the Connect schema: JSON schemas, Avro, Protobuf
      ├─▶ SourceBlock.columns  the values of a batch of changes, as arrays
      └─▶ SourceBlock.values   the values of one change: messages that are few

A field shows a column of the changes' origin, or their statement, or a constant of the table and the
source, or null: Tailrace does not fill `xmin`, `origin` and `origin_lsn`. PostgreSQL's `sequence` holds the
LSN of the transaction's own commit; Debezium has that of the last commit it saw, which depends on where it
started.

Source: debezium/debezium v3.6.1 `AbstractSourceInfoStructMaker`, `BinlogSourceInfoStructMaker`,
`PostgresSourceInfoStructMaker`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.connect.builders import Schema, primitive, struct
from tailrace.formats.kernels import value_kinds
from tailrace.model.change import OP_READ, OP_REREAD, OP_TRUNCATE, QUERY_COLUMN, ChangeBatch
from tailrace.model.table import TableId

POSTGRES, ORACLE = "postgresql", "oracle"

_SNAPSHOT_VALUES = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_SNAPSHOT_SCHEMA: Schema = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": _SNAPSHOT_VALUES},
    "default": "false",
    "field": "snapshot",
}
#: By operation: the mark of its changes.
_SNAPSHOT_MARKS = pa.array(
    ["incremental" if op == OP_REREAD else str(op == OP_READ).lower() for op in range(OP_TRUNCATE + 1)]
)
#: Values of hexadecimal digits by their ASCII code, -1 of other characters.
HEX_DIGITS = np.full(256, -1)
HEX_DIGITS[list(b"0123456789abcdef")] = np.arange(16)
#: Position of the commit's LSN or SCN in `seq`, where it has one.
_COMMIT = slice(4, 20)


@dataclass(frozen=True)
class SourceField:
    """One field of the block.

    Args:
        name: its name.
        type: its Connect type.
        optional: whether it may be null.
        column: what it shows: a column of `model.change.ORIGIN`, or `snapshot`, `sequence`, `xid`, `scn`,
            `commit` or `query`; None: a constant, or null.
        kind: how the column's values are written, a constant of `formats.kernels.value_kinds`.
        absent: JSON text for a null in the column.
    """

    name: str
    type: str
    optional: bool = False
    column: str | None = None
    kind: int = value_kinds.STRING
    absent: str = "null"

    def has_values(self, *, has_query: bool) -> bool:
        """Whether its values are those of changes; `has_query`: whether changes have their statements."""
        return self.column is not None and (has_query or self.column != QUERY_COLUMN)

    @property
    def schema(self) -> Schema:
        """The field of the Connect schema."""
        if self.name == "snapshot":
            return _SNAPSHOT_SCHEMA
        return primitive(self.type, self.name, optional=self.optional)


def _common(sequence: str | None) -> tuple[SourceField, ...]:
    """The fields of both connectors; `sequence`: the column that this field shows."""
    return (
        SourceField("version", "string"),
        SourceField("connector", "string"),
        SourceField("name", "string"),
        SourceField("ts_ms", "int64", False, "ts_us", value_kinds.MILLIS, "0"),
        SourceField("snapshot", "string", True, "snapshot"),
        SourceField("db", "string"),
        SourceField("sequence", "string", True, sequence),
        SourceField("ts_us", "int64", True, "ts_us", value_kinds.INT64, "0"),
        SourceField("ts_ns", "int64", True, "ts_us", value_kinds.NANOS, "0"),
    )


MYSQL_FIELDS = (
    *_common(None),
    SourceField("table", "string", True),
    SourceField("server_id", "int64", False, "server_id", value_kinds.INT64, "0"),
    SourceField("gtid", "string", True, "txn"),
    SourceField("file", "string", False, "file", absent='""'),
    SourceField("pos", "int64", False, "pos", value_kinds.INT64, "0"),
    SourceField("row", "int32", False, "row", value_kinds.INT32, "0"),
    SourceField("thread", "int64", True, "thread", value_kinds.INT64),
    SourceField("query", "string", True, QUERY_COLUMN),
)
POSTGRES_FIELDS = (
    *_common("sequence"),
    SourceField("schema", "string"),
    SourceField("table", "string"),
    SourceField("txId", "int64", True, "xid", value_kinds.INT64),
    SourceField("lsn", "int64", True, "pos", value_kinds.INT64),
    SourceField("xmin", "int64", True),
    SourceField("origin", "string", True),
    SourceField("origin_lsn", "int64", True),
)
#: Debezium has more fields, which are optional: what LogMiner says of each record.
ORACLE_FIELDS = (
    *_common(None),
    SourceField("schema", "string"),
    SourceField("table", "string"),
    SourceField("txId", "string", True, "txn"),
    SourceField("scn", "string", True, "scn"),
    SourceField("commit_scn", "string", True, "commit"),
)


def source_fields(connector: str) -> tuple[SourceField, ...]:
    """The block's fields for a connector."""
    return {POSTGRES: POSTGRES_FIELDS, ORACLE: ORACLE_FIELDS}.get(connector, MYSQL_FIELDS)


def source_schema(connector: str) -> Schema:
    """The block's Connect schema, without a field name."""
    fields = [field.schema for field in source_fields(connector)]
    return struct(fields, f"io.debezium.connector.{connector}.Source", version=1)


@dataclass(frozen=True)
class SourceBlock:
    """The block of one stream.

    Args:
        connector: kind of source: `mysql`, `mariadb`, `oracle` or `postgresql`.
        name: Debezium's `topic.prefix`.
        version: version to write.
        database: PostgreSQL's database, Oracle's service; MySQL's is part of the table's name.
    """

    connector: str
    name: str
    version: str
    database: str = ""

    def constants(self, table: TableId) -> dict[str, str]:
        """The values of the fields that are constants, by name; fields of neither kind are null."""
        return {
            "version": self.version,
            "connector": self.connector,
            "name": self.name,
            "db": self.database if self.connector in (POSTGRES, ORACLE) else table.database,
            "schema": table.database,
            "table": table.table,
        }

    def columns(self, batch: ChangeBatch) -> Iterator[tuple[SourceField, pa.Array | None]]:
        """Every field with its values for a batch of changes; None: a constant or null."""
        for field in source_fields(self.connector):
            if field.column is not None and field.has_values(has_query=batch.query is not None):
                yield field, origin_values(batch, field.column)
            else:
                yield field, None

    def values(self, table: TableId, origin: Mapping[str, Any], *, snapshot: bool) -> dict[str, Any]:
        """The block of one change.

        Args:
            table: its table.
            origin: its origin, by the names of `model.change.ORIGIN`.
            snapshot: whether it is a row of a snapshot.
        """
        constants = self.constants(table)
        return {
            field.name: constants.get(field.name)
            if field.column is None
            else _scalar(field, origin, snapshot=snapshot)
            for field in source_fields(self.connector)
        }


def origin_values(batch: ChangeBatch, column: str) -> pa.Array:
    """The values of a batch for `SourceField.column`."""
    match column:
        case "snapshot":
            return _SNAPSHOT_MARKS.take(batch.op)
        case "sequence":
            return sequences(batch)
        case "xid":
            return batch.origin.column("txn").dictionary_decode().cast(pa.int64())
        case "scn":
            return batch.origin.column("pos").cast(pa.string())
        case "commit":
            return _commits(batch).cast(pa.string())
        case "txn" | "file":
            return batch.origin.column(column).dictionary_decode()
        case "query":
            nulls = pa.nulls(len(batch), pa.string())
            return nulls if batch.query is None else batch.query.dictionary_decode()
    return batch.origin.column(column)


def sequences(batch: ChangeBatch) -> pa.StringArray:
    """Debezium's `source.sequence` for PostgreSQL: LSN of the commit and of the change, as a JSON array."""
    lsns = [_commits(batch).cast(pa.string()), batch.origin.column("pos").cast(pa.string())]
    return pc.binary_join_element_wise('["', lsns[0], '","', lsns[1], '"]', "")


def _commits(batch: ChangeBatch) -> pa.Array:
    """The LSN or SCN of each change's commit, which is part of its `seq`."""
    seq = batch.origin.column("seq")
    text = np.frombuffer("".join(seq.to_pylist()).encode(), np.uint8).reshape(len(batch), -1)
    return pa.array((HEX_DIGITS[text[:, _COMMIT]] << np.arange(60, -1, -4)).sum(axis=1))


def _scalar(field: SourceField, origin: Mapping[str, Any], *, snapshot: bool) -> Any:
    match field.column:
        case "snapshot":
            return "true" if snapshot else "false"
        case "query":
            return None
        case "sequence" if origin["pos"] is None:
            return None
        case "sequence":
            return f'["{int(origin["seq"][_COMMIT], 16)}","{origin["pos"]}"]'
        case "xid":
            return None if origin["txn"] is None else int(origin["txn"])
        case "scn":
            return None if origin["pos"] is None else str(origin["pos"])
        case "commit":
            return None if origin["seq"] is None else str(int(origin["seq"][_COMMIT], 16))
    assert field.column is not None
    value = origin[field.column]
    if value is None:
        return json.loads(field.absent)
    if field.kind == value_kinds.MILLIS:
        return value // 1000
    return value * 1000 if field.kind == value_kinds.NANOS else value
