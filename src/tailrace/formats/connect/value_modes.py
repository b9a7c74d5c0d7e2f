"""Conversion of columns according to Debezium's handling modes (`formats.connect.modes`).

A mode converts a column's array before it is written, whole columns at a time; names and types in schemas are
those of `formats.connect.schemas`. A TIME outside one day cannot be written with `connect` and `isostring`,
nor a DATETIME outside 1677..2262 with `nanoseconds`: an error, as in Debezium.

Source: debezium/debezium v3.6.1 `JdbcValueConverters`, `TemporalPrecisionMode`, `BinaryHandlingMode`, `Iso*`.
"""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.connect import postgres
from tailrace.formats.connect.modes import DEFAULT_MODES, Modes
from tailrace.formats.connect.plaintext import plain_decimal
from tailrace.formats.connect.postgres import Converted, UnencodableError, unscaled_bytes
from tailrace.formats.connect.schemas import in_milliseconds
from tailrace.formats.kernels import value_kinds
from tailrace.kernels import floats
from tailrace.model.types import ColumnType, Kind

#: The kinds to which modes other than the defaults apply.
_OF_MODES = (Kind.DECIMAL, Kind.INTEGER, Kind.BYTES, Kind.DATE, Kind.DATETIME, Kind.TIME)
_DAY_US = 86_400_000_000
#: Greatest distance from 1970 that 64-bit nanoseconds can represent, microseconds.
_NANOS_US = (2**63 - 1) // 1000
_HEX = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), "<u2")


def may_convert(type_: ColumnType, modes: Modes) -> bool:
    """Whether `converted` can apply to values of a type."""
    if type_.kind is Kind.LIST or postgres.may_convert(type_):
        return True
    return modes != DEFAULT_MODES and type_.kind in _OF_MODES


def converted(array: pa.Array, type_: ColumnType, modes: Modes) -> Converted | None:
    """Convert a column; None if no mode applies to it.

    Args:
        array: the column.
        type_: its type.
        modes: the handling modes.

    Raises:
        UnencodableError: the mode cannot represent a value.
    """
    if type_.kind is Kind.LIST:
        assert type_.element is not None
        return _lists(array, type_.element, modes), value_kinds.RAW, None
    found = postgres.converted(array, type_, modes)
    if found is not None:
        return found
    if modes.adjust_years and type_.kind in (Kind.DATE, Kind.DATETIME):
        array = _adjusted(array)
        return _plain_form(array, type_, modes) or (array, kind_of(type_), "0")
    return _plain_form(array, type_, modes)


def _plain_form(array: pa.Array, type_: ColumnType, modes: Modes) -> Converted | None:
    match type_.kind:
        case Kind.DECIMAL if modes.decimal == "double":
            return _doubles(array), value_kinds.DOUBLE, None
        case Kind.DECIMAL if modes.decimal == "string":
            return plain_decimal(array, type_.scale or 0), value_kinds.STRING, None
        case Kind.INTEGER if modes.bigint_unsigned == "precise" and pa.types.is_decimal(array.type):
            return array, value_kinds.DECIMAL, None
        case Kind.BYTES if modes.binary == "hex":
            return _hex(array), value_kinds.STRING, None
        case Kind.BYTES if modes.binary == "base64-url-safe":
            return array, value_kinds.BASE64_URL, None
        case Kind.DATE if modes.time == "isostring":
            return _zulu(array.cast(pa.string())), value_kinds.STRING, '"1970-01-01Z"'
        case Kind.DATETIME:
            return _datetime(array, modes.time)
        case Kind.TIME:
            return _time(array, modes.time)
    return None


_BY_ARROW_TYPE = {
    pa.int8(): value_kinds.INT8,
    pa.int16(): value_kinds.INT16,
    pa.int32(): value_kinds.INT32,
    pa.int64(): value_kinds.INT64,
    pa.float32(): value_kinds.FLOAT,
    pa.float64(): value_kinds.DOUBLE,
    pa.string(): value_kinds.STRING,
    pa.binary(): value_kinds.BINARY,
    pa.bool_(): value_kinds.BOOLEAN,
    pa.date32(): value_kinds.INT32,
    pa.duration("us"): value_kinds.INT64,
    pa.list_(pa.float32()): value_kinds.FLOATS,
}


def kind_of(type_: ColumnType) -> int:
    """How the kernels write values of a type to which no mode applies."""
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return value_kinds.STRING
        case Kind.GEOMETRY:
            return value_kinds.POINT if type_.native == "point" else value_kinds.GEOMETRY
        case Kind.DATETIME:
            return value_kinds.MILLIS if in_milliseconds(type_) else value_kinds.INT64
        case Kind.INSTANT:
            return value_kinds.INSTANT
        case Kind.BITS:
            return value_kinds.BITS
        case Kind.DECIMAL:
            return value_kinds.DECIMAL_TEXT if pa.types.is_string(type_.arrow) else value_kinds.DECIMAL
        case Kind.INTEGER if pa.types.is_decimal(type_.arrow):
            return value_kinds.LOW64
    return _BY_ARROW_TYPE[type_.arrow]


def _lists(array: pa.ListArray, element: ColumnType, modes: Modes) -> pa.StringArray:
    """Lists as JSON arrays, whose elements have the form of a column of their type."""
    first, last = (array.offsets[i].as_py() for i in (0, -1))
    texts = pc.fill_null(_json(array.values.slice(first, last - first), element, modes), "null")
    offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    made = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(array.is_valid(), made, None)


def _json(values: pa.Array, type_: ColumnType, modes: Modes) -> pa.StringArray:
    """Values as JSON, null as null."""
    form = converted(values, type_, modes)
    values, kind, _ = form or (values, kind_of(type_), None)
    match kind:
        case value_kinds.RAW:
            return values
        case value_kinds.FLOAT | value_kinds.DOUBLE:
            return floats.texts(values)
        case value_kinds.MILLIS | value_kinds.NANOS:
            us = values.cast(pa.int64())
            whole = pc.multiply(us, 1000) if kind == value_kinds.NANOS else _floor_divide(us, 1000)
            return whole.cast(pa.string())
        case value_kinds.DECIMAL:
            scale = type_.scale or 0
            made = [None if v is None else unscaled_bytes(v, scale) for v in values.to_pylist()]
            return _quoted_base64(made, "bytes")
        case value_kinds.BINARY | value_kinds.BASE64_URL:
            return _quoted_base64(values.to_pylist(), modes.binary)
        case value_kinds.INSTANT:
            return _quoted(postgres.instants(values, type_.fraction or 0))
        case value_kinds.STRING:
            return _quoted(values)
        case value_kinds.POINT:
            return _points(values)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.string())
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()).cast(pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pa.array(
        [None if t is None else json.dumps(t, ensure_ascii=False) for t in texts.to_pylist()], pa.string()
    )


def _quoted_base64(values: list[bytes | None], mode: str) -> pa.StringArray:
    encode = base64.urlsafe_b64encode if mode == "base64-url-safe" else base64.b64encode
    return pa.array([None if v is None else f'"{encode(v).decode()}"' for v in values], pa.string())


def _points(values: pa.BinaryArray) -> pa.StringArray:
    """Points as JSON: see the kernel."""
    wkb = [None if v is None else v[4:] for v in values.to_pylist()]
    xy = np.frombuffer(b"".join(v[5:] if v else bytes(16) for v in wkb), "<f8").reshape(-1, 2)
    x, y = (floats.texts(pa.array(np.ascontiguousarray(xy[:, i]))) for i in range(2))
    pieces = ['{"x":', x, ',"y":', y, ',"wkb":', _quoted_base64(wkb, "bytes"), ',"srid":null}', ""]
    return pc.binary_join_element_wise(*pieces)


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    down = pc.divide(pc.subtract(values, by - 1), by)
    return pc.if_else(pc.less(values, 0), down, pc.divide(values, by))


def _adjusted(array: pa.Array) -> pa.Array:
    """Move the years 0..69 to 2000..2069, and 70..99 to 1970..1999, whose leap years are the same."""
    unit = array.type
    number = pa.int32() if pa.types.is_date32(unit) else pa.int64()
    values = array.cast(number)
    day = 1 if number == pa.int32() else _DAY_US
    bounds = [int(np.datetime64(f"{year:04d}-01-01", "D").astype(int)) * day for year in (0, 70, 100)]
    for first, last, year in ((bounds[0], bounds[1], 2000), (bounds[1], bounds[2], 1970)):
        start = int(np.datetime64(f"{year}-01-01", "D").astype(int)) * day
        within = pc.and_(pc.greater_equal(values, first), pc.less(values, last))
        values = pc.if_else(within, pc.add(values, pa.scalar(start - first, number)), values)
    return values.cast(unit)


def _datetime(array: pa.Array, mode: str) -> Converted | None:
    match mode:
        case "microseconds":
            return array, value_kinds.INT64, "0"
        case "connect":
            return array, value_kinds.MILLIS, "0"
        case "nanoseconds":
            us = array.cast(pa.int64())
            _require(pc.less_equal(pc.abs(us), _NANOS_US), "DATETIME", mode, "years from 1678 to 2261")
            return us, value_kinds.NANOS, "0"
        case "isostring":
            text = pc.strftime(array, format="%Y-%m-%dT%H:%M:%S")
            return _zulu(_without_zeros(text)), value_kinds.STRING, '"1970-01-01T00:00:00Z"'
    return None


def _time(array: pa.Array, mode: str) -> Converted | None:
    if mode == "nanoseconds":
        return array.cast(pa.int64()), value_kinds.NANOS, None
    if mode not in ("connect", "isostring"):
        return None
    us = array.cast(pa.int64())
    within = pc.and_(pc.greater_equal(us, 0), pc.less(us, _DAY_US))
    _require(within, "TIME", mode, "times of one day")
    if mode == "connect":
        return us, value_kinds.MILLIS, None
    text = us.cast(pa.time64("us")).cast(pa.string())
    return _zulu(_without_zeros(text)), value_kinds.STRING, None


def _require(good: pa.Array, type_: str, mode: str, holds: str) -> None:
    if pc.any(pc.invert(good)).as_py():
        raise UnencodableError(
            f"a {type_} value cannot be encoded with `time-precision-mode: {mode}`",
            f"that mode supports {holds}",
            "set time-precision-mode: adaptive_time_microseconds",
            code="TR-7604",
        )


def _doubles(array: pa.Array) -> pa.DoubleArray:
    text = array.cast(pa.string())
    # values below a null image are arbitrary: decimals that are text are empty there
    return pc.if_else(pc.equal(text, ""), "0", text).cast(pa.float64())


def _hex(array: pa.BinaryArray) -> pa.StringArray:
    """Two lower-case digits for each byte."""
    validity, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    values = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    text = pa.py_buffer(_HEX[values].tobytes())
    lengths = pa.py_buffer(2 * (ends - ends[0]))
    made = pa.Array.from_buffers(pa.string(), len(array), [None, lengths, text])
    return made if validity is None else pc.if_else(array.is_valid(), made, None)


def _without_zeros(text: pa.StringArray) -> pa.StringArray:
    """Remove trailing zeros of the seconds' fraction."""
    return pc.replace_substring_regex(text, r"\.?0+$", "") if _has_fractions(text) else text


def _has_fractions(text: pa.StringArray) -> bool:
    return bool(pc.any(pc.match_substring(text, ".")).as_py())


def _zulu(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(text, "Z", "")
