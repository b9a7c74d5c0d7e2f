"""Kafka Connect's schemas of keys and envelopes, as Debezium's connectors define them.

The mapping is that of Debezium 3.6, including its handling modes (`formats.connect.modes`), with these
differences: columns have no default values, which neither the log nor the model has; FLOAT(M,D) is a 32-bit
float like every FLOAT (Debezium: 64); and a column whose zero dates are text (`zeroDates`), an option that
Debezium lacks, is a plain string.

Source: debezium/debezium v3.6.1 `BinlogValueConverters`, `JdbcValueConverters`, `SchemaFactory`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.formats.connect import postgres
from tailrace.formats.connect.builders import Schema, primitive, semantic, struct
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.source_block import source_schema
from tailrace.model.source_type import Declaration
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind

_SOURCE_COLUMN = "__debezium.source.column"
#: Parameters of a BIGINT UNSIGNED as a decimal.
_WHOLE = {"scale": "0", "connect.decimal.precision": "20"}

TRANSACTION = struct(
    [
        primitive("string", "id"),
        primitive("int64", "total_order"),
        primitive("int64", "data_collection_order"),
    ],
    "event.block",
    optional=True,
    version=1,
)


def key_schema(table: TableSchema, name: str, modes: Modes, added: Sequence[Schema] = ()) -> Schema:
    """The schema of the key of `table`, whose messages go to topic `name`, with further fields behind it."""
    columns = (_column(table.column(k), modes, of_key=True) for k in table.key)
    return struct([*columns, *added], f"{name}.Key")


def envelope_schema(table: TableSchema, name: str, connector: str, modes: Modes) -> Schema:
    """The schema of the value of a change of `table`, whose messages go to topic `name`."""
    image = row_schema(table, name, modes, optional=True)
    return struct(
        [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {**source_schema(connector), "field": "source"},
            {**TRANSACTION, "field": "transaction"},
            primitive("string", "op"),
            *(primitive("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
        ],
        f"{name}.Envelope",
        version=2,
    )


def row_schema(
    table: TableSchema, name: str, modes: Modes, added: Sequence[Schema] = (), *, optional: bool = False
) -> Schema:
    """The schema of a row of `table`, whose messages go to topic `name`, with further fields behind it."""
    columns = [_column(column, modes) for column in table.columns]
    return struct([*columns, *added], f"{name}.Value", optional=optional)


def type_schema(type_: ColumnType, modes: Modes, *, optional: bool) -> Schema:
    """The schema of a column's values, without a field name."""
    if type_.kind is Kind.VECTOR:
        items = {"type": "float", "optional": False}
        array: Schema = {"type": "array", "items": items, "optional": optional}
        return {**array, "name": "io.debezium.data.FloatVector", "version": 1}
    if type_.element is not None:
        items = type_schema(type_.element, modes, optional=True)
        return {"type": "array", "items": items, "optional": optional}
    if type_.kind is Kind.GEOMETRY:
        return _geometry(type_.native == "point", optional)
    own = postgres.schema_of(type_, modes, optional=optional)
    if own is not None:
        return own
    connect, name, parameters = _semantic(type_, modes)
    if name is None:
        return {"type": connect, "optional": optional}
    schema = semantic(connect, name, optional=optional)
    return {**schema, "parameters": parameters} if parameters else schema


def _geometry(point: bool, optional: bool) -> Schema:
    """The schema of a spatial column; in Debezium all but points are optional, even NOT NULL columns."""
    srid = primitive("int32", "srid", optional=True)
    if point:
        xy = [primitive("double", axis) for axis in "xy"]
        fields, name, doc = (
            [*xy, primitive("bytes", "wkb", optional=True), srid],
            "Point",
            "Geometry (POINT)",
        )
    else:
        fields, name, doc = [primitive("bytes", "wkb"), srid], "Geometry", "Geometry"
        optional = True
    full = f"io.debezium.data.geometry.{name}"
    return {**struct(fields, full, optional=optional, version=1), "doc": doc}


def _semantic(type_: ColumnType, modes: Modes) -> tuple[str, str | None, dict[str, str]]:
    """The Connect type, its semantic name and the name's parameters."""
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
            raise AssertionError("not a primitive type")


def _temporal(type_: ColumnType, mode: str) -> tuple[str, str]:
    """The Connect type and semantic name of a DATE, TIME or DATETIME."""
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
    """Whether messages hold a DATETIME in milliseconds: its fraction has at most three digits."""
    return (type_.fraction or 0) <= 3


def _integer(bits: int, unsigned: bool) -> str:
    """The Connect type: TINYINT is int16 (int8 since Debezium 3.7); BIGINT UNSIGNED is int64 and wraps."""
    if bits == 8:
        return "int16"
    if unsigned and bits < 64:
        return {16: "int32", 24: "int32", 32: "int64"}[bits]
    return {16: "int16", 24: "int32", 32: "int32", 64: "int64"}[bits]


def _column(column: Column, modes: Modes, *, of_key: bool = False) -> Schema:
    schema = type_schema(column.type, modes, optional=is_optional(column))
    if column.declared is not None:
        parameters = {**schema.pop("parameters", {}), **({} if of_key else _declared(column.declared))}
        if column.declared.comment:
            schema["doc"] = column.declared.comment
        if parameters:
            schema["parameters"] = parameters
    return {**schema, "field": column.name}


def _declared(declared: Declaration) -> dict[str, str]:
    """Debezium's parameters of a column whose declared type is said, which keys do not have."""
    if declared.type is None:
        return {}
    known = {
        "type": declared.type.name,
        "length": declared.type.length,
        "scale": declared.type.scale,
        "comment": declared.comment or None,
        "name": declared.column,
    }
    return {f"{_SOURCE_COLUMN}.{name}": str(value) for name, value in known.items() if value is not None}


def is_optional(column: Column) -> bool:
    """Whether messages may have null; in a NOT NULL column it stands for values that do not fit."""
    return column.nullable or column.type.unfit == "null"
