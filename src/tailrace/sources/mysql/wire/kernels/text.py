"""Kernels for text: other character sets to UTF-8, base64."""

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import be32, copy, ld8, ld16, ld32, st8, st16, st32
from tailrace.kernels.tables import BASE64
from tailrace.kernels.utf8 import is_ascii

#: Forms of a character set's table, which `codepages` describes and builds.
SINGLE, MULTI, UCS2, UTF16, UTF16LE, UTF32 = range(6)
#: Entries of a MULTI table other than a code point: two question marks, where the server reads two bytes as
#: two unknown characters; no such sequence; continue with two, three or four bytes.
TWICE, BAD, TWO, THREE, FOUR = range(0x200000, 0x200005)
#: Bytes from the table's start to its arrays.
HEADER, BY_TWO, BY_MORE = 8, 8 + 4 * 256, 8 + 4 * (256 + 65536)
#: Four bytes of gb18030, as indices: those of the table, and the first one of U+10000.
PLACES, FIRST_SUPPLEMENTARY = 39_420, 189_000

#: Results of `write_charset` below zero.
NO_ROOM, BAD_TEXT = -1, -2


@inline
def _write_single(o, limit, p, n, table):
    """Text of a single-byte character set, see `write_charset`."""
    by_byte = table + HEADER
    if o + n > limit:
        return np.int64(NO_ROOM)
    if ld32(by_byte + 4 * 256) and is_ascii(p, n):
        copy(o, p, n)
        return o + n
    end = p + n
    while p < end:
        if o + 3 > limit:
            return np.int64(NO_ROOM)
        x = ld32(by_byte + 4 * ld8(p))
        st32(o, x)
        o += x >> 24
        p += 1
    return o


@inline
def _write_point(o, c):
    """A code point in UTF-8; four bytes may be written."""
    if c < 0x80:
        st8(o, c)
        return o + 1
    if c < 0x800:
        st16(o, 0x80C0 | c >> 6 | (c & 63) << 8)
        return o + 2
    if c < 0x10000:
        st32(o, 0x8080E0 | c >> 12 | (c >> 6 & 63) << 8 | (c & 63) << 16)
        return o + 3
    st32(o, 0x808080F0 | c >> 18 | (c >> 12 & 63) << 8 | (c >> 6 & 63) << 16 | (c & 63) << 24)
    return o + 4


@inline
def _four(p, table):
    """The code point of four bytes of gb18030, BAD if they are ill-formed."""
    b, c, d = ld8(p + 1), ld8(p + 2), ld8(p + 3)
    if c < 0x81 or c > 0xFE or d < 0x30 or d > 0x39:
        return np.int64(BAD)
    place = ((ld8(p) - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30
    if place < PLACES:
        return ld32(table + BY_MORE + 4 * place)
    c = place - FIRST_SUPPLEMENTARY + 0x10000
    return c if 0x10000 <= c <= 0x10FFFF else np.int64(63)


@inline
def _write_multi(o, limit, p, n, table):
    """Text of a character set of one to four bytes, see `write_charset`."""
    end = p + n
    while p < end:
        if o + 4 > limit:
            return np.int64(NO_ROOM)
        b = ld8(p)
        if b < 0x80:
            st8(o, b)
            o += 1
            p += 1
            continue
        c = ld32(table + HEADER + 4 * b)
        size = np.int64(1)
        if c == TWO and end - p >= 2:
            c = ld32(table + BY_TWO + 4 * (b << 8 | ld8(p + 1)))
            size = np.int64(2)
        if c == THREE and end - p >= 3:
            c = ld32(table + BY_MORE + 4 * (ld8(p + 1) << 8 | ld8(p + 2)))
            size = np.int64(3)
        if c == FOUR and end - p >= 4:
            c = _four(p, table)
            size = np.int64(4)
        if c > TWICE:
            return np.int64(BAD_TEXT)
        if c == TWICE:
            st16(o, 0x3F3F)
            o += 2
        else:
            o = _write_point(o, c)
        p += size
    return o


@inline
def _write_wide(o, limit, p, n, form):
    """Text of whole two or four bytes, see `write_charset`."""
    end = p + n
    if n & (3 if form == UTF32 else 1):
        return np.int64(BAD_TEXT)
    while p < end:
        if o + 4 > limit:
            return np.int64(NO_ROOM)
        if form == UTF32:
            c = be32(p)
            p += 4
        else:
            c = ld16(p) if form == UTF16LE else ld8(p) << 8 | ld8(p + 1)
            p += 2
            if 0xD800 <= c <= 0xDBFF and form != UCS2 and p < end:
                low = ld16(p) if form == UTF16LE else ld8(p) << 8 | ld8(p + 1)
                if low < 0xDC00 or low > 0xDFFF:
                    return np.int64(BAD_TEXT)
                c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF))
                p += 2
        if c > 0x10FFFF or 0xD800 <= c <= 0xDFFF:
            return np.int64(BAD_TEXT)
        o = _write_point(o, c)
    return o


@entry("int64(int64,int64,int64,int64,int64)")
def write_charset(o, limit, p, n, table):
    """N bytes of a character set that has a table in `codepages`, as UTF-8, which takes 3 * n bytes at most.

    Returns the address after them, NO_ROOM or BAD_TEXT.
    """
    form = ld32(table)
    if form == SINGLE:
        return _write_single(o, limit, p, n, table)
    if form == MULTI:
        return _write_multi(o, limit, p, n, table)
    return _write_wide(o, limit, p, n, form)


@inline
def write_base64(o, p, n, kt):
    """Bytes in base64 as MySQL prints it in JSON: an escaped line feed between lines of 76 letters."""
    i = 0
    while i < n:
        if i and i % 57 == 0:
            st8(o, 92)
            st8(o + 1, 110)
            o += 2
        a = ld8(p + i)
        b = ld8(p + i + 1) if i + 1 < n else np.int64(0)
        c = ld8(p + i + 2) if i + 2 < n else np.int64(0)
        st8(o, ld8(kt + BASE64 + (a >> 2)))
        st8(o + 1, ld8(kt + BASE64 + (((a & 3) << 4) | (b >> 4))))
        st8(o + 2, ld8(kt + BASE64 + (((b & 15) << 2) | (c >> 6))) if i + 1 < n else 61)
        st8(o + 3, ld8(kt + BASE64 + (c & 63)) if i + 2 < n else 61)
        o += 4
        i += 3
    return o
