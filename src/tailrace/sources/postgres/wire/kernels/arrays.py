r"""Arrays to lists: the value kernel copies an array's bytes, which become lists once a batch is full.

A value is copied with a byte in front that says its form (1: text). Here a first kernel counts elements, so
that there is room for them all; a second one reads them as `values` reads any value.

    binary   dimensions 4, whether there are NULLs 4, element's oid 4, per dimension its length 4 and its
             lower bound 4, then the elements: length 4 (-1: NULL) and bytes
    text     {1,NULL,"a \"b\""}; with other bounds `[0:1]={1,2}`, with more dimensions `{{1},{2}}`

A list holds one dimension that is counted from 1. Other arrays are NOT_HELD, or null if the column says so.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL src/backend/utils/adt/arrayfuncs.c (array_send, array_out).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.kernels.arrow import get_bit
from tailrace.kernels.columns import KIND, P1, P2, ColumnBuffers
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import SLACK, be32, ld8, ld32, st8, st32, st64
from tailrace.kernels.tables import TABLES
from tailrace.model.types import ColumnType
from tailrace.sources.postgres.wire.kernels import values
from tailrace.sources.postgres.wire.kernels.moments import signed32
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, NO_ROOM, NOT_HELD, OK
from tailrace.sources.postgres.wire.kernels.values import no_value, read_value
from tailrace.sources.postgres.wire.problems import refusal

#: First room for the data of a list's elements, and the most that int32 offsets reach.
_FIRST_ROOM = 4096
_MOST_ROOM = (1 << 31) - (1 << 20)
_BINARY_HEADER = 20


@inline
def _binary_count(p, n):
    """Elements of an array in binary form; minus a status."""
    if n < 12:
        return np.int64(-MALFORMED)
    dimensions = be32(p)
    if dimensions == 0:
        return np.int64(0) if n == 12 else np.int64(-MALFORMED)
    if dimensions != 1:
        return np.int64(-NOT_HELD)
    if n < _BINARY_HEADER:
        return np.int64(-MALFORMED)
    if be32(p + 16) != 1:
        return np.int64(-NOT_HELD)
    count = be32(p + 12)
    return count if count <= (n - _BINARY_HEADER) // 4 else np.int64(-MALFORMED)


@inline
def _text_count(p, n, delimiter):
    """Elements of an array as text; minus a status."""
    if n < 2:
        return np.int64(-MALFORMED)
    if ld8(p) == 91:  # [
        return np.int64(-NOT_HELD)
    end = p + n - 1
    if ld8(p) != 123 or ld8(end) != 125:
        return np.int64(-MALFORMED)
    p += 1
    if p == end:
        return np.int64(0)
    count = np.int64(1)
    quoted = False
    while p < end:
        c = ld8(p)
        if c == 92:
            p += 1
        elif c == 34:
            quoted = not quoted
        elif not quoted:
            if c == delimiter:
                count += 1
            elif c == 123:
                return np.int64(-NOT_HELD)
        p += 1
    return np.int64(-MALFORMED) if quoted or p > end else count


@inline
def _binary_elements(p, n, at, d, tables):
    """Read the elements of a counted array into rows from `at` on. Returns a status."""
    end = p + n
    count = _binary_count(p, n)
    p += _BINARY_HEADER
    for i in range(count):
        if end - p < 4:
            return np.int64(MALFORMED)
        size = signed32(be32(p))
        p += 4
        if size == -1:
            no_value(at + i, d)
            continue
        if size < 0 or size > end - p:
            return np.int64(MALFORMED)
        status = read_value(p, size, False, at + i, d, tables)
        if status != OK:
            return status
        p += size
    return np.int64(OK if count == 0 or p == end else MALFORMED)


@inline
def _text_elements(p, n, at, delimiter, d, tables):
    """The same from text. Backslashes and quotes are removed in place, which only shortens it."""
    end = p + n - 1
    p += 1
    if p == end:
        return np.int64(OK)
    while True:
        start = p
        o = p
        bare = True
        quoted = False
        while p < end:
            c = ld8(p)
            if c == 34:
                quoted = not quoted
                bare = False
                p += 1
                continue
            if c == 92:
                bare = False
                p += 1
                if p == end:
                    return np.int64(MALFORMED)
                c = ld8(p)
            elif c == delimiter and not quoted:
                break
            st8(o, c)
            o += 1
            p += 1
        if bare and o - start == 4 and ld32(start) == 0x4C4C554E:
            no_value(at, d)
        else:
            status = read_value(start, o - start, True, at, d, tables)
            if status != OK:
                return status
        at += 1
        if p == end:
            return np.int64(OK)
        p += 1


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def _count_all(rows, offsets, data, delimiter, lists, validity, unfit_is_null, why):
    """Write the lists' offsets; return the last: elements in all; or minus one, with the status at `why`."""
    at = np.int64(0)
    for i in range(rows):
        st32(lists + 4 * i, at)
        p = data + ld32(offsets + 4 * i)
        n = ld32(offsets + 4 * i + 4) - ld32(offsets + 4 * i)
        if n > 0:
            count = _text_count(p + 1, n - 1, delimiter) if ld8(p) else _binary_count(p + 1, n - 1)
            if count == -NOT_HELD and unfit_is_null:
                bits = validity + (i >> 3)
                st8(bits, ld8(bits) & ~(1 << (i & 7)))
                count = np.int64(0)
            if count < 0:
                st64(why, -count)
                return np.int64(-1)
            at += count
        if at > 0x7FFFFFFF:
            st64(why, NO_ROOM)
            return np.int64(-1)
    st32(lists + 4 * rows, at)
    return at


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def _read_all(rows, offsets, data, delimiter, lists, validity, descriptor, tables):
    """Read the elements of counted arrays. Returns a status."""
    for i in range(rows):
        p = data + ld32(offsets + 4 * i)
        n = ld32(offsets + 4 * i + 4) - ld32(offsets + 4 * i)
        if n > 0 and get_bit(validity, i) != 0:
            at = ld32(lists + 4 * i)
            if ld8(p):
                status = _text_elements(p + 1, n - 1, at, delimiter, descriptor, tables)
            else:
                status = _binary_elements(p + 1, n - 1, at, descriptor, tables)
            if status != OK:
                return status
    return np.int64(OK)


class Lists:
    """Makes the lists of one column.

    Args:
        column: full name of the column, for errors.
        type_: its type, a list.
        plan: KIND, P1 and P2 of its elements.
    """

    def __init__(self, column: str, type_: ColumnType, plan: tuple[int, int, int]) -> None:
        assert type_.element is not None
        self._column = column
        self._type = type_.arrow
        self._element = type_.element.arrow
        self._plan = plan
        self._flags = values.UNFIT_IS_NULL if type_.unfit == "null" else 0
        self._delimiter = ord(";" if type_.element.native == "box" else ",")

    def __call__(self, raw: pa.BinaryArray) -> pa.ListArray:
        """The lists of copied arrays; the array begins at its buffers' start.

        Raises:
            DecodeError: an array is malformed or not a list.
            BinaryFormError: its elements are read as text only.
        """
        rows = len(raw)
        validity, offsets, data = raw.buffers()
        source = np.frombuffer(data or b"", np.uint8)
        lists = np.zeros(rows + 1, np.int32)
        why = np.zeros(1, np.int64)
        memory = _with_slack(source)
        count = _count_all(
            rows,
            offsets.address,
            memory.ctypes.data,
            self._delimiter,
            lists.ctypes.data,
            validity.address,
            self._flags,
            why.ctypes.data,
        )
        if count < 0:
            raise refusal(int(why[0]), self._column)
        room = max(_FIRST_ROOM, len(source))
        while True:
            elements = ColumnBuffers([self._element], max(count, 1), room)
            descriptor = elements.descriptors[0]
            descriptor[KIND], descriptor[P1], descriptor[P2] = self._plan
            descriptor[values.FLAGS] = self._flags
            status = _read_all(
                rows,
                offsets.address,
                memory.ctypes.data,
                self._delimiter,
                lists.ctypes.data,
                validity.address,
                descriptor.ctypes.data,
                TABLES,
            )
            if status == OK:
                break
            if status != NO_ROOM or room == _MOST_ROOM:
                raise refusal(status, self._column)
            room = min(4 * room, _MOST_ROOM)
            memory = _with_slack(source)  # reading changes text
        return pa.Array.from_buffers(
            self._type, rows, [validity, pa.py_buffer(lists)], children=elements.arrays(count)
        )


def _with_slack(data: np.ndarray) -> np.ndarray:
    memory = np.zeros(len(data) + SLACK, np.uint8)
    memory[: len(data)] = data
    return memory
