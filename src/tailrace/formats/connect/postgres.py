"""Types for which Debezium's PostgreSQL connector writes other schemas and values than its MySQL connector.

A type is identified by its native name, so that schemas and values of every sink agree. The representations
are those of Debezium's defaults: intervals are microseconds (a month is 365.25 / 12 days), hstore is JSON,
numerics without a scale are VariableScaleDecimal. `time.precision.mode: adaptive` is treated as
`adaptive_time_microseconds`: a time(3) is a MicroTime, too. A column that is captured as text (`textColumns`)
is a plain string.

A column that the log omits because it is unchanged and stored out of line (TOAST) is Debezium's placeholder
if its type has one. Others are null. The header `__tailrace.absent.after` names all of them.

Of a deleted row the log has the key only, unless the table has REPLICA IDENTITY FULL. A NOT NULL column that
is missing there is 0, "" or what else Debezium gives it (`filler`): its schema allows no null. The header
`__tailrace.absent.before` names all of them.

Source: debezium/debezium v3.6.1 `PostgresValueConverter`, `JdbcValueConverters`, `MicroDuration`,
`VariableScaleDecimal`, `SpecialValueDecimal`, `UnchangedToastedPlaceholder`; manual, "Data type mappings".
"""

from __future__ import annotations

import base64
import decimal
import json
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.formats.connect.builders import Schema, primitive, semantic, struct
from tailrace.formats.connect.modes import Modes
from tailrace.formats.kernels import value_kinds
from tailrace.model.types import ColumnType, Kind

PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = PLACEHOLDER.encode()
#: Debezium's placeholders by the native names of arrays' elements: their bytes as numbers, their digest.
_ELEMENTS = {
    **{native: list(_BYTES) for native in ("int4", "int8", "date")},
    "uuid": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
}
#: Text types for which Debezium's schema has a name.
_NAMES = {"xml": "Xml", "ltree": "Ltree", "tsvector": "Tsvector", "hstore": "Json", "uuid": "Uuid"}
#: Types of extensions whose names are known in any schema.
_ANYWHERE = ("halfvec",)
#: Types that are text in Tailrace and another type in messages.
_CONVERTED = ("interval", "bit", "varbit", "numeric", "timetz", "point", "halfvec")
#: Debezium's microseconds for the infinities of timestamps, and its text for them.
_INFINITIES = {2**63 - 1: 9223372036825200000, -(2**63): -9223372036832400000}
_INFINITE_TEXTS = {2**63 - 1: "+294247-01-10T04:00:25.2Z", -(2**63): "-290308-12-21T19:59:27.6Z"}
_WORDS = {2**63 - 1: "infinity", -(2**63): "-infinity"}
#: Debezium's text for numerics that are no numbers.
_SPECIAL = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
#: Arithmetic that rounds no numeric: PostgreSQL's have 147,455 digits at most.
_EXACT = decimal.Context(prec=200_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_POINT = struct(
    [
        primitive("double", "x"),
        primitive("double", "y"),
        primitive("bytes", "wkb", optional=True),
        primitive("int32", "srid", optional=True),
    ],
    "io.debezium.data.geometry.Point",
    version=1,
)
_FIRST_US, _LAST_US = -62135596800000000, 253402300799999999  # of the years 1..9999
_FIRST_DAY, _LAST_DAY = -719162, 2932896
_INTERVAL = (
    r"^P(?:(?P<years>-?\d+)Y)?(?:(?P<months>-?\d+)M)?(?:(?P<days>-?\d+)D)?"
    r"(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?\d+)(?:\.(?P<fraction>\d+))?S)?)?$"
)
_DAYS_OF_A_MONTH = 365.25 / 12
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")')

#: The converted array, its kind for the kernel, and the JSON for a zero date of a NOT NULL column.
Converted = tuple[pa.Array, int, str | None]


class UnencodableError(SinkError):
    """A handling mode cannot represent a value; whoever knows the column names it."""


def schema_of(type_: ColumnType, modes: Modes, *, optional: bool) -> Schema | None:
    """The Connect schema of a type; None if it is the same as for other sources.

    Args:
        type_: the type.
        modes: the handling modes.
        optional: whether it may be null.
    """
    if type_.kind is not Kind.STRING or type_.unfit == "text":
        return None
    match _name(type_):
        case "interval":
            return semantic("int64", "io.debezium.time.MicroDuration", optional=optional)
        case "timetz":
            return semantic("string", "io.debezium.time.ZonedTime", optional=optional)
        case "varbit" if type_.length == 1:
            return {"type": "boolean", "optional": optional}
        case "bit" | "varbit":
            bits = semantic("bytes", "io.debezium.data.Bits", optional=optional)
            return {**bits, "parameters": {"length": str(type_.length or 2**31 - 1)}}
        case "numeric" if modes.decimal != "precise":
            return {"type": modes.decimal, "optional": optional}
        case "numeric" if type_.precision is not None:
            parameters = {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)}
            schema = semantic("bytes", "org.apache.kafka.connect.data.Decimal", optional=optional)
            return {**schema, "parameters": parameters}
        case "numeric":
            fields = [primitive("int32", "scale"), primitive("bytes", "value")]
            name = "io.debezium.data.VariableScaleDecimal"
            doc = "Variable scaled decimal"
            return {**struct(fields, name, optional=optional, version=1), "doc": doc}
        case "point":
            return {**_POINT, "optional": optional, "doc": "Geometry (POINT)"}
        case "halfvec":
            items = {"type": "float", "optional": False}
            array: Schema = {"type": "array", "items": items, "optional": optional}
            return {**array, "name": "io.debezium.data.FloatVector", "version": 1}
        case native if native in _NAMES:
            return semantic("string", f"io.debezium.data.{_NAMES[native]}", optional=optional)
    return None


def may_convert(type_: ColumnType) -> bool:
    """Whether `converted` can apply to values of a type: to those of some it does by what they are."""
    if type_.kind is Kind.STRING:
        return type_.unfit != "text" and _name(type_) in {*_CONVERTED, "hstore"}
    return (type_.kind, type_.native) in ((Kind.DATETIME, "timestamp"), (Kind.INSTANT, "timestamptz"))


def converted(array: pa.Array, type_: ColumnType, modes: Modes) -> Converted | None:
    """The form of a column (`formats.connect.value_modes`); None if it is the same as for other sources.

    Args:
        array: the column.
        type_: its type.
        modes: the handling modes.

    Raises:
        UnencodableError: a NaN or Infinity has no precise form, a moment is outside of `nanoseconds`.
    """
    match type_.kind:
        case Kind.DATE if type_.native == "date" and modes.time == "isostring" and _is_odd_day(array):
            return _iso_days(array), value_kinds.STRING, None
        case Kind.DATETIME if type_.native == "timestamp" and _is_odd(array):
            return _moments(array, type_, modes.time)
        case Kind.INSTANT if type_.native == "timestamptz" and _is_odd(array):
            return instants(array, type_.fraction or 0), value_kinds.STRING, None
        case Kind.STRING if type_.unfit != "text":
            return _text_form(array, type_, modes)
    return None


def _text_form(array: pa.Array, type_: ColumnType, modes: Modes) -> Converted | None:
    match _name(type_):
        case "interval":
            return _micros(array), value_kinds.INT64, None
        case "timetz":
            return _mapped(array, _utc_time), value_kinds.STRING, None
        case "varbit" if type_.length == 1:
            made = [None if v is None or v == "" else v == "1" for v in array.to_pylist()]
            return pa.array(made, pa.bool_()), value_kinds.BOOLEAN, None
        case "bit" | "varbit":
            made = [None if v is None else _bits(v) for v in array.to_pylist()]
            return pa.array(made, pa.binary()), value_kinds.BINARY, None
        case "hstore":
            return _mapped(array, _hstore), value_kinds.STRING, None
        case "numeric":
            return _numeric(array, type_, modes.decimal)
        case "point":
            return _points(array), value_kinds.POINT, None
        case "halfvec":
            return _vectors(array), value_kinds.FLOATS, None
    return None


def _name(type_: ColumnType) -> str:
    """The type's name; without its schema if that is any, because an extension may be in any."""
    last = type_.native.rpartition(".")[2]
    return last if last in _ANYWHERE else type_.native


def placeholder(type_: ColumnType, modes: Modes) -> str | None:
    """The JSON of Debezium's placeholder for a value that the log omits; None if the type has none."""
    if type_.element is not None:
        if type_.element.kind is Kind.DATE and modes.time in ("connect", "isostring"):
            return None
        if type_.element.native in _ELEMENTS:
            return json.dumps(_ELEMENTS[type_.element.native], separators=(",", ":"))
        element = placeholder(type_.element, modes)
        return None if element is None else f"[{element}]"
    if type_.kind is Kind.BYTES and modes.binary != "hex":
        return json.dumps(base64.b64encode(_BYTES).decode())
    if type_.kind is Kind.STRING and type_.native == "hstore" and type_.unfit is None:
        return json.dumps(json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")))
    if type_.kind is Kind.STRING and _name(type_) in _CONVERTED and type_.unfit != "text":
        return None
    return json.dumps(PLACEHOLDER) if type_.kind in (Kind.STRING, Kind.JSON, Kind.BYTES) else None


def filler(type_: ColumnType, modes: Modes) -> str:
    """The JSON of what Debezium writes for a NOT NULL column that an old row lacks."""
    zero_decimal = {"precise": '"AA=="', "double": "0.0"}.get(modes.decimal)
    match type_.kind:
        case Kind.STRING if type_.unfit == "text":
            return '""'
        case Kind.STRING if type_.native == "numeric" and type_.precision is None:
            return {"precise": '{"scale":0,"value":"AA=="}', "double": "0.0"}.get(modes.decimal, '"0"')
        case Kind.STRING if type_.native == "numeric":
            return zero_decimal or json.dumps(f"{0:.{type_.scale or 0}f}")
        case Kind.STRING:
            texts = {"interval": "0", "timetz": '"00:00:00Z"', "hstore": '"{}"', "halfvec": "[]"}
            texts["point"] = '{"x":0.0,"y":0.0,"wkb":"AQEAAAAAAAAAAAAAAAAAAAAAAAAA","srid":null}'
            if type_.native == "varbit" and type_.length == 1:
                return "false"
            return texts.get(_name(type_), '""')
        case Kind.DECIMAL:
            return zero_decimal or json.dumps(f"{0:.{type_.scale or 0}f}")
        case Kind.FLOAT | Kind.DOUBLE:
            return "0.0"
        case Kind.BOOLEAN:
            return "false"
        case Kind.LIST | Kind.VECTOR:
            return "[]"
        case Kind.INSTANT:
            return '"1970-01-01T00:00:00Z"'
        case Kind.DATE | Kind.DATETIME | Kind.TIME if modes.time == "isostring":
            texts = {Kind.DATE: "1970-01-01Z", Kind.TIME: "00:00:00Z"}
            return json.dumps(texts.get(type_.kind, "1970-01-01T00:00:00Z"))
        case Kind.INTEGER | Kind.DATE | Kind.DATETIME | Kind.TIME:
            return "0"
    return '""'


def _mapped(array: pa.Array, change: Any) -> pa.StringArray:
    return pa.array([None if v is None else change(v) for v in array.to_pylist()], pa.string())


def _is_odd(array: pa.Array) -> bool:
    """Whether there are instants outside the years 1..9999."""
    found = pc.min_max(array.cast(pa.int64()))
    if found["min"].as_py() is None:
        return False
    return bool(found["min"].as_py() < _FIRST_US or found["max"].as_py() > _LAST_US)


def _is_odd_day(array: pa.Array) -> bool:
    """Whether there are days outside the years 1..9999."""
    found = pc.min_max(array.cast(pa.int32()))
    if found["min"].as_py() is None:
        return False
    return bool(found["min"].as_py() < _FIRST_DAY or found["max"].as_py() > _LAST_DAY)


def _moments(array: pa.Array, type_: ColumnType, mode: str) -> Converted:
    """Timestamps of which some are infinite, or outside the years 1..9999."""
    if mode == "isostring":
        return _mapped(array.cast(pa.int64()), _iso_moment), value_kinds.STRING, None
    us = np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy())
    infinite = {value: us == value for value in _INFINITIES}
    if mode == "nanoseconds":
        finite = np.where(infinite[2**63 - 1] | infinite[-(2**63)], 0, us)
        if (np.abs(finite) > (2**63 - 1) // 1000).any():
            raise UnencodableError(
                "a timestamp cannot be encoded with `time-precision-mode: nanoseconds`",
                "that mode supports years from 1678 to 2261, and the infinities",
                "set time-precision-mode: adaptive_time_microseconds",
                code="TR-7604",
            )
        out, ends = finite * 1000, {value: value for value in _INFINITIES}
    elif mode == "microseconds" or (mode != "connect" and (type_.fraction or 0) > 3):
        out, ends = us, _INFINITIES
    else:
        out, ends = us // 1000, {value: us // 1000 for value, us in _INFINITIES.items()}
    for value, rows in infinite.items():
        out = np.where(rows, ends[value], out)
    made = pa.array(out, pa.int64())
    return (pc.if_else(array.is_valid(), made, None) if array.null_count else made), value_kinds.INT64, None


def _within_era(us: int) -> tuple[str, Any]:
    """The year as Java prints it, and the moment in an equal year of 1970..2369."""
    era, rest = divmod(us, 12_622_780_800_000_000)  # 400 years
    within = np.datetime64(rest, "us").astype(object)
    year = within.year + 400 * era
    return f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}", within


def instants(array: pa.Array, fraction: int) -> pa.StringArray:
    """Instants as ISO text: infinities as words, years of more than four digits with a sign, as in Java."""

    def text(us: int) -> str:
        if us in _WORDS:
            return _WORDS[us]
        year, within = _within_era(us)
        parts = f".{within.microsecond:06d}"[: fraction + 1] if fraction else ""
        return f"{year}-{within:%m-%dT%H:%M:%S}{parts}Z"

    return _mapped(array.cast(pa.int64()), text)


def _iso_moment(us: int) -> str:
    if us in _INFINITE_TEXTS:
        return _INFINITE_TEXTS[us]
    year, within = _within_era(us)
    parts = f".{within.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{year}-{within:%m-%dT%H:%M:%S}{parts}Z"


def _iso_days(array: pa.Array) -> pa.StringArray:
    """Days as ISO text; Debezium has no text for infinite ones, so they are words, as in instants."""

    def text(day: int) -> str:
        if abs(day) >= 2**31 - 1:
            return "infinity" if day > 0 else "-infinity"
        year, within = _within_era(day * 86_400_000_000)
        return f"{year}-{within:%m-%d}Z"

    return _mapped(array.cast(pa.int32()), text)


def _micros(array: pa.Array) -> pa.Array:
    """ISO intervals as microseconds."""
    parts = pc.extract_regex(array, _INTERVAL)

    def part(name: str) -> np.ndarray:
        text = pc.struct_field(parts, name)
        filled = pc.fill_null(pc.if_else(pc.equal(text, ""), "0", text), "0")
        return np.asarray(filled.cast(pa.int64()).to_numpy(zero_copy_only=False))

    months = 12 * part("years") + part("months")
    days = months * _DAYS_OF_A_MONTH + part("days")
    seconds = ((days * 24 + part("hours")) * 60 + part("minutes")) * 60 + part("seconds")
    fraction = pc.struct_field(parts, "fraction")
    digits = pc.fill_null(pc.utf8_rpad(fraction, 6, "0"), "000000").cast(pa.int64())
    negative = pc.fill_null(pc.starts_with(pc.struct_field(parts, "seconds"), "-"), False)
    micros = np.where(negative.to_numpy(zero_copy_only=False), -1, 1) * digits.to_numpy(zero_copy_only=False)
    out = pa.array((seconds * 1e6 + micros).astype(np.int64))
    for word, value in (("infinity", 2**63 - 1), ("-infinity", -(2**63))):
        out = pc.if_else(pc.equal(array, word), value, out)
    return pc.if_else(array.is_valid(), out, None)


def _utc_time(text: str) -> str:
    """A time with a zone as UTC: `12:00:00.5+05:30` is `06:30:00.5Z`."""
    at = max(text.rfind("+"), text.rfind("-"))
    hours, minutes, seconds = text[:at].split(":")
    whole, point, fraction = seconds.partition(".")
    zone = [int(part) for part in text[at + 1 :].split(":")] + [0, 0]
    offset = zone[0] * 3600 + zone[1] * 60 + zone[2]
    total = int(hours) * 3600 + int(minutes) * 60 + int(whole)
    total = (total - (offset if text[at] == "+" else -offset)) % 86400
    return f"{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}{point}{fraction}Z"


def _bits(text: str) -> bytes:
    """The bits' number, little-endian, in as many bytes as it needs."""
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _points(array: pa.StringArray) -> pa.BinaryArray:
    """Points, `(1.5,-2)`, as the kernel reads them: a zero SRID, then WKB."""
    parts = pc.extract_regex(array, r"^\((?P<x>[^,]*),(?P<y>[^)]*)\)$")
    xy = [pc.struct_field(parts, axis).cast(pa.float64()).fill_null(0).to_numpy() for axis in "xy"]
    made = np.zeros(len(array), [("head", "S9"), ("x", "<f8"), ("y", "<f8")])
    made["head"] = b"\0\0\0\0\x01\x01"
    made["x"], made["y"] = xy
    fixed = pa.Array.from_buffers(pa.binary(25), len(array), [None, pa.py_buffer(made.tobytes())])
    whole = fixed.cast(pa.binary())
    return pc.if_else(array.is_valid(), whole, None) if array.null_count else whole


def _vectors(array: pa.StringArray) -> pa.ListArray:
    """Vectors, `[1,-2.5]`, as lists."""
    split = pc.split_pattern(pc.utf8_slice_codeunits(array, 1, -1), ",")
    made = pa.ListArray.from_arrays(split.offsets, split.values.cast(pa.float32()))
    return pc.if_else(array.is_valid(), made, None) if array.null_count else made


def _hstore(text: str) -> str:
    pairs = {_plain(key): None if not value else _plain(value) for key, value in _pairs(text)}
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _pairs(text: str) -> list[tuple[str, str | None]]:
    return [(m[1], m[2]) for m in _HSTORE.finditer(text)]


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)


def _numeric(array: pa.StringArray, type_: ColumnType, mode: str) -> Converted | None:
    if mode == "string":
        shown = array
        for word, special in _SPECIAL.items():
            shown = pc.if_else(pc.equal(shown, word), special, shown)
        return shown, value_kinds.STRING, None
    if mode == "double":
        made = [None if v is None else float(v) for v in array.to_pylist()]
        return pa.array(made, pa.float64()), value_kinds.DOUBLE, None
    numbers = [_number(v, type_) for v in array.to_pylist()]
    if type_.precision is not None:
        unscaled = [None if n is None else unscaled_bytes(n, type_.scale or 0) for n in numbers]
        return pa.array(unscaled, pa.binary()), value_kinds.BINARY, None
    shown = [None if n is None else _variable_scale(n) for n in numbers]
    return pa.array(shown, pa.string()), value_kinds.RAW, None


def _number(text: str | None, type_: ColumnType) -> Decimal | None:
    """The number in a text; None for null, and for NaN and the infinities if they are to be null."""
    if text is None:
        return None
    value = Decimal(text)
    if value.is_finite():
        return value
    if type_.unfit == "null":
        return None
    raise UnencodableError(
        "NaN and Infinity cannot be encoded with `decimal-handling-mode: precise`",
        "Debezium writes null for them, which nothing distinguishes from NULL",
        "set decimal-handling-mode: string or double; or name the column in the source's `unfitAsNull` or "
        "`textColumns`",
        code="TR-7604",
    )


def unscaled_bytes(value: Decimal, scale: int) -> bytes:
    """A decimal's unscaled number in as few bytes as it needs, big-endian."""
    unscaled = int(value.scaleb(scale, _EXACT))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _variable_scale(value: Decimal) -> str:
    """A numeric as the JSON of a VariableScaleDecimal, without trailing zeros."""
    plain = value.normalize(_EXACT)
    scale = max(0, -int(plain.as_tuple().exponent))
    encoded = base64.b64encode(unscaled_bytes(plain, scale)).decode()
    return f'{{"scale":{scale},"value":"{encoded}"}}'
