"""How the kernels of the formats write a value: the kind of each column.

Without kernels, so that modules which only describe columns can be imported without loading them. It lies
beside the kernels because their compiled code contains these numbers: a change here compiles them anew.
"""

from __future__ import annotations

(
    INT8,  # the first four: as in `kernels.arrow`
    INT16,
    INT32,
    INT64,
    LOW64,  # the low half of a decimal128
    FLOAT,
    DOUBLE,
    BOOLEAN,
    DECIMAL,
    MILLIS,  # int64 microseconds as milliseconds
    NANOS,  # int64 microseconds as nanoseconds
    INSTANT,
    STRING,  # from here on: with offsets
    BINARY,
    BITS,  # binary, the last byte first
    DECIMAL_TEXT,
    GEOMETRY,  # binary: SRID, then WKB
    POINT,  # likewise, of one point
    FLOATS,  # list of float32
    BASE64_URL,  # binary
    RAW,  # text that is JSON already
) = range(21)
