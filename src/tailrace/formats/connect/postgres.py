"""Types for which Debezium's PostgreSQL connector writes other schemas and values than its MySQL connector.

A type is identified by its native name, so that schemas and values of every sink agree. The representations
are those of Debezium's defaults: intervals are microseconds (a month is 365.25 / 12 days), hstore is JSON,
numerics without a scale are VariableScaleDecimal. `time.precision.mode: adaptive` is treated as
`adaptive_time_microseconds`: a time(3) is a MicroTime, too. uuid is a plain string.

A column that the log omits because it is unchanged and stored out of line (TOAST) is Debezium's placeholder
if its type allows one: text for text types and arrays of them, base64 of it for bytes. Others are null. The
header `__tailrace.absent.after` names all of them.

Source: debezium/debezium v3.6.1 `PostgresValueConverter`, `MicroDuration`, `VariableScaleDecimal`,
`UnchangedToastedReplicationMessageColumn`; manual, "Data type mappings".
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.formats.connect.builders import Schema, primitive, semantic, struct
from tailrace.formats.kernels import documents
from tailrace.model.types import ColumnType, Kind

PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS = {
    **dict.fromkeys((Kind.STRING, Kind.JSON), json.dumps(PLACEHOLDER)),
    Kind.BYTES: json.dumps(base64.b64encode(PLACEHOLDER.encode()).decode()),
}
#: Text types for which Debezium's schema has a name.
_NAMES = {"xml": "Xml", "ltree": "Ltree", "tsvector": "Tsvector", "hstore": "Json"}
#: Types that are text in Tailrace and another type in messages.
_CONVERTED = ("interval", "bit", "varbit", "numeric")
#: Debezium's values for the infinities of timestamps.
_INFINITIES = {2**63 - 1: 9223372036825200000, -(2**63): -9223372036832400000}
_FIRST_US, _LAST_US = -62135596800000000, 253402300799999999  # of the years 1..9999
_INTERVAL = (
    r"^P(?:(?P<years>-?\d+)Y)?(?:(?P<months>-?\d+)M)?(?:(?P<days>-?\d+)D)?"
    r"(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?\d+)(?:\.(?P<fraction>\d+))?S)?)?$"
)
_DAYS_OF_A_MONTH = 365.25 / 12
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")')

Form = tuple[pa.Array, int, str | None]


def schema_of(type_: ColumnType, decimal: str, *, optional: bool) -> Schema | None:
    """The Connect schema of a type; None if it is the same as for other sources.

    Args:
        type_: the type.
        decimal: `decimal.handling.mode`.
        optional: whether it may be null.
    """
    if type_.kind is not Kind.STRING:
        return None
    match type_.native:
        case "interval":
            return semantic("int64", "io.debezium.time.MicroDuration", optional=optional)
        case "timetz":
            return semantic("string", "io.debezium.time.ZonedTime", optional=optional)
        case "bit" | "varbit":
            bits = semantic("bytes", "io.debezium.data.Bits", optional=optional)
            return {**bits, "parameters": {"length": str(type_.length or 2**31 - 1)}}
        case "numeric" if decimal == "precise":
            fields = [primitive("int32", "scale"), primitive("bytes", "value")]
            return struct(fields, "io.debezium.data.VariableScaleDecimal", optional=optional, version=1)
        case "numeric":
            return {"type": decimal, "optional": optional}
        case native if native in _NAMES:
            return semantic("string", f"io.debezium.data.{_NAMES[native]}", optional=optional)
    return None


def form_of(array: pa.Array, type_: ColumnType, decimal: str) -> Form | None:
    """The form of a column (`formats.connect.value_modes`); None if it is the same as for other sources.

    Args:
        array: the column.
        type_: its type.
        decimal: `decimal.handling.mode`.

    Raises:
        SinkError: a NaN or Infinity has no precise form.
    """
    match type_.kind:
        case Kind.DATETIME if type_.native == "timestamp" and _has_infinity(array):
            return _finite(array, in_ms=(type_.fraction or 0) <= 3), documents.INT64, None
        case Kind.INSTANT if type_.native == "timestamptz" and _is_odd(array):
            return _instants(array, type_.fraction or 0), documents.STRING, None
        case Kind.LIST:
            assert type_.element is not None
            return _array(array, type_.element, decimal), documents.RAW, None
        case Kind.STRING:
            return _text_form(array, type_.native, decimal)
    return None


def _text_form(array: pa.Array, native: str, decimal: str) -> Form | None:
    match native:
        case "interval":
            return _micros(array), documents.INT64, None
        case "timetz":
            return _mapped(array, _utc_time), documents.STRING, None
        case "bit" | "varbit":
            made = [None if v is None else _bits(v) for v in array.to_pylist()]
            return pa.array(made, pa.binary()), documents.BINARY, None
        case "hstore":
            return _mapped(array, _hstore), documents.STRING, None
        case "numeric" if decimal == "precise":
            return _mapped(array, _variable_scale), documents.RAW, None
        case "numeric" if decimal == "double":
            return array.cast(pa.float64()), documents.DOUBLE, None
    return None


def placeholder(type_: ColumnType) -> str | None:
    """The JSON of Debezium's placeholder for a value that the log omits; None if the type allows none."""
    if type_.element is not None:
        element = placeholder(type_.element)
        return None if element is None else f"[{element}]"
    if type_.kind is Kind.STRING and type_.native in _CONVERTED:
        return None
    return _PLACEHOLDERS.get(type_.kind)


def _mapped(array: pa.Array, change: Any) -> pa.StringArray:
    return pa.array([None if v is None else change(v) for v in array.to_pylist()], pa.string())


def _has_infinity(array: pa.Array) -> bool:
    found = pc.min_max(array.cast(pa.int64()))
    return found["max"].as_py() in _INFINITIES or found["min"].as_py() in _INFINITIES


def _finite(array: pa.Array, *, in_ms: bool) -> pa.Array:
    us = array.cast(pa.int64())
    out = pc.divide(us, 1000) if in_ms else us
    for infinity, debezium in _INFINITIES.items():
        out = pc.if_else(pc.equal(us, infinity), debezium, out)
    return out


def _is_odd(array: pa.Array) -> bool:
    """Whether there are instants outside the years 1..9999."""
    found = pc.min_max(array.cast(pa.int64()))
    if found["min"].as_py() is None:
        return False
    return bool(found["min"].as_py() < _FIRST_US or found["max"].as_py() > _LAST_US)


def _instants(array: pa.Array, fraction: int) -> pa.StringArray:
    """Instants as ISO text: infinities as words, years of more than four digits with a sign, as in Java."""
    words = {2**63 - 1: "infinity", -(2**63): "-infinity"}

    def text(us: int) -> str:
        if us in words:
            return words[us]
        era, rest = divmod(us, 12_622_780_800_000_000)  # 400 years
        within = np.datetime64(rest, "us").astype(object)
        year = within.year + 400 * era
        shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
        parts = f".{within.microsecond:06d}"[: fraction + 1] if fraction else ""
        return f"{shown}-{within:%m-%dT%H:%M:%S}{parts}Z"

    return _mapped(array.cast(pa.int64()), text)


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
    return int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little")


def _hstore(text: str) -> str:
    pairs = {_plain(key): None if not value else _plain(value) for key, value in _pairs(text)}
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _pairs(text: str) -> list[tuple[str, str | None]]:
    return [(m[1], m[2]) for m in _HSTORE.finditer(text)]


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)


def _variable_scale(text: str) -> str:
    """A numeric as the JSON of a VariableScaleDecimal."""
    value = Decimal(text)
    if not value.is_finite():
        raise SinkError(
            "NaN and Infinity cannot be encoded with `decimal-handling-mode: precise`",
            "Debezium cannot encode them, either",
            "set decimal-handling-mode: string or double",
            code="TR-7604",
        )
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = unscaled.bit_length() // 8 + 1
    encoded = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    return f'{{"scale":{-int(exponent)},"value":"{encoded}"}}'


def _array(array: pa.ListArray, element: ColumnType, decimal: str) -> pa.StringArray:
    """Lists as JSON arrays."""
    values = array.values
    texts = pa.array([_element(v, element, decimal) for v in _python(values)], pa.string())
    offsets = array.offsets
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    made = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(array.is_valid(), made, None)


def _python(values: pa.Array) -> list[Any]:
    type_ = values.type
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(type_):
        return list(values.cast(pa.int32()).to_pylist())
    return list(values.to_pylist())


def _element(value: Any, type_: ColumnType, decimal: str) -> str:
    """One element of a list as JSON."""
    if value is None:
        return "null"
    match type_.kind:
        case Kind.BYTES:
            return json.dumps(base64.b64encode(value).decode())
        case Kind.DECIMAL if decimal == "precise":
            unscaled = int(value.scaleb(type_.scale or 0))
            size = unscaled.bit_length() // 8 + 1
            return json.dumps(base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode())
        case Kind.DECIMAL:
            return json.dumps(f"{value:f}") if decimal == "string" else json.dumps(float(value))
        case Kind.DATETIME:
            infinity = _INFINITIES.get(value)
            return str(infinity or (value // 1000 if (type_.fraction or 0) <= 3 else value))
        case Kind.INSTANT:
            (text,) = _instants(pa.array([value]), type_.fraction or 0).to_pylist()
            return json.dumps(text)
        case Kind.FLOAT | Kind.DOUBLE if not np.isfinite(value):
            return "null"
        case Kind.STRING:
            form = _text_form(pa.array([value]), type_.native, decimal)
            if form is not None:
                (shown,) = form[0].to_pylist()
                if form[1] == documents.BINARY:
                    return json.dumps(base64.b64encode(shown).decode())
                return str(shown) if form[1] == documents.RAW else json.dumps(shown, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
