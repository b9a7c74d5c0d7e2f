"""Kernels for MySQL's packed dates and times.

An invalid date (zero, a zero month or day, the 30th of February) has no Arrow value: by the column's policy
(`ColumnType.zero_dates`) it is null or an error, or all of the column's values are text.

Source: mysql mysys/my_time.cc, my_datetime_packed_to_binary and similar functions.
"""

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import be, be32, ld8, st8
from tailrace.kernels.text import civil, write_padded
from tailrace.sources.mysql.wire.kernels.lookup import T_MONTH_DAYS

#: Most bytes of a date and time as text.
MAX_MOMENT_TEXT = 32
#: Forms that `write_moment` writes.
DATE_TEXT, DATETIME_TEXT, TIMESTAMP_TEXT = range(3)

#: Results without a value: the date does not exist, or the bytes are malformed.
NO_DATE = -(1 << 62)
BROKEN = NO_DATE + 1


@inline
def days(y, m, d, kt):
    """Days since 1970-01-01 of a proleptic Gregorian date with year 0..9999; NO_DATE if there is none."""
    if m < 1 or m > 12 or d < 1:
        return np.int64(NO_DATE)
    if d > ld8(kt + T_MONTH_DAYS + m) - (
        1 if m == 2 and not (y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)) else 0
    ):
        return np.int64(NO_DATE)
    if m <= 2:
        y += 399
        m += 9
    else:
        y += 400
        m -= 3
    era = y // 400
    yoe = y - era * 400
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + (153 * m + 2) // 5 + d - 1 - 865565


@inline
def time_of_day_us(hms):
    """Microseconds of packed hour, minute and second (12 + 6 + 6 bits); BROKEN if out of range."""
    h = hms >> 12
    m = (hms >> 6) & 63
    s = hms & 63
    if m > 59 or s > 59:
        return np.int64(BROKEN)
    return ((h * 60 + m) * 60 + s) * 1000000


@inline
def _packed_date(p):
    """DATE, 3 bytes: day (5 bits), month (4 bits), year; BROKEN if out of range."""
    x = ld8(p) | ld8(p + 1) << 8 | ld8(p + 2) << 16
    return np.int64(BROKEN) if (x >> 5) & 15 > 12 or x >> 9 > 9999 else x


@inline
def read_date(p, kt):
    """DATE, 3 bytes: days since 1970."""
    x = _packed_date(p)
    return x if x == BROKEN else days(x >> 9, (x >> 5) & 15, x & 31, kt)


@inline
def _fraction_us(p, nb, unit):
    us = (be32(p) >> (32 - 8 * nb)) * unit if nb else np.int64(0)
    return us if us < 1000000 else np.int64(BROKEN)


@inline
def _packed_datetime(p):
    """DATETIME2 without fraction: second, minute (6 bits each), hour, day (5), year * 13 + month; BROKEN."""
    v = ((be32(p) << 8) | ld8(p + 4)) - 0x8000000000
    if v < 0 or time_of_day_us(v & 0x1FFFF) == BROKEN or (v >> 12) & 31 > 23 or v >> 22 > 9999 * 13 + 12:
        return np.int64(BROKEN)
    return v


@inline
def read_datetime(p, nb, unit, kt):
    """DATETIME2 with nb bytes of fraction in `unit` microseconds: microseconds since 1970."""
    v = _packed_datetime(p)
    us = _fraction_us(p + 5, nb, unit)
    if v == BROKEN or us == BROKEN:
        return np.int64(BROKEN)
    ym = v >> 22
    date = days(ym // 13, ym % 13, (v >> 17) & 31, kt)
    return date if date == NO_DATE else date * 86400000000 + time_of_day_us(v & 0x1FFFF) + us


@inline
def read_timestamp(p, nb, unit):
    """TIMESTAMP2: microseconds since 1970 UTC; zero seconds are the zero date."""
    us = _fraction_us(p + 4, nb, unit)
    if us == BROKEN:
        return us
    v = be32(p) * 1000000 + us
    return v if v else np.int64(NO_DATE)


@inline
def read_time(p, nb, unit):
    """TIME2: microseconds, -838:59:59 to 838:59:59. Never NO_DATE."""
    v = be(p, 3 + nb) - (np.int64(0x800000) << (8 * nb))
    a = -v if v < 0 else v
    tod = time_of_day_us(a >> (8 * nb))
    us = (a & ((np.int64(1) << (8 * nb)) - 1)) * unit
    if tod == BROKEN or us > 999999 or (a >> (8 * nb)) >> 12 > 838:
        return np.int64(BROKEN)
    return -(tod + us) if v < 0 else tod + us


@inline
def write_day(o, year, month, day):
    """`2026-01-31`, zeros as they are: 10 bytes."""
    o = write_padded(o, year, 4)
    st8(o, 45)
    o = write_padded(o + 1, month, 2)
    st8(o, 45)
    return write_padded(o + 1, day, 2)


@inline
def write_clock(o, us, digits):
    """Microseconds of a day, with a blank in front, as ` 23:59:59`, then so many digits of the fraction."""
    seconds = us // 1000000
    st8(o, 32)
    o = write_padded(o + 1, seconds // 3600, 2)
    st8(o, 58)
    o = write_padded(o + 1, seconds // 60 % 60, 2)
    st8(o, 58)
    o = write_padded(o + 1, seconds % 60, 2)
    if digits == 0:
        return o
    st8(o, 46)
    write_padded(o + 1, us - seconds * 1000000, 6)
    return o + 1 + digits


@inline
def write_moment(o, p, what, nb, digits):
    """A DATE, DATETIME2 or TIMESTAMP2 as MySQL prints it, UTC.

    Args:
        o: MAX_MOMENT_TEXT bytes of room.
        p: the value.
        what: DATE_TEXT, DATETIME_TEXT or TIMESTAMP_TEXT.
        nb: bytes of the fraction.
        digits: digits of the fraction, 0 to 6.

    Returns:
        The address after the text, BROKEN if the bytes are malformed.
    """
    if what == DATE_TEXT:
        x = _packed_date(p)
        return x if x == BROKEN else write_day(o, x >> 9, (x >> 5) & 15, x & 31)
    unit = np.int64(1) if nb == 3 else (np.int64(100) if nb == 2 else np.int64(10000))
    if what == DATETIME_TEXT:
        v = _packed_datetime(p)
        us = _fraction_us(p + 5, nb, unit)
        if v == BROKEN or us == BROKEN:
            return np.int64(BROKEN)
        ym = v >> 22
        o = write_day(o, ym // 13, ym % 13, (v >> 17) & 31)
        return write_clock(o, time_of_day_us(v & 0x1FFFF) + us, digits)
    us = read_timestamp(p, nb, unit)
    if us == BROKEN:
        return us
    if us == NO_DATE:
        return write_clock(write_day(o, np.int64(0), np.int64(0), np.int64(0)), np.int64(0), digits)
    day = us // 86400000000
    year, month, date = civil(day)
    return write_clock(write_day(o, year, month, date), us - day * 86400000000, digits)
