"""The number of rows in a row event: the event does not have it, so its images are walked over.

A plan has one int64 per column: the width of a value, or minus the number of its length's bytes; and one
more: the number of JSON columns, for which the rows of partial updates have bits (`partialrows`).

Kernels: memory rules in `memory.py`.
Source: MySQL internals manual, "TABLE_MAP_EVENT", "ROWS_EVENT"; metadata per type in `rows_event.h`.
"""

from __future__ import annotations

import numpy as np

from tailrace.errors import DecodeError
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld16, ld32, ld64

_FIXED = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8, 13: 1, 10: 3, 14: 3, 11: 3, 12: 8, 7: 4, 6: 0}
_ONE_BYTE_META = frozenset({4, 5, 140, 245, 255, 249, 250, 251, 252, 17, 18, 19, 242})
_TWO_BYTE_META = frozenset({15, 141, 253, 254, 246, 16, 247, 248})
_JSON = 245
_LEFTOVER = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def plan_of(body: bytes) -> np.ndarray:
    """The plan of a table.

    Args:
        body: a TABLE_MAP event without header and checksum.

    Raises:
        DecodeError: a type is unknown, or the event is cut off.
    """
    try:
        count, at = _columns_at(body)
        types = columns_of(body)
        _, at = _packed(body, at + count)
        plan = np.zeros(count + 1, np.int64)
        for column, kind in enumerate(types):
            width = 2 if kind in _TWO_BYTE_META else 1 if kind in _ONE_BYTE_META else 0
            low, high = body[at] if width else 0, body[at + 1] if width == 2 else 0
            plan[column] = _step(kind, low, high)
            at += width
        plan[count] = types.count(_JSON)
    except (IndexError, KeyError) as error:
        raise DecodeError("a TABLE_MAP event of the log cannot be read", code="TR-5201") from error
    return plan


def columns_of(body: bytes) -> bytes:
    """The type bytes of a table's columns.

    Args:
        body: a TABLE_MAP event without header and checksum.

    Raises:
        DecodeError: the event is cut off.
    """
    try:
        count, at = _columns_at(body)
    except (IndexError, KeyError) as error:
        raise DecodeError("a TABLE_MAP event of the log cannot be read", code="TR-5201") from error
    if count > len(body) - at:
        raise DecodeError("a TABLE_MAP event of the log cannot be read", code="TR-5201")
    return body[at : at + count]


def _columns_at(body: bytes) -> tuple[int, int]:
    """The number of columns, and the offset of their type bytes."""
    at = 8
    at += body[at] + 2
    at += body[at] + 2
    return _packed(body, at)


def _packed(body: bytes, at: int) -> tuple[int, int]:
    if body[at] < 251:
        return body[at], at + 1
    size = {252: 2, 253: 3, 254: 8}[body[at]]
    return int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size


def _step(kind: int, low: int, high: int) -> int:
    if kind in (4, 5):
        return low
    if kind in (17, 18, 19):
        return {17: 4, 18: 5, 19: 3}[kind] + (low + 1) // 2
    if kind in (140, 245, 255, 249, 250, 251, 252, 242):
        return -low
    if kind in (15, 141, 253):
        return -1 if low | high << 8 < 256 else -2
    if kind == 246:
        whole = low - high
        return (whole // 9 + high // 9) * 4 + _LEFTOVER[whole % 9] + _LEFTOVER[high % 9]
    if kind == 16:
        return high + (low > 0)
    if kind == 254 and low not in (247, 248):  # CHAR: bits 8 and 9 of its length are in the type
        return -1 if ((((low << 4) & 0x300) ^ 0x300) + high) < 256 else -2
    if kind in (247, 248, 254):
        return high
    return _FIXED[kind]


@inline
def skip_image(p, end, present, columns, plan):
    """Address after the row image at `p`, -1 if it does not end before `end`."""
    shown = np.int64(0)
    for c in range(columns):
        shown += (ld8(present + (c >> 3)) >> (c & 7)) & 1
    nulls = p
    p += (shown + 7) >> 3
    if p > end:
        return np.int64(-1)
    bit = np.int64(0)
    for c in range(columns):
        if (ld8(present + (c >> 3)) >> (c & 7)) & 1 == 0:
            continue
        null = (ld8(nulls + (bit >> 3)) >> (bit & 7)) & 1
        bit += 1
        if null == 1:
            continue
        step = ld64(plan + 8 * c)
        if step >= 0:
            p += step
        else:
            if p - step > end:
                return np.int64(-1)
            size = ld32(p)
            if step == -1:
                size &= 0xFF
            elif step == -2:
                size &= 0xFFFF
            elif step == -3:
                size &= 0xFFFFFF
            p += size - step
        if p > end:
            return np.int64(-1)
    return p


@inline
def count_rows(event, end, columns, plan):
    """Rows in the row event (version 1 or 2, or partial) at `event`; -1 if it is malformed.

    Args:
        event: address of its header.
        end: address of its checksum, or of its end without one.
        columns: columns of the table.
        plan: address of `plan_of` the table.
    """
    kind = ld8(event + 4)
    p = event + 27
    if end - p < 4:
        return np.int64(-1)
    if kind >= 30:
        p += ld16(p)
        if end - p < 1:
            return np.int64(-1)
    shown = ld8(p)
    p += 1
    if shown >= 251:
        if shown != 252 or end - p < 2:
            return np.int64(-1)
        shown = ld16(p)
        p += 2
    if shown != columns:
        return np.int64(-1)
    both = kind == 31 or kind == 24 or kind == 39
    bitmap = (columns + 7) >> 3
    before = p
    p += bitmap * 2 if both else bitmap
    rows = np.int64(0)
    while p < end:
        start = p
        p = skip_image(p, end, before, columns, plan)
        if p >= 0 and kind == 39:
            if end - p < 2 or ld8(p) > 250:
                return np.int64(-1)
            bits = (ld64(plan + 8 * columns) + 7) >> 3
            p += 1 + (bits if ld8(p) & 1 else 0)
        if p >= 0 and both:
            p = skip_image(p, end, before + bitmap, columns, plan)
        if p <= start:  # cut off, or a row without bytes
            return np.int64(-1)
        rows += 1
    return rows


@entry("int64(int64,int64,int64,int64)")
def count_event(event, end, columns, plan):
    """`count_rows` for Python."""
    return count_rows(event, end, columns, plan)
