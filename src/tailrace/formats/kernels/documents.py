"""JSON documents from columns: one object per row, one or two messages per change.

C-like; the rules are in `kernels.memory`.

One compiled kernel serves every table, because the layout of a document is data. A column is a block of WORDS
int64:

    KIND      how its value is written: a constant of `value_kinds`
    VALIDITY  address of its validity bitmap, 0: no nulls
    VALUES    address of its fixed-width values, int32 offsets or bitmap
    DATA      address of its data if it has offsets; FLOATS: address of its numbers
    OFFSET    index of its first row in these buffers
    LABEL     address and length of the text before the value: `,"name":`
    ABSENT    address and length of the label and the text for NULL
    DETAIL    INSTANT: digits of the fraction
    WRITTEN   address and length of the label and value that the kernel last wrote for it

Much of what is to be written has just been written: an update leaves most columns as they were, and a
transaction's changes share most of their origin. So the after image is compared with the before image, and an
origin with that of the change before. Where values are equal, what was written for them is copied, for all
neighbours at once.

A job (JOB words) describes the parts of a change's message:

    value   HEAD text, the before image or null, MIDDLE text, the after image or null, the columns of the
            change's origin, TAIL text
    key     the key columns of the before image (delete) or of the after image (others), KEY_TAIL text

A delete has a second message with the same key and no value. The kernel writes rows until all are written
(DONE) or one of the two outputs is full (KEY_FULL, VALUE_FULL). The job then holds the row at which to
continue, and the caller provides a larger output: a message is written completely or not at all.
"""

from __future__ import annotations

import numpy as np

from tailrace.formats.kernels.unscaled import write_decimal128, write_decimal_text, write_reversed
from tailrace.formats.kernels.value_kinds import (
    BASE64_URL,
    BINARY,
    BOOLEAN,
    DECIMAL,
    DECIMAL_TEXT,
    DOUBLE,
    FLOAT,
    FLOATS,
    GEOMETRY,
    INSTANT,
    INT64,
    LOW64,
    MILLIS,
    NANOS,
    POINT,
    RAW,
    STRING,
)
from tailrace.kernels.arrow import get_bit, is_null, load_integer
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.floats import write_double, write_float
from tailrace.kernels.memory import ld8, ld32, ld64, lds32, same, set_bit, st8, st32, st64
from tailrace.kernels.text import (
    NO_ROOM,
    base64_room,
    make_url_safe,
    write_base64,
    write_instant,
    write_integer,
    write_literal,
    write_null,
    write_raw,
    write_string,
)

(
    KIND,
    VALIDITY,
    VALUES,
    DATA,
    OFFSET,
    LABEL,
    LABEL_LENGTH,
    ABSENT,
    ABSENT_LENGTH,
    DETAIL,
    WRITTEN,
    WRITTEN_LENGTH,
) = range(12)
WORDS = 12
#: Most bytes of a value whose length does not depend on the data.
_FIXED = 64
#: Most bytes of a float32, and of a point without its WKB.
_FLOAT, _POINT = 20, 128
#: Bytes of a point: SRID, byte order, type, x, y.
_POINT_BYTES = 25
# pieces of text as little-endian words
_WKB, _X, _Y = (int.from_bytes(t, "little") for t in (b'"wkb":', b'"x":', b',"y":'))
_SRID = int.from_bytes(b',"srid":', "little")

(
    ROWS,
    OP,  # address of the int8 codes, at the first row
    OP_DELETE,  # the code of a delete
    COLUMNS,  # columns of one image
    BEFORE,  # address of their blocks, 0: no change has the image
    BEFORE_VALIDITY,
    BEFORE_OFFSET,
    AFTER,
    AFTER_VALIDITY,
    AFTER_OFFSET,
    SOURCE,  # blocks of the origin's columns
    SOURCE_COLUMNS,
    HEAD,
    HEAD_LENGTH,
    MIDDLE,
    MIDDLE_LENGTH,
    TAIL,
    TAIL_LENGTH,
    KEY_COLUMNS,  # 0: no key
    KEY_BEFORE,
    KEY_AFTER,
    KEY_TAIL,
    KEY_TAIL_LENGTH,
    KEY_OUT,
    KEY_CAPACITY,
    KEY_OFFSETS,
    VALUE_OUT,
    VALUE_CAPACITY,
    VALUE_OFFSETS,
    VALUE_VALIDITY,
    SCRATCH_ADDRESS,
    ROW,  # next row to write
    MESSAGES,  # messages written
    KEY_USED,  # bytes of keys written
    VALUE_USED,  # bytes of values written
) = range(35)
JOB = 35

DONE, KEY_FULL, VALUE_FULL = range(3)
#: In place of a child's number: the block has its addresses from elsewhere.
NO_CHILD = -1
# words of an ArrowArray of Arrow's C data interface
_ROWS, _NULLS, _FIRST, _BUFFERS, _CHILDREN = 0, 1, 2, 5, 6


@inline
def is_integer(kind):
    """Whether values of this kind are written as integers."""
    return kind <= LOW64 or kind == MILLIS or kind == NANOS


@inline
def integer(values, kind, at):
    """The integer to write for a value of such a kind."""
    if kind <= INT64:
        return load_integer(values, kind, at)
    if kind == LOW64:
        return ld64(values + 16 * at)
    us = ld64(values + 8 * at)
    return us // 1000 if kind == MILLIS else us * 1000


@inline
def is_geometry(kind, length):
    """Whether so many bytes can be a geometry that MySQL stores."""
    return length >= 4 and (kind != POINT or length == _POINT_BYTES)


@inline
def _write_fixed(to, kind, column, at, scratch, tables):
    """A value whose length does not depend on the data: _FIXED bytes at most."""
    values = ld64(column + 8 * VALUES)
    if is_integer(kind):
        return write_integer(to, integer(values, kind, at), tables)
    if kind == DECIMAL:
        return write_decimal128(to, values + 16 * at, scratch, tables)
    if kind == INSTANT:
        st8(to, 34)
        to = write_instant(to + 1, ld64(values + 8 * at), ld64(column + 8 * DETAIL), tables)
        st8(to, 34)
        return to + 1
    if kind == DOUBLE:
        return write_double(to, ld64(values + 8 * at), tables)
    if kind == FLOAT:
        return write_float(to, ld32(values + 4 * at), tables)
    if get_bit(values, at):  # BOOLEAN
        st32(to, 0x65757274)
        return to + 4
    st64(to, 0x65736C6166)
    return to + 5


@inline
def _write_geometry(to, kind, source, length, tables):
    """MySQL's geometry as Debezium's struct; SRID 0 is null. base64_room + _POINT bytes at most."""
    if not is_geometry(kind, length):
        return write_null(to)
    st8(to, 123)
    to += 1
    if kind == POINT:
        st64(to, _X)
        to = write_double(to + 4, ld64(source + 9), tables)
        st64(to, _Y)
        to = write_double(to + 5, ld64(source + 17), tables)
        st8(to, 44)
        to += 1
    st64(to, _WKB)
    to = write_base64(to + 6, source + 4, length - 4, tables)
    st64(to, _SRID)
    srid = lds32(source)
    to = write_integer(to + 8, srid, tables) if srid != 0 else write_null(to + 8)
    st8(to, 125)
    return to + 1


@inline
def _write_floats(to, source, count, tables):
    """Numbers as an array: _FLOAT bytes each and two more."""
    st8(to, 91)
    to += 1
    for i in range(count):
        if i > 0:
            st8(to, 44)
            to += 1
        to = write_float(to, ld32(source + 4 * i), tables)
    st8(to, 93)
    return to + 1


@inline
def _write_variable(to, end, kind, column, at, scratch, tables):
    """A value with offsets; NO_ROOM beyond `end`."""
    offsets = ld64(column + 8 * VALUES) + 4 * at
    start = lds32(offsets)
    length = lds32(offsets + 4) - start
    source = ld64(column + 8 * DATA)
    if kind == FLOATS:
        if to + _FLOAT * length + 2 > end:
            return np.int64(NO_ROOM)
        return _write_floats(to, source + 4 * start, length, tables)
    source += start
    if kind == STRING:
        return write_string(to, end, source, length, tables)
    if kind == RAW:
        if to + length > end:
            return np.int64(NO_ROOM)
        return write_raw(to, source, length)
    if to + base64_room(length) > end:
        return np.int64(NO_ROOM)
    if kind == BINARY:
        return write_base64(to, source, length, tables)
    if kind == BASE64_URL:
        return make_url_safe(to, write_base64(to, source, length, tables))
    if kind == GEOMETRY or kind == POINT:
        if to + base64_room(length) + _POINT > end:
            return np.int64(NO_ROOM)
        return _write_geometry(to, kind, source, length, tables)
    if to + _FIXED > end:
        return np.int64(NO_ROOM)
    if kind == DECIMAL_TEXT:
        return write_decimal_text(to, source, length, scratch, tables)
    return write_reversed(to, source, min(length, np.int64(32)), scratch, tables)


@inline
def _equal_texts(a, a_at, b, b_at, kind):
    """Whether two values with offsets have the same bytes."""
    a_offsets, b_offsets = ld64(a + 8 * VALUES) + 4 * a_at, ld64(b + 8 * VALUES) + 4 * b_at
    a_start, b_start = lds32(a_offsets), lds32(b_offsets)
    length = lds32(a_offsets + 4) - a_start
    if lds32(b_offsets + 4) - b_start != length:
        return False
    width = np.int64(4 if kind == FLOATS else 1)
    return same(ld64(a + 8 * DATA) + width * a_start, ld64(b + 8 * DATA) + width * b_start, width * length)


@inline
def _equal(a, a_row, b, b_row):
    """Whether label and value of column `a` in one row are written as those of column `b` in another one."""
    kind = ld64(a + 8 * KIND)
    if ld64(b + 8 * KIND) != kind or ld64(b + 8 * ABSENT) != ld64(a + 8 * ABSENT):
        return False
    a_at, b_at = a_row + ld64(a + 8 * OFFSET), b_row + ld64(b + 8 * OFFSET)
    absent = is_null(ld64(a + 8 * VALIDITY), a_at)
    if absent or is_null(ld64(b + 8 * VALIDITY), b_at):
        return absent and is_null(ld64(b + 8 * VALIDITY), b_at)
    if kind >= STRING:
        return _equal_texts(a, a_at, b, b_at, kind)
    a_values, b_values = ld64(a + 8 * VALUES), ld64(b + 8 * VALUES)
    if kind <= INT64:
        return load_integer(a_values, kind, a_at) == load_integer(b_values, kind, b_at)
    if kind == FLOAT:
        return ld32(a_values + 4 * a_at) == ld32(b_values + 4 * b_at)
    if kind == BOOLEAN:
        return get_bit(a_values, a_at) == get_bit(b_values, b_at)
    if kind == LOW64 or kind == DECIMAL:
        a_value, b_value = a_values + 16 * a_at, b_values + 16 * b_at
        return ld64(a_value) == ld64(b_value) and ld64(a_value + 8) == ld64(b_value + 8)
    return ld64(a_values + 8 * a_at) == ld64(b_values + 8 * b_at)


@inline
def _write_column(to, end, column, row, scratch, tables):
    """Label and value of a column; NO_ROOM beyond `end`."""
    label_length = ld64(column + 8 * LABEL_LENGTH)
    absent_length = ld64(column + 8 * ABSENT_LENGTH)
    if to + label_length + absent_length + _FIXED > end:
        return np.int64(NO_ROOM)
    kind = ld64(column + 8 * KIND)
    at = row + ld64(column + 8 * OFFSET)
    if is_null(ld64(column + 8 * VALIDITY), at):
        return write_literal(to, ld64(column + 8 * ABSENT), absent_length)
    to = write_literal(to, ld64(column + 8 * LABEL), label_length)
    if kind >= STRING:
        return _write_variable(to, end, kind, column, at, scratch, tables)
    return _write_fixed(to, kind, column, at, scratch, tables)


@inline
def _write_columns(to, end, columns, count, row, other, other_row, scratch, tables):
    """Label and value of each column; NO_ROOM beyond `end`.

    `other` is the address of as many columns of which `other_row` is written, or 0.
    """
    i = np.int64(0)
    while i < count:
        column = columns + 8 * WORDS * i
        if other != 0 and _equal(column, row, other + 8 * WORDS * i, other_row):
            written = ld64(other + 8 * WORDS * i + 8 * WRITTEN)
            stop = written + ld64(other + 8 * WORDS * i + 8 * WRITTEN_LENGTH)
            i += 1
            while i < count:
                neighbour = other + 8 * WORDS * i
                if ld64(neighbour + 8 * WRITTEN) != stop:
                    break
                if not _equal(columns + 8 * WORDS * i, row, neighbour, other_row):
                    break
                stop += ld64(neighbour + 8 * WRITTEN_LENGTH)
                i += 1
            if to + (stop - written) > end:
                return np.int64(NO_ROOM)
            to = write_literal(to, written, stop - written)
        else:
            start = to
            to = _write_column(to, end, column, row, scratch, tables)
            if to < 0:
                return np.int64(NO_ROOM)
            st64(column + 8 * WRITTEN, start)
            st64(column + 8 * WRITTEN_LENGTH, to - start)
            i += 1
    return to


@inline
def _write_text(to, end, words):
    """The text whose address and length are at `words`; NO_ROOM beyond `end`."""
    length = ld64(words + 8)
    if to + length > end:
        return np.int64(NO_ROOM)
    return write_literal(to, ld64(words), length)


@inline
def _has_image(job, side, row):
    """Whether the change has a row image; `side`: address of its words in the job."""
    return ld64(side) != 0 and not is_null(ld64(side + 8), row + ld64(side + 16))


@inline
def _write_image(to, end, job, side, other, row, tables):
    """A row image as an object, or null if the change has none.

    `side`: address of its words in the job. `other`: that of the columns of an image that is written, or 0.
    """
    if to + 5 > end:
        return np.int64(NO_ROOM)
    if not _has_image(job, side, row):
        return write_null(to)
    scratch = ld64(job + 8 * SCRATCH_ADDRESS)
    to = _write_columns(to, end, ld64(side), ld64(job + 8 * COLUMNS), row, other, row, scratch, tables)
    if to < 0 or to >= end:
        return np.int64(NO_ROOM)
    st8(to, 125)
    return to + 1


@inline
def _write_value(to, end, job, row, first, tables):
    """The whole value of a row's message; NO_ROOM beyond `end`. `first`: the first row in this output."""
    before = ld64(job + 8 * BEFORE) if _has_image(job, job + 8 * BEFORE, row) else np.int64(0)
    to = _write_text(to, end, job + 8 * HEAD)
    if to >= 0:
        to = _write_image(to, end, job, job + 8 * BEFORE, np.int64(0), row, tables)
    if to >= 0:
        to = _write_text(to, end, job + 8 * MIDDLE)
    if to >= 0:
        to = _write_image(to, end, job, job + 8 * AFTER, before, row, tables)
    if to >= 0:
        columns, count = ld64(job + 8 * SOURCE), ld64(job + 8 * SOURCE_COLUMNS)
        written = columns if row > first else np.int64(0)
        scratch = ld64(job + 8 * SCRATCH_ADDRESS)
        to = _write_columns(to, end, columns, count, row, written, row - 1, scratch, tables)
    if to >= 0:
        to = _write_text(to, end, job + 8 * TAIL)
    return to


@inline
def _write_key(to, end, job, row, deleted, tables):
    """The key of a row's message; NO_ROOM beyond `end`."""
    count = ld64(job + 8 * KEY_COLUMNS)
    if count == 0:
        return to
    columns = ld64(job + 8 * (KEY_BEFORE if deleted else KEY_AFTER))
    scratch, none = ld64(job + 8 * SCRATCH_ADDRESS), np.int64(0)
    to = _write_columns(to, end, columns, count, row, none, none, scratch, tables)
    if to >= 0:
        to = _write_text(to, end, job + 8 * KEY_TAIL)
    return to


@entry("int64(int64,int64,int64,int64)")
def describe_children(array, children, blocks, count):
    """Write the addresses of a struct's children to blocks: VALIDITY, VALUES, DATA and OFFSET.

    `array`: address of the struct's ArrowArray. `children`: that of each block's child's number, or NO_CHILD.
    Returns the bytes of the values with offsets. Lists are none of the children: their DATA lies deeper.
    """
    rows, first = ld64(array + 8 * _ROWS), ld64(array + 8 * _FIRST)
    texts = np.int64(0)
    for i in range(count):
        number = ld64(children + 8 * i)
        if number >= 0:
            block = blocks + 8 * WORDS * i
            child = ld64(ld64(array + 8 * _CHILDREN) + 8 * number)
            buffers, at = ld64(child + 8 * _BUFFERS), first + ld64(child + 8 * _FIRST)
            values = ld64(buffers + 8)
            st64(block + 8 * VALIDITY, ld64(buffers) if ld64(child + 8 * _NULLS) != 0 else np.int64(0))
            st64(block + 8 * VALUES, values)
            st64(block + 8 * OFFSET, at)
            if ld64(block + 8 * KIND) >= STRING:
                st64(block + 8 * DATA, ld64(buffers + 16))
                if rows > 0:
                    texts += lds32(values + 4 * (at + rows)) - lds32(values + 4 * at)
    return texts


@entry("int64(int64,int64)")
def write_messages(job, tables):
    """Write rows from ROW on until all are written (DONE) or an output is full (KEY_FULL, VALUE_FULL)."""
    rows = ld64(job + 8 * ROWS)
    row = first = ld64(job + 8 * ROW)
    messages = ld64(job + 8 * MESSAGES)
    key_out, value_out = ld64(job + 8 * KEY_OUT), ld64(job + 8 * VALUE_OUT)
    key_end = key_out + ld64(job + 8 * KEY_CAPACITY)
    value_end = value_out + ld64(job + 8 * VALUE_CAPACITY)
    key = key_out + ld64(job + 8 * KEY_USED)
    value = value_out + ld64(job + 8 * VALUE_USED)
    key_offsets, value_offsets = ld64(job + 8 * KEY_OFFSETS), ld64(job + 8 * VALUE_OFFSETS)
    status = np.int64(DONE)
    while row < rows:
        deleted = ld8(ld64(job + 8 * OP) + row) == ld64(job + 8 * OP_DELETE)
        next_key = _write_key(key, key_end, job, row, deleted, tables)
        if next_key < 0 or (deleted and next_key + (next_key - key) > key_end):
            status = np.int64(KEY_FULL)
            break
        next_value = _write_value(value, value_end, job, row, first, tables)
        if next_value < 0:
            status = np.int64(VALUE_FULL)
            break
        value = next_value
        set_bit(ld64(job + 8 * VALUE_VALIDITY), messages)
        st32(key_offsets + 4 * messages + 4, next_key - key_out)
        st32(value_offsets + 4 * messages + 4, value - value_out)
        messages += 1
        if deleted:
            key = write_literal(next_key, key, next_key - key)
            st32(key_offsets + 4 * messages + 4, key - key_out)
            st32(value_offsets + 4 * messages + 4, value - value_out)
            messages += 1
        else:
            key = next_key
        row += 1
    st64(job + 8 * ROW, row)
    st64(job + 8 * MESSAGES, messages)
    st64(job + 8 * KEY_USED, key - key_out)
    st64(job + 8 * VALUE_USED, value - value_out)
    return status
