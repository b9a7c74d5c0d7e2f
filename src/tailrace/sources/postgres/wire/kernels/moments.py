"""Dates and times: from their binary form and from ISO text, and the texts of TIMETZ and INTERVAL.

    date         4 bytes, days since 2000-01-01; the least and the greatest: -infinity, infinity
    timestamp    8 bytes, microseconds since 2000-01-01, likewise
    time         8 bytes, microseconds;  timetz: 4 more, seconds west of UTC
    interval     8 bytes microseconds, 4 days, 4 months

Arrow counts from 1970; the infinities stay. Years B.C. are those of the proleptic Gregorian calendar, 1 B.C.
is year 0. Text is that of DateStyle ISO: `0044-03-15 12:00:00.5+00 BC`, with years of four digits or more.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL src/backend/utils/adt/datetime.c (EncodeDateTime, EncodeTimezone, EncodeInterval).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import be32, be64, ld8, ld64, st8, st64
from tailrace.kernels.text import write_integer, write_padded, write_two
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, NOT_HELD, OK

#: Types that `parse_moment` reads.
DATE, TIMESTAMP = 0, 1
#: Most bytes that `write_timetz` and `write_interval` write, the width of their last store included.
MAX_TEXT = 128

_EPOCH_DAYS = 10957
_EPOCH_US = 946_684_800_000_000
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_DAY_US = 86_400_000_000
_INFINITY = 0x7974696E69666E69  # "infinity"


@inline
def signed32(value):
    """The low 32 bits as a signed integer."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@inline
def read_date(p):
    """Days since 1970 of a date in binary form, and OK or NOT_HELD."""
    days = signed32(be32(p))
    if days == -0x80000000 or days == 0x7FFFFFFF:
        return days, np.int64(OK)
    days += _EPOCH_DAYS
    return days, np.int64(OK if days < 0x7FFFFFFF else NOT_HELD)


@inline
def read_timestamp(p):
    """Microseconds since 1970 of a timestamp in binary form, and OK or NOT_HELD."""
    us = be64(p)
    if us == _LEAST or us == _GREATEST:
        return us, np.int64(OK)
    if us >= _GREATEST - _EPOCH_US:
        return us, np.int64(NOT_HELD)
    return us + _EPOCH_US, np.int64(OK)


@inline
def _days(year, month, day):
    """Days since 1970 of a date of the proleptic Gregorian calendar."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - 400 * era
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@inline
def _two(p, end):
    """Two digits as a number, -1 if they are not digits."""
    if end - p < 2:
        return np.int64(-1)
    a = ld8(p) - 48
    b = ld8(p + 1) - 48
    if a < 0 or a > 9 or b < 0 or b > 9:
        return np.int64(-1)
    return 10 * a + b


@inline
def parse_time(p, end):
    """(microseconds, address after) of `HH:MM:SS[.ffffff]`; address 0 if it is malformed."""
    hours = _two(p, end)
    minutes = _two(p + 3, end)
    seconds = _two(p + 6, end)
    if hours < 0 or minutes < 0 or seconds < 0 or ld8(p + 2) != 58 or ld8(p + 5) != 58:
        return np.int64(0), np.int64(0)
    p += 8
    us = np.int64(0)
    if p < end and ld8(p) == 46:
        p += 1
        unit = np.int64(100_000)
        while p < end:
            c = ld8(p) - 48
            if c < 0 or c > 9:
                break
            us += c * unit
            unit //= 10
            p += 1
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us, p


@inline
def parse_moment(p, n, what):
    """(value, OK, MALFORMED or NOT_HELD) of a date or timestamp as text; a timestamp's zone is applied."""
    end = p + n
    if n == 8 and ld64(p) == _INFINITY:
        return np.int64(_GREATEST if what == TIMESTAMP else 0x7FFFFFFF), np.int64(OK)
    if n == 9 and ld8(p) == 45 and ld64(p + 1) == _INFINITY:
        return np.int64(_LEAST if what == TIMESTAMP else -0x80000000), np.int64(OK)
    bad = np.int64(MALFORMED)
    year = np.int64(0)
    first = p
    while p < end:
        c = ld8(p) - 48
        if c < 0 or c > 9:
            break
        year = 10 * year + c
        p += 1
    if p - first < 4 or p - first > 7 or end - p < 6 or ld8(p) != 45 or ld8(p + 3) != 45:
        return year, bad
    month = _two(p + 1, end)
    day = _two(p + 4, end)
    if month < 1 or month > 12 or day < 1 or day > 31:
        return year, bad
    p += 6
    us = np.int64(0)
    zone = np.int64(0)
    if what == TIMESTAMP:
        if p >= end or ld8(p) != 32:
            return year, bad
        us, p = parse_time(p + 1, end)
        if p == 0:
            return year, bad
        if p < end and (ld8(p) == 43 or ld8(p) == 45):
            west = ld8(p) == 45
            unit = np.int64(3600)
            while unit > 0 and p < end and ld8(p) != 32:
                part = _two(p + 1, end)
                if part < 0:
                    return year, bad
                zone += part * unit
                unit //= 60
                p += 3
            if west:
                zone = -zone
    if p < end:
        if end - p != 3 or ld8(p) != 32 or ld8(p + 1) != 66 or ld8(p + 2) != 67:  # " BC"
            return year, bad
        year = 1 - year
    days = _days(year, month, day)
    if what == DATE:
        return days, np.int64(OK if days < 0x7FFFFFFF else NOT_HELD)
    if days > 106_751_990:  # the last days within 64 bits are counted from their beginning
        rest = us - 1_000_000 * zone + (days - 106_751_990) * _DAY_US
        if days > 106_760_000 or rest >= _GREATEST - 106_751_990 * _DAY_US:
            return year, np.int64(NOT_HELD)
        return 106_751_990 * _DAY_US + rest, np.int64(OK)
    return days * _DAY_US + us - 1_000_000 * zone, np.int64(OK)


@inline
def _write_fraction(o, us):
    """A fraction of a second with its point, without trailing zeros; nothing for 0."""
    if us == 0:
        return o
    digits = np.int64(6)
    while us % 10 == 0:
        us //= 10
        digits -= 1
    st8(o, 46)
    return write_padded(o + 1, us, digits)


@inline
def write_timetz(p, o, tables):
    """TIMETZ in binary form as text at o; 0 if it is malformed."""
    us = be64(p)
    west = signed32(be32(p + 8))
    if us < 0 or us > _DAY_US or west < -86_400 or west > 86_400:
        return np.int64(0)
    seconds = us // 1_000_000
    o = write_two(o, seconds // 3600, tables)
    st8(o, 58)
    o = write_two(o + 1, seconds // 60 % 60, tables)
    st8(o, 58)
    o = write_two(o + 1, seconds % 60, tables)
    o = _write_fraction(o, us - 1_000_000 * seconds)
    st8(o, 43 if west <= 0 else 45)
    zone = abs(west)
    o = write_two(o + 1, zone // 3600, tables)
    if zone % 3600:
        st8(o, 58)
        o = write_two(o + 1, zone // 60 % 60, tables)
        if zone % 60:
            st8(o, 58)
            o = write_two(o + 1, zone % 60, tables)
    return o


@inline
def _write_part(o, value, letter, tables):
    if value == 0:
        return o
    o = write_integer(o, value, tables)
    st8(o, letter)
    return o + 1


@inline
def _divided(value, by):
    """Quotient towards zero, and the remainder, which has the sign of `value`."""
    quotient = value // by
    rest = value - quotient * by
    if rest != 0 and value < 0:
        quotient += 1
        rest -= by
    return quotient, rest


@inline
def write_interval(p, o, tables):
    """INTERVAL in binary form as ISO 8601 text at o."""
    us = be64(p)
    days = signed32(be32(p + 8))
    months = signed32(be32(p + 12))
    if us == _GREATEST and days == 0x7FFFFFFF and months == 0x7FFFFFFF:
        st64(o, _INFINITY)
        return o + 8
    if us == _LEAST and days == -0x80000000 and months == -0x80000000:
        st8(o, 45)
        st64(o + 1, _INFINITY)
        return o + 9
    st8(o, 80)
    o += 1
    if us == 0 and days == 0 and months == 0:
        st64(o, 0x533054)  # T0S
        return o + 3
    years, months = _divided(months, 12)
    o = _write_part(o, years, 89, tables)
    o = _write_part(o, months, 77, tables)
    o = _write_part(o, days, 68, tables)
    if us != 0:
        st8(o, 84)
        o += 1
        hours, rest = _divided(us, 3_600_000_000)
        minutes, rest = _divided(rest, 60_000_000)
        o = _write_part(o, hours, 72, tables)
        o = _write_part(o, minutes, 77, tables)
        if rest != 0:
            if rest < 0:
                st8(o, 45)
                o += 1
                rest = -rest
            o = write_integer(o, rest // 1_000_000, tables)
            o = _write_fraction(o, rest % 1_000_000)
            st8(o, 83)
            o += 1
    return o
