"""Kernels that write numbers as text: (address, value) to the address after what was written.

The shortest digits of a double come from Schubfach.

Source: R. Giulietti, "The Schubfach way to render doubles" (2020).
"""

import numpy as np

from tailrace.kernels.memory import inline, ld8, ld16, ld64, mulhi, st8, st16
from tailrace.sources.mysql.wire.lookup import T_DIGITS, T_POWER_HIGH, T_POWER_LOW, T_TEN


@inline
def write_u64(o, v, kt):
    """A uint64, at most 20 bytes."""
    n = 1
    t = v
    while t >= np.uint64(10):
        t //= np.uint64(10)
        n += 1
    k = o + n
    while v >= np.uint64(100):
        q = v // np.uint64(100)
        k -= 2
        st16(k, ld16(kt + T_DIGITS + 2 * np.int64(v - q * np.uint64(100))))
        v = q
    if v >= np.uint64(10):
        st16(o, ld16(kt + T_DIGITS + 2 * np.int64(v)))
    else:
        st8(o, 48 + np.int64(v))
    return o + n


@inline
def write_i64(o, v, kt):
    """An int64, at most 20 bytes."""
    if v < 0:
        st8(o, 45)
        return write_u64(o + 1, np.uint64(0) - np.uint64(v), kt)
    return write_u64(o, np.uint64(v), kt)


@inline
def write_padded(o, v, n):
    """The last n decimal digits of v >= 0."""
    for j in range(n):
        q = v // 10
        st8(o + n - 1 - j, 48 + v - 10 * q)
        v = q
    return o + n


@inline
def _round_to_odd(gh, gl, cp):
    x1 = mulhi(gl, cp)
    y1 = mulhi(gh, cp)
    y0 = gh * cp
    s = y0 + x1
    if s < y0:
        y1 += np.uint64(1)
    return y1 | (np.uint64(1) if s > np.uint64(1) else np.uint64(0))


@inline
def shortest_digits(bits, kt):
    """(digits, exponent of ten) of the shortest decimal that reads back as the positive double `bits`."""
    frac = np.uint64(bits & 0xFFFFFFFFFFFFF)
    e = (bits >> 52) & 0x7FF
    if e:
        c = frac | np.uint64(1 << 52)
        q = e - 1075
        if 0 <= -q and -q < 53:
            sh = np.uint64(-q)
            if (c >> sh) << sh == c:
                return c >> sh, np.int64(0)
    else:
        c = frac
        q = np.int64(-1074)
    even = (c & np.uint64(1)) == np.uint64(0)
    closer = frac == np.uint64(0) and e > 1
    c4 = c << np.uint64(2)
    k = (q * 1262611 - (524031 if closer else 0)) >> 22
    h = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    gh = np.uint64(ld64(kt + T_POWER_HIGH + 8 * (292 - k)))
    gl = np.uint64(ld64(kt + T_POWER_LOW + 8 * (292 - k)))
    zero = np.uint64(0)
    one = np.uint64(1)
    two = np.uint64(2)
    four = np.uint64(4)
    vbl = _round_to_odd(gh, gl, (c4 - (one if closer else two)) << h)
    vb = _round_to_odd(gh, gl, c4 << h)
    vbr = _round_to_odd(gh, gl, (c4 + two) << h)
    lower = vbl if even else vbl + one
    upper = vbr if even else vbr - one
    s = vb >> two
    if s >= np.uint64(10):
        sp = s // np.uint64(10)
        s40 = sp * np.uint64(40)
        a = lower <= s40
        b = s40 + np.uint64(40) <= upper
        if a != b:
            return sp + (one if b else zero), k + 1
    s4 = s << two
    a = lower <= s4
    b = s4 + four <= upper
    if a != b:
        return s + (one if b else zero), k
    mid = s4 + two
    up = vb > mid or (vb == mid and (s & one) == one)
    return s + (one if up else zero), k


@inline
def write_double(o, bits, kt):
    """A double as MySQL prints it in JSON, at most 40 bytes: always with a point or an exponent.

    Source: mysql strings/dtoa.cc, my_gcvt; sql-common/json_dom.cc.
    """
    if bits < 0:
        st8(o, 45)
        o += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    if bits == 0:
        st16(o, 0x2E30)
        st8(o + 2, 48)
        return o + 3
    d, e = shortest_digits(bits, kt)
    while d >= np.uint64(10):
        q = d // np.uint64(10)
        if q * np.uint64(10) != d:
            break
        d = q
        e += 1
    n = 1
    t = d
    while t >= np.uint64(10):
        t //= np.uint64(10)
        n += 1
    point = n + e
    if point >= -14 and (point <= 15 or n > point):
        if point <= 0:
            st16(o, 0x2E30)
            o += 2
            for _ in range(-point):
                st8(o, 48)
                o += 1
            return write_u64(o, d, kt)
        if e >= 0:
            o = write_u64(o, d, kt)
            for _ in range(e):
                st8(o, 48)
                o += 1
            st16(o, 0x302E)
            return o + 2
        ten = np.uint64(ld64(kt + T_TEN - 8 * e))
        a = d // ten
        o = write_u64(o, a, kt)
        st8(o, 46)
        return write_padded(o + 1, np.int64(d - a * ten), -e)
    write_u64(o + 1, d, kt)
    st8(o, ld8(o + 1))
    if n > 1:
        st8(o + 1, 46)
        o += n + 1
    else:
        o += 1
    st8(o, 101)
    return write_i64(o + 1, point - 1, kt)
