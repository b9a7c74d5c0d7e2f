"""Kernel that writes a double as MySQL prints it in JSON.

Source: mysql strings/dtoa.cc, my_gcvt; sql-common/json_dom.cc.
"""

from tailrace.kernels.declarations import inline
from tailrace.kernels.floattext import DOUBLE
from tailrace.kernels.memory import ld8, st8
from tailrace.kernels.shortest import shortest, write_plain, write_zero
from tailrace.kernels.text import count_digits, write_integer, write_unsigned


@inline
def write_double(o, bits, kt):
    """A double from its bits, at most 40 bytes: always with a point or an exponent."""
    if bits < 0:
        st8(o, 45)
        o += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    if bits == 0:
        return write_zero(o)
    digits, tens = shortest(bits, DOUBLE, 1, kt)
    n = count_digits(digits, kt)
    point = n + tens
    if point >= -14 and (point <= 15 or n > point):
        return write_plain(o, digits, tens, point, kt)
    write_unsigned(o + 1, digits, kt)
    st8(o, ld8(o + 1))
    if n > 1:
        st8(o + 1, 46)
        o += n + 1
    else:
        o += 1
    st8(o, 101)
    return write_integer(o + 1, point - 1, kt)
