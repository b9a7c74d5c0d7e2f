"""Debezium's handling modes: which of several forms the values of a type take in `debezium` messages.

    decimal.handling.mode           precise: unscaled bytes   double   string: plain digits
    bigint.unsigned.handling.mode   long: wraps above 2**63   precise: as DECIMAL(20, 0)
    binary.handling.mode            bytes, base64: alike in JSON but for their schema   base64-url-safe   hex
    time.precision.mode             adaptive_time_microseconds: DATETIME in ms or us by its digits, TIME in us
                                    microseconds, nanoseconds: both   connect: both in ms   isostring: texts

What the values then are is in `formats.connect.value_modes`; names and types in schemas are in
`formats.connect.schemas`. This module loads no kernels: it is imported wherever a query is planned.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Modes:
    """One value of each mode; the defaults are Debezium's."""

    decimal: str = "precise"
    time: str = "adaptive_time_microseconds"
    bigint_unsigned: str = "long"
    binary: str = "bytes"


DEFAULT_MODES = Modes()
