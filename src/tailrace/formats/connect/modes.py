"""Debezium's handling modes, which select the representation of some types in messages.

    decimal.handling.mode           precise: unscaled bytes   double   string: plain digits
    bigint.unsigned.handling.mode   long: wraps above 2**63   precise: as DECIMAL(20, 0)
    binary.handling.mode            bytes, base64: same JSON, different schemas   base64-url-safe   hex
    time.precision.mode             adaptive_time_microseconds: DATETIME in ms or us by its digits, TIME in us
                                    microseconds, nanoseconds: both   connect: both in ms   isostring: text
    enable.time.adjuster            the years 0..99 of dates become 1970..2069 (MySQL)

`formats.connect.value_modes` converts the values; names and types in schemas are in
`formats.connect.schemas`. This module loads no kernels: it is imported wherever a query is planned.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Modes:
    """One value of each mode; the defaults are Debezium's but for `adjust_years`, which is true there."""

    decimal: str = "precise"
    time: str = "adaptive_time_microseconds"
    bigint_unsigned: str = "long"
    binary: str = "bytes"
    adjust_years: bool = False


DEFAULT_MODES = Modes()
