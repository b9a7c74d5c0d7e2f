"""Addresses, UUIDs and bit strings: from their binary form to the text that the server prints.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL src/port/inet_net_ntop.c, src/backend/utils/adt/network.c (network_send), uuid.c, mac.c,
varbit.c.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import be32, ld8, st8
from tailrace.kernels.text import write_integer
from tailrace.sources.postgres.wire.kernels.numeric import be16
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, NO_ROOM

#: Most bytes of an address or UUID, the width of the last store included.
MAX_TEXT = 80
_INET, _INET6 = 2, 3


@inline
def hex_digit(value):
    """The digit of 0..15 in lower case."""
    return 48 + value + (39 if value > 9 else 0)


@inline
def _write_hex(o, byte):
    st8(o, hex_digit(byte >> 4))
    st8(o + 1, hex_digit(byte & 15))
    return o + 2


@inline
def write_uuid(p, o):
    """UUID of 16 bytes at p."""
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            st8(o, 45)
            o += 1
        o = _write_hex(o, ld8(p + i))
    return o


@inline
def write_mac(p, n, o):
    """MAC address of n bytes at p."""
    for i in range(n):
        if i:
            st8(o, 58)
            o += 1
        o = _write_hex(o, ld8(p + i))
    return o


@inline
def _write_four(p, o, tables):
    """The four bytes at p as an IPv4 address."""
    for i in range(4):
        if i:
            st8(o, 46)
            o += 1
        o = write_integer(o, ld8(p + i), tables)
    return o


@inline
def _write_word(o, word):
    """Sixteen bits in hexadecimal without leading zeros."""
    shift = np.int64(12)
    while shift > 0 and word >> shift == 0:
        shift -= 4
    while shift >= 0:
        st8(o, hex_digit((word >> shift) & 15))
        o += 1
        shift -= 4
    return o


@inline
def _write_six(p, o, tables):
    """The sixteen bytes at p as an IPv6 address, without its longest run of zero words."""
    start = np.int64(-1)
    length = np.int64(1)  # a run of one is written out
    i = np.int64(0)
    while i < 8:
        j = i
        while j < 8 and be16(p + 2 * j) == 0:
            j += 1
        if j - i > length:
            start = i
            length = j - i
        i = j + 1
    mapped = start == 0 and (
        length == 6 or (length == 7 and be16(p + 14) != 1) or (length == 5 and be16(p + 10) == 0xFFFF)
    )
    i = np.int64(0)
    while i < 8:
        if i == start:
            st8(o, 58)
            o += 1
            i += length
            if i == 8:
                st8(o, 58)
                o += 1
            continue
        if i:
            st8(o, 58)
            o += 1
        if i == 6 and mapped:
            return _write_four(p + 12, o, tables)
        o = _write_word(o, be16(p + 2 * i))
        i += 1
    return o


@inline
def write_inet(p, n, o, tables):
    """INET or CIDR of n bytes at p: the address after its text, or minus MALFORMED.

    Family, bits of the network, whether it is a CIDR, bytes of the address, the address.
    """
    if n < 4:
        return np.int64(-MALFORMED)
    family = ld8(p)
    bits = ld8(p + 1)
    size = ld8(p + 3)
    if (family != _INET or size != 4) and (family != _INET6 or size != 16):
        return np.int64(-MALFORMED)
    if n != 4 + size or bits > 8 * size:
        return np.int64(-MALFORMED)
    o = _write_four(p + 4, o, tables) if family == _INET else _write_six(p + 4, o, tables)
    if ld8(p + 2) or bits != 8 * size:
        st8(o, 47)
        o = write_integer(o + 1, bits, tables)
    return o


@inline
def write_bits(p, n, o, limit):
    """BIT or VARBIT of n bytes at p: the address after its text, or minus NO_ROOM or MALFORMED."""
    if n < 4:
        return np.int64(-MALFORMED)
    bits = be32(p)
    if n != 4 + ((bits + 7) >> 3):
        return np.int64(-MALFORMED)
    if o + bits > limit:
        return np.int64(-NO_ROOM)
    for i in range(bits):
        st8(o + i, 48 + ((ld8(p + 4 + (i >> 3)) >> (7 - (i & 7))) & 1))
    return o + bits
