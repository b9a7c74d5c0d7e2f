"""Kafka Connect's schemas as Debezium's MySQL connector makes them, and as its JSON converter writes them.

The mapping is that of Debezium 3.6, its handling modes included (`formats.connect.modes`). What is left out:
the columns' default values and comments (neither the log nor the model has them), and FLOAT(M,D), which is
announced as a 32-bit float like every FLOAT (Debezium: 64).
A column whose zero dates are text (`zeroDates`), which Debezium does not have, is a plain string.

Source: debezium/debezium v3.6.1 `BinlogValueConverters`, `JdbcValueConverters`, `SchemaFactory`;
apache/kafka `JsonConverter.asJsonSchema` (order of the attributes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.formats.connect import postgres
from tailrace.formats.connect.modes import Modes
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind

Schema = dict[str, Any]

#: Parameters of a BIGINT UNSIGNED as a decimal.
_WHOLE = {"scale": "0", "connect.decimal.precision": "20"}
_SNAPSHOT_VALUES = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def key_schema(table: TableSchema, name: str, modes: Modes) -> Schema:
    """Schema of the key of `table`, whose messages go to topic `name`."""
    fields = [_column(table.column(k), modes) for k in table.key]
    return _struct(fields, optional=False, name=f"{name}.Key")


def envelope_schema(table: TableSchema, name: str, connector: str, modes: Modes) -> Schema:
    """Schema of the value of a change of `table`, whose messages go to topic `name`."""
    image = _struct([_column(c, modes) for c in table.columns], optional=True, name=f"{name}.Value")
    return _struct(
        [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {**source_schema(connector), "field": "source"},
            {**TRANSACTION, "field": "transaction"},
            _primitive("string", "op"),
            *(_primitive("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
        ],
        optional=False,
        name=f"{name}.Envelope",
        version=2,
    )


def type_schema(type_: ColumnType, modes: Modes, *, optional: bool) -> Schema:
    """Schema of one column's values, without its field name."""
    if type_.kind is Kind.VECTOR:
        items = {"type": "float", "optional": False}
        array: Schema = {"type": "array", "items": items, "optional": optional}
        return {**array, "name": "io.debezium.data.FloatVector", "version": 1}
    if type_.element is not None:
        items = type_schema(type_.element, modes, optional=True)
        return {"type": "array", "items": items, "optional": optional}
    if type_.kind is Kind.GEOMETRY:
        return _geometry(type_.native == "point", optional)
    own = postgres.schema_of(type_, modes.decimal, optional=optional)
    if own is not None:
        return own
    connect, name, parameters = _semantic(type_, modes)
    schema: Schema = {"type": connect, "optional": optional}
    if name is not None:
        schema |= {"name": name, "version": 1}
    if parameters:
        schema["parameters"] = parameters
    return schema


def _geometry(point: bool, optional: bool) -> Schema:
    """Schema of a spatial column; Debezium has all but points optional, NOT NULL or not."""
    srid = _primitive("int32", "srid", optional=True)
    if point:
        xy = [_primitive("double", axis) for axis in "xy"]
        fields, name, doc = (
            [*xy, _primitive("bytes", "wkb", optional=True), srid],
            "Point",
            "Geometry (POINT)",
        )
    else:
        fields, name, doc = [_primitive("bytes", "wkb"), srid], "Geometry", "Geometry"
        optional = True
    full = f"io.debezium.data.geometry.{name}"
    return {**_struct(fields, optional=optional, name=full, version=1), "doc": doc}


def _semantic(type_: ColumnType, modes: Modes) -> tuple[str, str | None, dict[str, str]]:
    """Connect's type, the name that gives it its meaning, and that name's parameters."""
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return "string", None, {}
        case Kind.INTEGER if type_.unsigned and type_.bits == 64 and modes.bigint_unsigned == "precise":
            return "bytes", "org.apache.kafka.connect.data.Decimal", _WHOLE
        case Kind.INTEGER:
            return _integer(type_.bits or 64, type_.unsigned), None, {}
        case Kind.FLOAT:
            return "float", None, {}
        case Kind.DOUBLE:
            return "double", None, {}
        case Kind.DECIMAL if modes.decimal != "precise":
            return modes.decimal, None, {}
        case Kind.DECIMAL:
            parameters = {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)}
            return "bytes", "org.apache.kafka.connect.data.Decimal", parameters
        case Kind.STRING:
            return "string", None, {}
        case Kind.BYTES:
            return "bytes" if modes.binary == "bytes" else "string", None, {}
        case Kind.BOOLEAN:
            return "boolean", None, {}
        case Kind.BITS:
            return "bytes", "io.debezium.data.Bits", {"length": str(type_.bits)}
        case Kind.DATE | Kind.DATETIME | Kind.TIME:
            return (*_temporal(type_, modes.time), {})
        case Kind.INSTANT:
            return "string", "io.debezium.time.ZonedTimestamp", {}
        case Kind.YEAR:
            return "int32", "io.debezium.time.Year", {}
        case Kind.JSON:
            return "string", "io.debezium.data.Json", {}
        case Kind.ENUM:
            return "string", "io.debezium.data.Enum", {"allowed": ",".join(type_.labels)}
        case Kind.SET:
            return "string", "io.debezium.data.EnumSet", {"allowed": ",".join(type_.labels)}
        case Kind.GEOMETRY | Kind.VECTOR | Kind.LIST:
            raise AssertionError("its schema is no primitive one")


def _temporal(type_: ColumnType, mode: str) -> tuple[str, str]:
    """Connect's type and the name of a DATE, TIME or DATETIME."""
    what = {Kind.DATE: "Date", Kind.TIME: "Time"}.get(type_.kind, "Timestamp")
    if mode == "connect":
        return "int64" if what == "Timestamp" else "int32", f"org.apache.kafka.connect.data.{what}"
    if mode == "isostring":
        return "string", f"io.debezium.time.Iso{what}"
    if what == "Date":
        return "int32", "io.debezium.time.Date"
    if mode == "nanoseconds":
        return "int64", f"io.debezium.time.Nano{what}"
    in_ms = what == "Timestamp" and mode != "microseconds" and in_milliseconds(type_)
    return "int64", f"io.debezium.time.{'' if in_ms else 'Micro'}{what}"


def in_milliseconds(type_: ColumnType) -> bool:
    """Whether a DATETIME is carried in milliseconds: it has no more than three digits of fraction."""
    return (type_.fraction or 0) <= 3


def _integer(bits: int, unsigned: bool) -> str:
    """TINYINT is int16 (int8 from Debezium 3.7 on); BIGINT UNSIGNED is int64 and wraps."""
    if bits == 8:
        return "int16"
    if unsigned and bits < 64:
        return {16: "int32", 24: "int32", 32: "int64"}[bits]
    return {16: "int16", 24: "int32", 32: "int32", 64: "int64"}[bits]


def _column(column: Column, modes: Modes) -> Schema:
    return {**type_schema(column.type, modes, optional=column.nullable), "field": column.name}


def _primitive(type_: str, field: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": field}


def _struct(fields: Sequence[Schema], *, optional: bool, name: str, version: int | None = None) -> Schema:
    schema: Schema = {"type": "struct", "fields": list(fields), "optional": optional, "name": name}
    return schema if version is None else {**schema, "version": version}


def source_schema(connector: str) -> Schema:
    """Schema of where a change comes from."""
    fields = [
        _primitive("string", "version"),
        _primitive("string", "connector"),
        _primitive("string", "name"),
        _primitive("int64", "ts_ms"),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": _SNAPSHOT_VALUES},
            "default": "false",
            "field": "snapshot",
        },
        _primitive("string", "db"),
        _primitive("string", "sequence", optional=True),
        _primitive("int64", "ts_us", optional=True),
        _primitive("int64", "ts_ns", optional=True),
        *(_POSTGRES_SOURCE if connector == postgres.CONNECTOR else _MYSQL_SOURCE),
    ]
    return _struct(fields, optional=False, name=f"io.debezium.connector.{connector}.Source", version=1)


_MYSQL_SOURCE = [
    _primitive("string", "table", optional=True),
    _primitive("int64", "server_id"),
    _primitive("string", "gtid", optional=True),
    _primitive("string", "file"),
    _primitive("int64", "pos"),
    _primitive("int32", "row"),
    _primitive("int64", "thread", optional=True),
    _primitive("string", "query", optional=True),
]
_POSTGRES_SOURCE = [
    _primitive("string", "schema"),
    _primitive("string", "table"),
    *(_primitive("int64", name, optional=True) for name in ("txId", "lsn", "xmin")),
    _primitive("string", "origin", optional=True),
    _primitive("int64", "origin_lsn", optional=True),
]


TRANSACTION = _struct(
    [
        _primitive("string", "id"),
        _primitive("int64", "total_order"),
        _primitive("int64", "data_collection_order"),
    ],
    optional=True,
    name="event.block",
    version=1,
)
