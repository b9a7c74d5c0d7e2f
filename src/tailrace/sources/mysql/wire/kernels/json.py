"""Kernel for MySQL's binary JSON: to the text that a SELECT returns, byte for byte.

A document is a type byte and a value. An object or array is a header (count, size, an entry of fixed width
per key and value) and the values that its entries point to, by offsets from the header's start; small scalars
are in the entry itself. Containers are walked with an explicit stack. Offsets must lie after their
container's header, so that nesting moves forward and ends. Entries may still share a value, so that the text
could grow without bound: it is limited to the longest text of a well-formed document of that size.

Source: mysql sql-common/json_binary.h (format), sql-common/json_dom.cc (text).
"""

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld16, ld32, ld64, lds16, lds32, st8, st16, st32, st64
from tailrace.kernels.text import write_integer, write_padded, write_unsigned
from tailrace.sources.mysql.wire.kernels.decimal import (
    MAX_PRECISION,
    MAX_SCALE,
    MAX_TEXT,
    decimal_bytes,
    write_decimal,
)
from tailrace.sources.mysql.wire.kernels.doubles import write_double
from tailrace.sources.mysql.wire.kernels.lookup import T_ESCAPE, T_HEX
from tailrace.sources.mysql.wire.kernels.text import write_base64

MAX_DEPTH = 100
#: Bytes of scratch memory for the stack: 48 for each open container.
STACK_BYTES = 48 * (MAX_DEPTH + 1)
#: Results below zero.
NO_ROOM, BROKEN = -1, -2

_OBJECT, _LITERAL, _STRING, _OPAQUE = 1, 4, 12, 15
_OPAQUE_DECIMAL, _OPAQUE_DATE, _OPAQUE_TIME = 246, 10, 11


@entry("int64(int64)")
def json_room(n):
    """Most bytes of text that a document of n bytes needs: six for a control character."""
    return 6 * n + 256


@inline
def _write_string(o, limit, p, n, kt):
    """A quoted string; NO_ROOM if it does not fit below `limit`."""
    if o + n + 2 > limit:
        return np.int64(NO_ROOM)
    st8(o, 34)
    o += 1
    e = p + n
    while p < e:
        b = ld8(p)
        x = ld8(kt + T_ESCAPE + b)
        if x == 0:
            st8(o, b)
            o += 1
        else:
            if o + (e - p) + 8 > limit:
                return np.int64(NO_ROOM)
            if x == 1:
                st32(o, 0x3030755C)
                st16(o + 4, ld16(kt + T_HEX + 2 * b))
                o += 6
            else:
                st8(o, 92)
                st8(o + 1, x)
                o += 2
        p += 1
    if o + 1 > limit:
        return np.int64(NO_ROOM)
    st8(o, 34)
    return o + 1


@inline
def _write_packed_time(o, v, type_):
    """An opaque DATE, TIME, DATETIME or TIMESTAMP, without quotes; at most 40 bytes."""
    if type_ == _OPAQUE_TIME:
        if v < 0:
            st8(o, 45)
            o += 1
            v = -v
    else:
        ymd = (v >> 41) & 0x3FFFFF
        ym = ymd >> 5
        o = write_padded(o, ym // 13, 4)
        st8(o, 45)
        o = write_padded(o + 1, ym % 13, 2)
        st8(o, 45)
        o = write_padded(o + 1, ymd & 31, 2)
        if type_ == _OPAQUE_DATE:
            return o
        st8(o, 32)
        o += 1
    hms = (v >> 24) & (0x3FFFFF if type_ == _OPAQUE_TIME else 0x1FFFF)
    h = hms >> 12
    o = write_padded(o, h, 2 if h < 100 else 3)
    st8(o, 58)
    o = write_padded(o + 1, (hms >> 6) & 63, 2)
    st8(o, 58)
    o = write_padded(o + 1, hms & 63, 2)
    st8(o, 46)
    return write_padded(o + 1, v & 0xFFFFFF, 6)


@inline
def _write_opaque(o, limit, p, n, type_, g, kt):
    if type_ == _OPAQUE_DECIMAL:
        if n < 3:
            return np.int64(BROKEN)
        precision = ld8(p)
        scale = ld8(p + 1)
        if precision == 0 or precision > MAX_PRECISION or scale > MAX_SCALE or scale > precision:
            return np.int64(BROKEN)
        if decimal_bytes(precision, scale, kt) > n - 2:
            return np.int64(BROKEN)
        if o + MAX_TEXT > limit:
            return np.int64(NO_ROOM)
        o = write_decimal(p + 2, precision, scale, g, o, kt)
        return o if o else np.int64(BROKEN)
    if type_ == _OPAQUE_DATE or type_ == _OPAQUE_TIME or type_ == 12 or type_ == 7:
        if n < 8:
            return np.int64(BROKEN)
        st8(o, 34)
        o = _write_packed_time(o + 1, ld64(p), type_)
        st8(o, 34)
        return o + 1
    if o + 40 + (n + 2) // 3 * 4 + n // 57 * 2 > limit:
        return np.int64(NO_ROOM)
    st64(o, 0x3A34366573616222)
    st32(o + 8, 0x65707974)
    o = write_integer(o + 12, type_, kt)
    st8(o, 58)
    o = write_base64(o + 1, p, n, kt)
    st8(o, 34)
    return o + 1


@inline
def _write_scalar(t, v, end, o, limit, g, kt):
    """A scalar of type t at v; `limit` leaves 64 bytes at least."""
    if t == _LITERAL:
        if v >= end:
            return np.int64(BROKEN)
        b = ld8(v)
        if b == 0:
            st32(o, 0x6C6C756E)
        elif b == 1:
            st32(o, 0x65757274)
        elif b == 2:
            st32(o, 0x736C6166)
            st8(o + 4, 101)
            return o + 5
        else:
            return np.int64(BROKEN)
        return o + 4
    if t <= 6:
        if v + 2 > end:
            return np.int64(BROKEN)
        return write_integer(o, lds16(v) if t == 5 else ld16(v), kt)
    if t <= 8:
        if v + 4 > end:
            return np.int64(BROKEN)
        return write_integer(o, lds32(v) if t == 7 else ld32(v), kt)
    if t <= 11:
        if v + 8 > end:
            return np.int64(BROKEN)
        if t == 9:
            return write_integer(o, ld64(v), kt)
        if t == 10:
            return write_unsigned(o, np.uint64(ld64(v)), kt)
        if (ld64(v) >> 52) & 0x7FF == 0x7FF:
            return np.int64(BROKEN)
        return write_double(o, ld64(v), kt)
    if t != _STRING and t != _OPAQUE:
        return np.int64(BROKEN)
    type_ = np.int64(0)
    if t == _OPAQUE:
        if v >= end:
            return np.int64(BROKEN)
        type_ = ld8(v)
        v += 1
    n = np.int64(0)
    shift = 0
    while True:
        if v >= end or shift > 28:
            return np.int64(BROKEN)
        b = ld8(v)
        v += 1
        n |= (b & 127) << shift
        shift += 7
        if b < 128:
            break
    if n > end - v:
        return np.int64(BROKEN)
    if t == _STRING:
        return _write_string(o, limit, v, n, kt)
    return _write_opaque(o, limit, v, n, type_, g, kt)


@inline
def _walk(p, n, o, limit, stack, g, kt):
    end = p + n
    sp = 0
    t = ld8(p)
    v = p + 1
    large = False
    while True:
        if o + 64 > limit:
            return np.int64(NO_ROOM)
        if t <= 3:
            large = (t & 1) == 1
            w = 4 if large else 2
            if v + 2 * w > end:
                return np.int64(BROKEN)
            if large:
                count = ld32(v)
                size = ld32(v + 4)
            else:
                count = ld16(v)
                size = ld16(v + 2)
            if size > end - v:
                return np.int64(BROKEN)
            header = 2 * w + count * (1 + w) + (count * (w + 2) if t <= _OBJECT else 0)
            if header > size or sp >= MAX_DEPTH:
                return np.int64(BROKEN)
            st8(o, 123 if t <= _OBJECT else 91)
            o += 1
            s = stack + 48 * sp
            st64(s, v)
            st64(s + 8, count)
            st64(s + 16, 0)
            st64(s + 24, t)
            st64(s + 32, v + size)
            st64(s + 40, header)
            sp += 1
        else:
            o = _write_scalar(t, v, end, o, limit, g, kt)
            if o < 0:
                return o
        while True:  # on to the next element of the innermost open container
            if sp == 0:
                return o
            s = stack + 48 * (sp - 1)
            base = ld64(s)
            count = ld64(s + 8)
            i = ld64(s + 16)
            ct = ld64(s + 24)
            end = ld64(s + 32)
            header = ld64(s + 40)
            if i < count:
                break
            if o + 2 > limit:
                return np.int64(NO_ROOM)
            st8(o, 125 if ct <= _OBJECT else 93)
            o += 1
            sp -= 1
        st64(s + 16, i + 1)
        large = (ct & 1) == 1
        w = 4 if large else 2
        entry = base + 2 * w
        if o + 2 > limit:
            return np.int64(NO_ROOM)
        if i:
            st16(o, 0x202C)
            o += 2
        if ct <= _OBJECT:
            key = entry + i * (w + 2)
            ko = ld32(key) if large else ld16(key)
            kn = ld16(key + w)
            if ko < header or ko + kn > end - base:
                return np.int64(BROKEN)
            o = _write_string(o, limit, base + ko, kn, kt)
            if o < 0 or o + 2 > limit:
                return np.int64(NO_ROOM)
            st16(o, 0x203A)
            o += 2
            entry += count * (w + 2)
        entry += i * (1 + w)
        t = ld8(entry)
        if (t >= _LITERAL and t <= 6) or (large and (t == 7 or t == 8)):
            v = entry + 1
        else:
            offset = ld32(entry + 1) if large else ld16(entry + 1)
            if offset < header or offset >= end - base:
                return np.int64(BROKEN)
            v = base + offset


@inline
def write_json(p, n, o, limit, stack, g, kt):
    """The document of n bytes at p as text at o: the address after it, NO_ROOM or BROKEN.

    `stack` is STACK_BYTES of scratch memory, `g` that of `write_decimal`. No bytes stand for null.
    """
    own = o + json_room(n)
    if o + 4 > limit:
        return np.int64(NO_ROOM)
    if n == 0:
        st32(o, 0x6C6C756E)
        return o + 4
    q = _walk(p, n, o, min(own, limit), stack, g, kt)
    return np.int64(BROKEN) if q == NO_ROOM and own <= limit else q
