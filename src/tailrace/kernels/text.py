"""Writers of text: integers, JSON strings, base64, times. C-like; the rules are in `memory`.

A writer gets the address to write to and returns the address after the written bytes. Writers with a
parameter `end` check the room and return NO_ROOM; the others write at most the number of bytes in their
docstring, and the caller checks. All may touch SLACK bytes after the returned address. Input may be in
foreign buffers without SLACK: it is never read beyond its end.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import be32, copy, ld8, ld16, ld64, leading_zeros, st8, st16, st32, st64
from tailrace.kernels.tables import BASE64, BASE64_PAIRS, ESCAPES, HEX, POWERS_OF_TEN, TWO_DIGITS

#: Returned instead of an address by a writer whose output region is full.
NO_ROOM = -1

_DAY_US = 86_400_000_000
#: Eight bytes at a time: the high bits mark bytes that `zero_bytes` or `below_blank` has found.
HIGHS = np.uint64(0x8080808080808080)
BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_ONES = np.uint64(0x0101010101010101)
_BLANKS = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_FOUR = np.uint64(0xF0F0F0F0F0F0F0F0)


@inline
def count_digits(value, tables):
    """Decimal digits of a uint64: 1 to 20."""
    digits = ((64 - leading_zeros(value | np.uint64(1))) * 1233) >> 12  # by its bits: right, or one too few
    if digits == 19:
        return np.int64(20 if value >= np.uint64(10_000_000_000_000_000_000) else 19)
    if value >= np.uint64(ld64(tables + POWERS_OF_TEN + 8 * digits)):
        digits += 1
    return max(digits, np.int64(1))


@inline
def write_unsigned(to, value, tables):
    """A uint64 in decimal: 20 bytes at most."""
    digits = count_digits(value, tables)
    at = to + digits
    while value >= np.uint64(10_000):
        rest = value // np.uint64(10_000)
        four = np.int64(value - rest * np.uint64(10_000))
        two = four // 100
        at -= 4
        st16(at, ld16(tables + TWO_DIGITS + 2 * two))
        st16(at + 2, ld16(tables + TWO_DIGITS + 2 * (four - 100 * two)))
        value = rest
    few = np.int64(value)
    if few >= 100:
        two = few // 100
        at -= 2
        st16(at, ld16(tables + TWO_DIGITS + 2 * (few - 100 * two)))
        few = two
    if few >= 10:
        st16(to, ld16(tables + TWO_DIGITS + 2 * few))
    else:
        st8(to, 48 + few)
    return to + digits


@inline
def write_integer(to, value, tables):
    """An int64 in decimal: 20 bytes at most."""
    if value < 0:
        st8(to, 45)
        return write_unsigned(to + 1, np.uint64(0) - np.uint64(value), tables)
    return write_unsigned(to, np.uint64(value), tables)


@inline
def write_padded(to, value, digits):
    """A non-negative integer in exactly `digits` digits, with leading zeros."""
    for i in range(digits):
        rest = value // 10
        st8(to + digits - 1 - i, 48 + value - 10 * rest)
        value = rest
    return to + digits


@inline
def write_two(to, value, tables):
    """0..99 in two digits."""
    st16(to, ld16(tables + TWO_DIGITS + 2 * value))
    return to + 2


@inline
def zero_bytes(x):
    """A word with a high bit (HIGHS) set iff one of eight bytes is zero; other bits have no meaning."""
    return (x - _ONES) & ~x


@inline
def below_blank(x):
    """A word with a high bit (HIGHS) set iff one of eight bytes is below a blank, as for `zero_bytes`."""
    return (x - _BLANKS) & ~x


@inline
def _plain(word):
    """Whether none of eight bytes needs an escape in a JSON string."""
    x = np.uint64(word)
    found = below_blank(x) | zero_bytes(x ^ _QUOTES) | zero_bytes(x ^ BACKSLASHES)
    found |= zero_bytes((x & _FOUR) ^ _FOUR)
    return found & HIGHS == np.uint64(0)


@inline
def _write_hex4(to, unit, tables):
    """A UTF-16 unit as a numeric escape: 6 bytes."""
    st16(to, 0x755C)
    st8(to + 2, ld8(tables + HEX + (unit >> 12)))
    st8(to + 3, ld8(tables + HEX + ((unit >> 8) & 15)))
    st8(to + 4, ld8(tables + HEX + ((unit >> 4) & 15)))
    st8(to + 5, ld8(tables + HEX + (unit & 15)))
    return to + 6


@inline
def write_string(to, end, source, length, tables):
    """UTF-8 text as a JSON string in quotes, with Jackson's escapes; NO_ROOM beyond `end`.

    Characters beyond U+FFFF become two escapes, as in Jackson's byte generator: keys must be equal byte for
    byte, because Kafka compacts and partitions by them.
    """
    stop = source + length
    if to + length + 2 > end:
        return np.int64(NO_ROOM)
    st8(to, 34)
    to += 1
    plain = source  # every byte from here on has been written unescaped
    while source < stop:
        left = stop - source
        if left >= 8:
            word = ld64(source)
            if _plain(word):
                st64(to, word)
                source += 8
                to += 8
                continue
            left = np.int64(8)
        elif stop - 8 >= plain:  # the last eight bytes, some of them for the second time
            word = ld64(stop - 8)
            if _plain(word):
                st64(to + left - 8, word)
                to += left
                break
        while left > 0:
            byte = ld8(source)
            escape = ld8(tables + ESCAPES + byte)
            used = np.int64(1)
            if escape == 0:
                st8(to, byte)
                to += 1
            elif to + (stop - source) + 12 > end:
                return np.int64(NO_ROOM)
            elif escape == 1:
                to = _write_hex4(to, byte, tables)
            elif escape != 2:
                st8(to, 92)
                st8(to + 1, escape)
                to += 2
            elif stop - source < 4:  # not UTF-8: cannot be decoded, written unescaped
                st8(to, byte)
                to += 1
            else:
                point = (byte & 7) << 18 | (ld8(source + 1) & 63) << 12
                point |= (ld8(source + 2) & 63) << 6 | ld8(source + 3) & 63
                to = _write_hex4(to, 0xD7C0 + (point >> 10), tables)
                to = _write_hex4(to, 0xDC00 + (point & 0x3FF), tables)
                used = np.int64(4)
            source += used
            left -= used
        plain = source
    if to + 1 > end:
        return np.int64(NO_ROOM)
    st8(to, 34)
    return to + 1


@inline
def write_base64(to, source, length, tables):
    """Bytes in base64 with padding, in quotes: 2 + 4 * ceil(length / 3) bytes."""
    st8(to, 34)
    to += 1
    while length >= 4:  # loads four bytes
        bits = be32(source) >> 8
        st16(to, ld16(tables + BASE64_PAIRS + 2 * (bits >> 12)))
        st16(to + 2, ld16(tables + BASE64_PAIRS + 2 * (bits & 4095)))
        source += 3
        length -= 3
        to += 4
    if length > 0:
        bits = ld8(source) << 16
        if length > 1:
            bits |= ld8(source + 1) << 8
        if length > 2:
            bits |= ld8(source + 2)
        st16(to, ld16(tables + BASE64_PAIRS + 2 * (bits >> 12)))
        st8(to + 2, ld8(tables + BASE64 + ((bits >> 6) & 63)) if length > 1 else 61)
        st8(to + 3, ld8(tables + BASE64 + (bits & 63)) if length > 2 else 61)
        to += 4
    st8(to, 34)
    return to + 1


@inline
def make_url_safe(start, end):
    """Replace `+` and `/` in base64 text between two addresses; returns `end`."""
    for p in range(start, end):
        if ld8(p) == 43:  # +
            st8(p, 45)
        elif ld8(p) == 47:  # /
            st8(p, 95)
    return end


@inline
def base64_room(length):
    """Number of bytes that `write_base64` writes for `length` bytes."""
    return 2 + 4 * ((length + 2) // 3)


@inline
def civil(day):
    """Year, month and day of a day, counted from 1970 (proleptic Gregorian)."""
    day += 719468
    era = day // 146097
    of_era = day - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    date = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400
    return (year + 1 if month <= 2 else year), month, date


@inline
def write_clock(to, us, fraction, tables):
    """Non-negative microseconds as hours, minutes, seconds and `fraction` digits: `23:59:59.5`."""
    seconds = us // 1_000_000
    minutes = seconds // 60
    hours = minutes // 60
    to = write_two(to, hours, tables) if hours < 100 else write_integer(to, hours, tables)
    st8(to, 58)
    to = write_two(to + 1, minutes - 60 * hours, tables)
    st8(to, 58)
    to = write_two(to + 1, seconds - 60 * minutes, tables)
    if fraction > 0:
        st8(to, 46)
        part = (us - seconds * 1_000_000) // ld64(tables + POWERS_OF_TEN + 8 * (6 - fraction))
        to = write_padded(to + 1, part, fraction)
    return to


@inline
def write_instant(to, us, fraction, tables):
    """Microseconds since 1970 UTC as `2026-01-02T03:04:05Z`, with `fraction` digits of the second.

    Years 0..9999; 27 bytes at most.
    """
    day = us // _DAY_US
    year, month, date = civil(day)
    century = year // 100
    to = write_two(to, century, tables)
    to = write_two(to, year - 100 * century, tables)
    st8(to, 45)
    to = write_two(to + 1, month, tables)
    st8(to, 45)
    to = write_two(to + 1, date, tables)
    st8(to, 84)
    to = write_clock(to + 1, us - day * _DAY_US, fraction, tables)
    st8(to, 90)
    return to + 1


@inline
def write_null(to):
    """The word null: 4 bytes."""
    st32(to, 0x6C6C756E)
    return to + 4


@inline
def write_literal(to, address, length):
    """Text from a buffer with SLACK."""
    copy(to, address, length)
    return to + length


@inline
def write_raw(to, source, length):
    """Bytes from a buffer without SLACK."""
    stop = source + length
    while stop - source >= 8:
        st64(to, ld64(source))
        source += 8
        to += 8
    while source < stop:
        st8(to, ld8(source))
        source += 1
        to += 1
    return to
