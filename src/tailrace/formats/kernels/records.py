"""Records from columns, field by field: Avro, Protobuf, and JSON with text values; one message per change.

C-like; the rules are in `kernels.memory`.

In both Avro and Protobuf a record is a sequence of fields, and a field is some fixed bytes (a tag, or the
branch of a union, known when the job is created) followed by a value. The formats differ in the encoding of
integers and lengths (ZIGZAG), and Protobuf writes a length before nested messages. So one kernel serves both,
and the layout of a message is data. JSON whose values are all text is written in the same way; its objects
may omit fields.

A field is a block of FIELD_WORDS int64, as in `kernels.documents` except for the bytes before a value:

    KIND       how its value is written: a constant of `value_kinds`, or one of those below
    VALIDITY, VALUES, DATA, OFFSET   its array
    PRESENT    address and length of the bytes before a value
    ABSENT     address and length of the bytes for NULL; length -1: it must not be NULL
    DETAIL     INSTANT: digits of the fraction. GEOMETRY, POINT: address of their tags. Decimals: address of
               the bytes that follow in their nested message, 0: they are plain bytes
    SKIP       address of a bitmap of the rows whose message omits the field, 0: none

A part of a message is PART_WORDS int64: the condition for writing it (always, set in a bitmap, delete, not a
delete), its fields, the bytes before them, its form (PLAIN; LENGTH: a length follows these bytes; OBJECT: its
first byte, a comma, becomes a brace), and the bytes to write if the condition is false. A message is its
parts in order. The kernel writes messages until all are written (DONE), the output is full (FULL), or a field
that must not be NULL is NULL (IS_NULL).
"""

from __future__ import annotations

import numpy as np

from tailrace.formats.kernels.documents import (
    DATA,
    DETAIL,
    KIND,
    OFFSET,
    VALIDITY,
    VALUES,
    integer,
    is_geometry,
    is_integer,
)
from tailrace.formats.kernels.unscaled import decimal_limbs, reverse, shortest_bytes
from tailrace.formats.kernels.value_kinds import (
    BASE64_URL,
    BINARY,
    BITS,
    BOOLEAN,
    DECIMAL,
    DECIMAL_TEXT,
    DOUBLE,
    FLOAT,
    FLOATS,
    GEOMETRY,
    INSTANT,
    POINT,
    STRING,
)
from tailrace.kernels.arrow import get_bit, is_null
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import copy, ld8, ld32, ld64, lds32, st8, st32, st64
from tailrace.kernels.text import (
    NO_ROOM,
    base64_room,
    make_url_safe,
    write_base64,
    write_instant,
    write_literal,
    write_raw,
    write_string,
)

#: Kinds in addition to those of `documents`: no value, bytes as base64 text, text as a JSON string, raw text.
LITERAL, BASE64, JSON_TEXT, RAW_TEXT = range(100, 104)

PRESENT, PRESENT_LENGTH, ABSENT, ABSENT_LENGTH = range(5, 9)
SKIP = 10
FIELD_WORDS = 11

ALWAYS, IF_SET, IF_DELETED, IF_KEPT = range(4)
PLAIN, LENGTH, OBJECT = range(3)
(
    WHEN,
    FIELDS,
    COUNT,
    OPENING,
    OPENING_LENGTH,
    FORM,  # PLAIN, LENGTH or OBJECT
    MISSING,
    MISSING_LENGTH,
    BITMAP,  # IF_SET: address of the bitmap, 0: all bits are set
    BITMAP_OFFSET,
) = range(10)
PART_WORDS = 10

(
    ROWS,
    OP,  # address of the int8 codes, at the first row
    OP_DELETE,  # the code of a delete
    PARTS,
    PART_COUNT,
    ZIGZAG,  # 1: Avro's integers, 0: Protobuf's
    OUT,
    CAPACITY,
    OFFSETS,
    SCRATCH_ADDRESS,
    ROW,  # next row to write
    USED,  # bytes written
    CULPRIT,  # IS_NULL: number of the part, number of the field
    CULPRIT_FIELD,
) = range(14)
JOB = 14

DONE, FULL, IS_NULL = range(3)

#: Most bytes of a value whose length does not depend on the data, and of a varint.
_FIXED, VARINT = 64, 10
#: Most bytes of a geometry's fields without its WKB.
_SPATIAL = 128
#: A spatial value's tags, one int64 each: branches of unions in Avro, tags of fields in Protobuf. The byte
#: before x, y, wkb and srid, 0: none; the byte for a missing srid, -1: none.
TAG_X, TAG_Y, TAG_WKB, TAG_SRID, NO_SRID, TAGS = range(6)
_NULL_VALUE = -2
#: Protobuf's tag of the bytes in a decimal's message: field 1 with a length.
DECIMAL_VALUE = 0x0A


@inline
def write_varint(to, value):
    """An int64 as unsigned LEB128: 10 bytes at most."""
    rest = np.uint64(value)
    while rest >= np.uint64(128):
        st8(to, np.int64(rest & np.uint64(127)) | 128)
        rest >>= np.uint64(7)
        to += 1
    st8(to, np.int64(rest))
    return to + 1


@inline
def _write_integer(to, value, zigzag):
    return write_varint(to, (value << 1) ^ (value >> 63) if zigzag else value)


@inline
def _write_length(to, length, zigzag):
    return write_varint(to, length << zigzag)


@inline
def _write_bytes(to, source, length, zigzag):
    """Bytes after their length."""
    return write_raw(_write_length(to, length, zigzag), source, length)


@inline
def _write_decimal(to, field, digits, length, zigzag):
    """A decimal's bytes, in a nested message with precision and scale if the field has a closing."""
    closing = ld64(field + 8 * DETAIL)
    if closing == 0:
        return _write_bytes(to, digits, length, zigzag)
    count = ld64(closing)
    to = write_varint(to, (2 if length < 128 else 3) + length + count)
    st8(to, DECIMAL_VALUE)
    to = _write_bytes(to + 1, digits, length, zigzag)
    for i in range(count):
        st8(to + i, ld64(closing + 8 + 8 * i))
    return to + count


@inline
def _write_fixed(to, kind, field, at, zigzag, scratch, tables):
    """A value whose length does not depend on the data: _FIXED bytes at most."""
    values = ld64(field + 8 * VALUES)
    if is_integer(kind):
        return _write_integer(to, integer(values, kind, at), zigzag)
    if kind == DECIMAL:
        value = values + 16 * at
        length = 8 if ld64(value + 8) == ld64(value) >> 63 else 16
        length = shortest_bytes(scratch, value, length)
        return _write_decimal(to, field, scratch, length, zigzag)
    if kind == INSTANT:  # one byte of length
        end = write_instant(to + 1, ld64(values + 8 * at), ld64(field + 8 * DETAIL), tables)
        _write_length(to, end - to - 1, zigzag)
        return end
    if kind == DOUBLE:
        st64(to, ld64(values + 8 * at))
        return to + 8
    if kind == FLOAT:
        st32(to, ld32(values + 4 * at))
        return to + 4
    if kind == BOOLEAN:
        st8(to, get_bit(values, at))
        return to + 1
    return to


@inline
def _write_tag(to, tags, which):
    tag = ld64(tags + 8 * which)
    if tag != 0:
        st8(to, tag)
        return to + 1
    return to


@inline
def _write_geometry(to, kind, tags, source, length, zigzag):
    """MySQL's geometry as Debezium's struct; SRID 0 is null. length + _SPATIAL bytes at most."""
    start = to
    if zigzag == 0:  # the message's length
        to += VARINT
    body = to
    if kind == POINT:
        to = _write_tag(to, tags, TAG_X)
        st64(to, ld64(source + 9))
        to = _write_tag(to + 8, tags, TAG_Y)
        st64(to, ld64(source + 17))
        to += 8
    to = _write_tag(to, tags, TAG_WKB)
    to = _write_bytes(to, source + 4, length - 4, zigzag)
    srid = lds32(source)
    if srid != 0:
        to = _write_tag(to, tags, TAG_SRID)
        to = _write_integer(to, srid, zigzag)
    elif ld64(tags + 8 * NO_SRID) >= 0:
        st8(to, ld64(tags + 8 * NO_SRID))
        to += 1
    if zigzag == 0:
        return _close(start, body, to)
    return to


@inline
def _close(start, body, end):
    """Write the length of the bytes at `body` to `start`, and move the bytes behind it."""
    to = write_varint(start, end - body)
    copy(to, body, end - body)
    return to + (end - body)


@inline
def _write_floats(to, source, count, zigzag):
    """Numbers as Avro's array of one block, or as Protobuf's packed field."""
    if zigzag and count == 0:
        st8(to, 0)
        return to + 1
    to = _write_length(to, count if zigzag else 4 * count, zigzag)
    for i in range(count):
        st32(to + 4 * i, ld32(source + 4 * i))
    to += 4 * count
    if zigzag:
        st8(to, 0)
        to += 1
    return to


@inline
def _write_base64(to, kind, source, length, zigzag, tables):
    """Bytes as text."""
    text = 4 * ((length + 2) // 3)
    start = _write_length(to, text, zigzag)
    # the quotes that the writer adds overwrite the length's last byte and the byte after the text
    end = write_base64(start - 1, source, length, tables) - 1
    _write_length(to, text, zigzag)
    return make_url_safe(start, end) if kind == BASE64_URL else end


@inline
def _write_variable(to, end, kind, field, at, zigzag, scratch, tables):
    """A value with offsets; NO_ROOM beyond `end`."""
    offsets = ld64(field + 8 * VALUES) + 4 * at
    start = lds32(offsets)
    length = lds32(offsets + 4) - start
    source = ld64(field + 8 * DATA)
    if kind == FLOATS:
        if to + 4 * length + _FIXED > end:
            return np.int64(NO_ROOM)
        return _write_floats(to, source + 4 * start, length, zigzag)
    source += start
    if kind == JSON_TEXT:
        return write_string(to, end, source, length, tables)
    if to + base64_room(length) + _FIXED + _SPATIAL > end:
        return np.int64(NO_ROOM)
    if kind == RAW_TEXT:
        return write_raw(to, source, length)
    if kind == BASE64 or kind == BASE64_URL:
        return _write_base64(to, kind, source, length, zigzag, tables)
    if kind == GEOMETRY or kind == POINT:
        if not is_geometry(kind, length):
            return np.int64(_NULL_VALUE)
        return _write_geometry(to, kind, ld64(field + 8 * DETAIL), source, length, zigzag)
    if kind == DECIMAL_TEXT:
        decimal_limbs(scratch, source, length)
        length = shortest_bytes(scratch + 32, scratch, 32)
        return _write_decimal(to, field, scratch + 32, length, zigzag)
    if kind == BITS:
        length = min(length, np.int64(32))
        reverse(scratch, source, length)
        return _write_bytes(to, scratch, length, zigzag)
    if kind == BINARY:  # of a decimal: its digits
        return _write_decimal(to, field, source, length, zigzag)
    return _write_bytes(to, source, length, zigzag)


@inline
def _write_absent(to, field):
    length = ld64(field + 8 * ABSENT_LENGTH)
    if length < 0:
        return np.int64(_NULL_VALUE)
    return write_literal(to, ld64(field + 8 * ABSENT), length)


@inline
def _write_field(to, end, field, row, zigzag, scratch, tables):
    """A field; NO_ROOM beyond `end`, _NULL_VALUE if it is NULL and must not be."""
    present_length = ld64(field + 8 * PRESENT_LENGTH)
    if to + present_length + max(np.int64(0), ld64(field + 8 * ABSENT_LENGTH)) + _FIXED > end:
        return np.int64(NO_ROOM)
    skip = ld64(field + 8 * SKIP)
    if skip != 0 and get_bit(skip, row) != 0:
        return to
    kind = ld64(field + 8 * KIND)
    at = row + ld64(field + 8 * OFFSET)
    if is_null(ld64(field + 8 * VALIDITY), at):
        return _write_absent(to, field)
    value = write_literal(to, ld64(field + 8 * PRESENT), present_length)
    if kind == LITERAL:
        return value
    if kind >= STRING:
        value = _write_variable(value, end, kind, field, at, zigzag, scratch, tables)
        return _write_absent(to, field) if value == _NULL_VALUE else value
    return _write_fixed(value, kind, field, at, zigzag, scratch, tables)


@inline
def _is_written(part, row, deleted):
    when = ld64(part + 8 * WHEN)
    if when == ALWAYS:
        return True
    if when == IF_DELETED:
        return deleted
    if when == IF_KEPT:
        return not deleted
    return not is_null(ld64(part + 8 * BITMAP), row + ld64(part + 8 * BITMAP_OFFSET))


@inline
def _write_part(to, end, job, number, row, deleted, tables):
    """A part of a message; NO_ROOM beyond `end`, _NULL_VALUE if a field is NULL and must not be."""
    part = ld64(job + 8 * PARTS) + 8 * PART_WORDS * number
    if to + ld64(part + 8 * OPENING_LENGTH) + ld64(part + 8 * MISSING_LENGTH) + VARINT > end:
        return np.int64(NO_ROOM)
    if not _is_written(part, row, deleted):
        return write_literal(to, ld64(part + 8 * MISSING), ld64(part + 8 * MISSING_LENGTH))
    to = write_literal(to, ld64(part + 8 * OPENING), ld64(part + 8 * OPENING_LENGTH))
    zigzag, scratch = ld64(job + 8 * ZIGZAG), ld64(job + 8 * SCRATCH_ADDRESS)
    form = ld64(part + 8 * FORM)
    start = to
    body = to + VARINT if form == LENGTH else to
    to = body
    for i in range(ld64(part + 8 * COUNT)):
        field = ld64(part + 8 * FIELDS) + 8 * FIELD_WORDS * i
        to = _write_field(to, end, field, row, zigzag, scratch, tables)
        if to < 0:
            st64(job + 8 * CULPRIT, number)
            st64(job + 8 * CULPRIT_FIELD, i)
            return to
    if form == LENGTH:
        return _close(start, body, to)
    if form == OBJECT:  # an empty object fits into the room for a length
        st8(body, 123)
        return max(to, body + 1)
    return to


@entry("int64(int64,int64)")
def write_records(job, tables):
    """Write rows from ROW on until all are written, the output is full, or a row cannot be written."""
    rows, row = ld64(job + 8 * ROWS), ld64(job + 8 * ROW)
    out = ld64(job + 8 * OUT)
    end = out + ld64(job + 8 * CAPACITY)
    to = out + ld64(job + 8 * USED)
    offsets = ld64(job + 8 * OFFSETS)
    status = np.int64(DONE)
    while row < rows:
        deleted = ld8(ld64(job + 8 * OP) + row) == ld64(job + 8 * OP_DELETE)
        at = to
        for number in range(ld64(job + 8 * PART_COUNT)):
            at = _write_part(at, end, job, number, row, deleted, tables)
            if at < 0:
                break
        if at < 0:
            status = np.int64(FULL if at == NO_ROOM else IS_NULL)
            break
        to = at
        st32(offsets + 4 * row + 4, to - out)
        row += 1
    st64(job + 8 * ROW, row)
    st64(job + 8 * USED, to - out)
    return status
