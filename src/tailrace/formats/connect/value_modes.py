"""Conversion of columns according to Debezium's handling modes (`formats.connect.modes`).

A mode converts a column's array before it is written, whole columns at a time; names and types in schemas are
those of `formats.connect.schemas`. A TIME outside one day cannot be written with `connect` and `isostring`,
nor a DATETIME outside 1677..2262 with `nanoseconds`: an error, as in Debezium.

Source: debezium/debezium v3.6.1 `JdbcValueConverters`, `TemporalPrecisionMode`, `BinaryHandlingMode`, `Iso*`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.formats.connect import postgres
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.plaintext import plain_decimal
from tailrace.formats.kernels import documents
from tailrace.model.types import ColumnType, Kind

_DAY_US = 86_400_000_000
#: Greatest distance from 1970 that 64-bit nanoseconds can represent, microseconds.
_NANOS_US = (2**63 - 1) // 1000
_HEX = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), "<u2")


#: The converted array, its kind for the kernel, and the JSON for a zero date of a NOT NULL column.
Form = tuple[pa.Array, int, str | None]


def form_of(array: pa.Array, type_: ColumnType, modes: Modes) -> Form | None:
    """Convert a column; None if no mode applies to it.

    Args:
        array: the column.
        type_: its type.
        modes: the handling modes.

    Raises:
        SinkError: the mode cannot represent a value.
    """
    found = postgres.form_of(array, type_, modes.decimal)
    if found is not None:
        return found
    match type_.kind:
        case Kind.DECIMAL if modes.decimal == "double":
            return _doubles(array), documents.DOUBLE, None
        case Kind.DECIMAL if modes.decimal == "string":
            return plain_decimal(array, type_.scale or 0), documents.STRING, None
        case Kind.INTEGER if modes.bigint_unsigned == "precise" and pa.types.is_decimal(array.type):
            return array, documents.DECIMAL, None
        case Kind.BYTES if modes.binary == "hex":
            return _hex(array), documents.STRING, None
        case Kind.BYTES if modes.binary == "base64-url-safe":
            return array, documents.BASE64_URL, None
        case Kind.DATE if modes.time == "isostring":
            return _zulu(array.cast(pa.string())), documents.STRING, '"1970-01-01Z"'
        case Kind.DATETIME:
            return _datetime(array, modes.time)
        case Kind.TIME:
            return _time(array, modes.time)
    return None


def _datetime(array: pa.Array, mode: str) -> Form | None:
    match mode:
        case "microseconds":
            return array, documents.INT64, "0"
        case "connect":
            return array, documents.MILLIS, "0"
        case "nanoseconds":
            us = array.cast(pa.int64())
            _require(pc.less_equal(pc.abs(us), _NANOS_US), "DATETIME", mode, "years from 1678 to 2261")
            return us, documents.NANOS, "0"
        case "isostring":
            text = pc.strftime(array, format="%Y-%m-%dT%H:%M:%S")
            return _zulu(_without_zeros(text)), documents.STRING, '"1970-01-01T00:00:00Z"'
    return None


def _time(array: pa.Array, mode: str) -> Form | None:
    if mode == "nanoseconds":
        return array.cast(pa.int64()), documents.NANOS, None
    if mode not in ("connect", "isostring"):
        return None
    us = array.cast(pa.int64())
    within = pc.and_(pc.greater_equal(us, 0), pc.less(us, _DAY_US))
    _require(within, "TIME", mode, "times of one day")
    if mode == "connect":
        return us, documents.MILLIS, None
    text = us.cast(pa.time64("us")).cast(pa.string())
    return _zulu(_without_zeros(text)), documents.STRING, None


def _require(good: pa.Array, type_: str, mode: str, holds: str) -> None:
    if not pc.all(pc.fill_null(good, True)).as_py():
        raise SinkError(
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
