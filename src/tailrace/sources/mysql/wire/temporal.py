"""Kernels for MySQL's packed dates and times.

A date that is none (zero, a zero month or day, the 30th of February) has no Arrow value: it reads as null.

Source: mysql mysys/my_time.cc, my_datetime_packed_to_binary and its like.
"""

import numpy as np

from tailrace.kernels.memory import be, be32, inline, ld8
from tailrace.sources.mysql.wire.lookup import T_MONTH_DAYS

#: Results that are no value: the bytes hold no such date, or cannot be a date or time at all.
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
def read_date(p, kt):
    """DATE, 3 bytes: days since 1970."""
    x = ld8(p) | ld8(p + 1) << 8 | ld8(p + 2) << 16
    if (x >> 5) & 15 > 12 or x >> 9 > 9999:
        return np.int64(BROKEN)
    return days(x >> 9, (x >> 5) & 15, x & 31, kt)


@inline
def _fraction_us(p, nb, unit):
    us = (be32(p) >> (32 - 8 * nb)) * unit if nb else np.int64(0)
    return us if us < 1000000 else np.int64(BROKEN)


@inline
def read_datetime(p, nb, unit, kt):
    """DATETIME2 with nb bytes of fraction in `unit` microseconds: microseconds since 1970."""
    v = ((be32(p) << 8) | ld8(p + 4)) - 0x8000000000
    us = _fraction_us(p + 5, nb, unit)
    tod = time_of_day_us(v & 0x1FFFF)
    ym = v >> 22
    y = ym // 13
    m = ym - 13 * y
    if v < 0 or us == BROKEN or tod == BROKEN or (v >> 12) & 31 > 23 or y > 9999:
        return np.int64(BROKEN)
    date = days(y, m, (v >> 17) & 31, kt)
    return date if date == NO_DATE else date * 86400000000 + tod + us


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
