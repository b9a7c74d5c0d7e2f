"""Kernel for row events: the row images of one table into Arrow buffers.

One compiled kernel serves every table, since a column's plan is data: the descriptors of `columns`, where
KIND is one of the K_ below, P1, P2 and EXTRA are that kind's own (see `plan`). The values are copied or
converted; nothing in the output points into the input.

A row image is a bitmap of NULLs and the values that are not NULL, one after the other, each as long as its
type says. So a wrong length anywhere shows as a row that does not end where the event does.

The bitmaps are kept, row by row, and make the columns' validity bitmaps in the end, eight rows and columns at
a time. To set a bit for each value would touch as many bitmaps as there are columns with every row.

With `binlog_row_image` other than FULL an image lacks columns, as the event's bitmaps say. All rows of a
batch then lack the same ones, and are of one kind of event.

Source: mysql libs/mysql/binlog/event/rows_event.h; sql-common/pack.cc; sql/field.cc (pack).
"""

import numpy as np

from tailrace.kernels.columns import no_image
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import SLACK, copy, ld8, ld16, ld32, ld64, set_bit, st8, st16, st32, st64
from tailrace.kernels.utf8 import copy_utf8, is_ascii, is_utf8
from tailrace.model.change import OP_CREATE
from tailrace.sources.mysql.wire.kernels.decimal import MAX_TEXT, read_decimal128, write_decimal
from tailrace.sources.mysql.wire.kernels.json import NO_ROOM as JSON_NO_ROOM
from tailrace.sources.mysql.wire.kernels.json import STACK_BYTES, write_json
from tailrace.sources.mysql.wire.kernels.temporal import (
    BROKEN,
    MAX_MOMENT_TEXT,
    NO_DATE,
    read_date,
    read_datetime,
    read_time,
    read_timestamp,
    write_moment,
)
from tailrace.sources.mysql.wire.kernels.text import BAD_TEXT as ILL_FORMED
from tailrace.sources.mysql.wire.kernels.text import write_charset
from tailrace.sources.wire.kernels import rowbatch as rb

#: Word of a column's descriptor that `columns` leaves to decoders.
EXTRA = 7

#: How a value is read. From K_VARIABLE on the output has offsets and data.
(
    K_RAW1,
    K_RAW2,
    K_RAW4,
    K_RAW8,
    K_UINT1,
    K_UINT2,
    K_UINT3,
    K_INT3,
    K_UINT4,
    K_UINT8,
    K_DECIMAL,
    K_DATETIME,
    K_TIMESTAMP,
    K_TIME,
    K_DATE,
    K_YEAR,
    K_BOOL,
    K_UTF8,
    K_BYTES,
    K_CHARSET,
    K_JSON,
    K_BITS,
    K_BINARY,
    K_ENUM,
    K_SET,
    K_DECIMAL_TEXT,
    K_MOMENT_TEXT,
) = range(27)
K_VARIABLE = K_UTF8

#: Errors of `decode_rows`.
MALFORMED, BAD_TEXT, ZERO_DATE = range(rb.OWN_STATUS, rb.OWN_STATUS + 3)

#: Further words of the cursor. In and out: address within the event (0: its start), row within it. Out:
#: addresses of the bitmaps of the columns that are in the before and the after images, ALL_COLUMNS, or 0
#: where no row has that image.
CU_ADDRESS, CU_ROW, CU_IN_BEFORE, CU_IN_AFTER = range(rb.CU_OWN, rb.CU_OWN + 4)
ALL_COLUMNS = 1

_GROUPS = 64
_STACK = 256
#: Bytes of scratch memory the kernel needs: the failing column, groups of a decimal, JSON's stack. Behind
#: them the bitmaps of NULLs of all rows, before images first (`null_bytes`).
SCRATCH_BYTES = _STACK + STACK_BYTES
#: Steps of transposing eight bytes of eight bits: bits that are swapped with those so many places above.
_STEP_7, _STEP_14, _STEP_28 = (
    np.uint64(x) for x in (0x00AA00AA00AA00AA, 0x0000CCCC0000CCCC, 0x00000000F0F0F0F0)
)


def null_bytes(columns: int, rows: int) -> int:
    """Bytes of the bitmaps of NULLs of both images, SLACK for each image included."""
    return 2 * (((columns + 7) >> 3) * rows + SLACK)


@inline
def _label(o, limit, labels, i):
    """Copy label i of a label block (see `plan`): the address after it, 0 if there is none, -1: no room."""
    if i < 0 or i >= ld64(labels):
        return np.int64(0)
    at = ld64(labels + 8 + 16 * i)
    n = ld64(labels + 16 + 16 * i)
    if o + n > limit:
        return np.int64(-1)
    copy(o, at, n)
    return o + n


@inline
def _variable(p, end, row, d, k, f, scratch, kt):
    """One value with offsets and data: the address after it; minus a status if it cannot be decoded."""
    o = ld32(f + 4 * row)
    base = ld64(d + 40)
    limit = base + ld64(d + 48)
    o += base
    if k <= K_JSON:
        width = ld64(d + 8)
        if end - p < width:
            return np.int64(-MALFORMED)
        n = ld32(p) & ld64(d + 16)
        p += width
        if n > end - p:
            return np.int64(-MALFORMED)
        if k == K_JSON:
            q = write_json(p, n, o, limit, scratch + _STACK, scratch + _GROUPS, kt)
            if q < 0:
                return np.int64(-rb.NO_ROOM if q == JSON_NO_ROOM else -MALFORMED)
            if not is_ascii(o, q - o) and not is_utf8(o, q - o):
                return np.int64(-BAD_TEXT)
        elif k == K_CHARSET:
            q = write_charset(o, limit, p, n, ld64(d + 56))
            if q < 0:
                return np.int64(-BAD_TEXT if q == ILL_FORMED else -rb.NO_ROOM)
        else:
            q = o + n
            if q > limit:
                return np.int64(-rb.NO_ROOM)
            if k == K_BYTES:
                copy(o, p, n)
            elif not copy_utf8(o, p, n):
                return np.int64(-BAD_TEXT)
        st32(f + 4 * row + 4, q - base)
        return p + n
    if k == K_BITS:
        n = ld64(d + 8)
        if end - p < n:
            return np.int64(-MALFORMED)
        q = o + n
        if q > limit:
            return np.int64(-rb.NO_ROOM)
        copy(o, p, n)
    elif k == K_BINARY:
        width = ld64(d + 8)
        n = ld32(p) & ((np.int64(1) << (8 * width)) - 1)
        size = ld64(d + 16)
        p += width
        if n > end - p or n > size:
            return np.int64(-MALFORMED)
        q = o + size
        if q > limit:
            return np.int64(-rb.NO_ROOM)
        copy(o, p, n)
        for j in range(n, size):
            st8(o + j, 0)
    elif k == K_ENUM:
        n = ld64(d + 8)
        if end - p < n:
            return np.int64(-MALFORMED)
        i = ld16(p) & ((1 << (8 * n)) - 1)
        q = _label(o, limit, ld64(d + 56), i)
        if q <= 0:
            return np.int64(-rb.NO_ROOM if q else -MALFORMED)
    elif k == K_SET:
        n = ld64(d + 8)
        if end - p < n:
            return np.int64(-MALFORMED)
        labels = ld64(d + 56)
        q = o
        for i in range(8 * n):
            if (ld8(p + (i >> 3)) >> (i & 7)) & 1:
                if q > o:
                    if q + 1 > limit:
                        return np.int64(-rb.NO_ROOM)
                    st8(q, 44)
                    q += 1
                q = _label(q, limit, labels, i)
                if q <= 0:
                    return np.int64(-rb.NO_ROOM if q else -MALFORMED)
    elif k == K_MOMENT_TEXT:
        n = ld64(d + 56) & 255
        if end - p < n:
            return np.int64(-MALFORMED)
        if o + MAX_MOMENT_TEXT > limit:
            return np.int64(-rb.NO_ROOM)
        q = write_moment(o, p, ld64(d + 56) >> 8, ld64(d + 8), ld64(d + 16))
        if q == BROKEN:
            return np.int64(-MALFORMED)
    else:
        scale = ld64(d + 16) & 255
        n = ld64(d + 16) >> 8
        if end - p < n:
            return np.int64(-MALFORMED)
        if o + MAX_TEXT > limit:
            return np.int64(-rb.NO_ROOM)
        q = write_decimal(p, ld64(d + 8), scale, scratch + _GROUPS, o, kt)
        if q == 0:
            return np.int64(-MALFORMED)
    st32(f + 4 * row + 4, q - base)
    return p + n


@inline
def _keep_nulls(to, nulls, ncol, present):
    """Write the bitmap of the columns that have no value: NULLs, and what the image lacks."""
    if present == ALL_COLUMNS:
        copy(to, nulls, (ncol + 7) >> 3)
        return
    _fill(to, (ncol + 7) >> 3)
    shown = np.int64(0)
    for c in range(ncol):
        if (ld8(present + (c >> 3)) >> (c & 7)) & 1:
            if (ld8(nulls + (shown >> 3)) >> (shown & 7)) & 1 == 0:
                st8(to + (c >> 3), ld8(to + (c >> 3)) ^ (1 << (c & 7)))
            shown += 1


@inline
def _fill(to, n):
    """Set n bytes of bits: no column has a value."""
    end = to + n
    while to < end:
        st64(to, -1)
        to += 8


@inline
def _write_validity(cols, ncol, nulls, rows):
    """Make the validity bitmaps of columns from the bitmaps of NULLs of their rows."""
    size = (ncol + 7) >> 3
    for first in range(0, rows, 8):
        count = min(rows - first, 8)
        at = nulls + first * size
        for j in range(size):
            x = np.uint64(0xFFFFFFFFFFFFFFFF)
            for i in range(count):
                x = (x << np.uint64(8)) | np.uint64(ld8(at + (count - 1 - i) * size + j))
            t = (x ^ (x >> np.uint64(7))) & _STEP_7
            x = x ^ t ^ (t << np.uint64(7))
            t = (x ^ (x >> np.uint64(14))) & _STEP_14
            x = x ^ t ^ (t << np.uint64(14))
            t = (x ^ (x >> np.uint64(28))) & _STEP_28
            x = ~(x ^ t ^ (t << np.uint64(28)))
            for c in range(8 * j, min(ncol, 8 * j + 8)):
                st8(ld64(cols + 64 * c + 24) + (first >> 3), np.int64(x & np.uint64(255)))
                x >>= np.uint64(8)


@inline
def _image(p, end, row, cols, ncol, present, kept, scratch, kt):
    """One row image into row `row`: the address after it; or minus a status, scratch has the column.

    `present` is the address of the bitmap of its columns, or ALL_COLUMNS. `kept` is where the bitmap of those
    without a value goes.
    """
    nulls = p
    p += ((ncol if present == ALL_COLUMNS else _count_set(present, ncol)) + 7) >> 3
    st64(scratch, -1)
    if p > end:
        return np.int64(-MALFORMED)
    _keep_nulls(kept, nulls, ncol, present)
    for c in range(ncol):
        d = cols + 64 * c
        k = ld64(d)
        f = ld64(d + 32)
        if (ld8(kept + (c >> 3)) >> (c & 7)) & 1:
            if k >= K_VARIABLE:
                st32(f + 4 * row + 4, ld32(f + 4 * row))
            continue
        if k >= K_VARIABLE:
            p = _variable(p, end, row, d, k, f, scratch, kt)
            if p < 0:
                st64(scratch, c)
                return p
        else:
            w = ld64(d + 56)  # its bytes
            if end - p < w:
                st64(scratch, c)
                return np.int64(-MALFORMED)
            if k == K_RAW8:
                st64(f + 8 * row, ld64(p))
            elif k == K_RAW4:
                st32(f + 4 * row, ld32(p))
            elif k == K_UINT4:
                st64(f + 8 * row, ld32(p))
            elif k == K_RAW1:
                st8(f + row, ld8(p))
            elif k == K_RAW2:
                st16(f + 2 * row, ld16(p))
            elif k == K_UINT1:
                st16(f + 2 * row, ld8(p))
            elif k == K_UINT2:
                st32(f + 4 * row, ld16(p))
            elif k == K_UINT3:
                st32(f + 4 * row, ld32(p) & 0xFFFFFF)
            elif k == K_INT3:
                st32(f + 4 * row, ((ld32(p) & 0xFFFFFF) ^ 0x800000) - 0x800000)
            elif k == K_UINT8:
                st64(f + 16 * row, ld64(p))
                st64(f + 16 * row + 8, 0)
            elif k == K_BOOL:
                if ld8(p) & 1:
                    set_bit(f, row)
            elif k == K_YEAR:
                x = ld8(p)
                st32(f + 4 * row, x + 1900 if x else 0)
            elif k == K_DECIMAL:
                if not read_decimal128(p, ld64(d + 8), ld64(d + 16), scratch + _GROUPS, f + 16 * row, kt):
                    st64(scratch, c)
                    return np.int64(-MALFORMED)
            else:
                nb = ld64(d + 8)
                unit = ld64(d + 16)
                if k == K_DATETIME:
                    x = read_datetime(p, nb, unit, kt)
                elif k == K_TIMESTAMP:
                    x = read_timestamp(p, nb, unit)
                elif k == K_TIME:
                    x = read_time(p, nb, unit)
                else:
                    x = read_date(p, kt)
                if x == BROKEN:
                    st64(scratch, c)
                    return np.int64(-MALFORMED)
                p += w
                if x == NO_DATE:
                    if ld64(d + 40):
                        st64(scratch, c)
                        return np.int64(-ZERO_DATE)
                    set_bit(kept, c)
                elif k == K_DATE:
                    st32(f + 4 * row, x)
                else:
                    st64(f + 8 * row, x)
                continue
            p += w
    return p


@inline
def _all_set(p, n):
    """Whether the first n bits at p are set."""
    for j in range(n >> 3):
        if ld8(p + j) != 255:
            return False
    m = (1 << (n & 7)) - 1
    return ld8(p + (n >> 3)) & m == m


@inline
def _count_set(p, n):
    """How many of the first n bits at p are set."""
    found = np.int64(0)
    for c in range(n):
        found += (ld8(p + (c >> 3)) >> (c & 7)) & 1
    return found


@inline
def _present(p, n):
    """The bitmap of n columns at p, ALL_COLUMNS if it has them all."""
    return np.int64(ALL_COLUMNS) if _all_set(p, n) else p


@inline
def _empty(present, n):
    """Whether an image with these columns (`_present`, 0: no image) takes no bytes."""
    return present == 0 or n == 0 or (present != ALL_COLUMNS and _count_set(present, n) == 0)


@inline
def _differ(a, b, n):
    """Whether two bitmaps of n columns (`_present`) are not the same."""
    if a == b:
        return False
    if a <= ALL_COLUMNS or b <= ALL_COLUMNS:
        return True
    for j in range((n + 7) >> 3):
        if ld8(a + j) != ld8(b + j):
            return True
    return False


@inline
def _rows_start(ev, end, type_, ncol):
    """Address of the first row; minus a status."""
    q = ev + 27
    if type_ >= 30:
        if end - q < 2:
            return np.int64(-MALFORMED)
        q += ld16(q)  # the extra data's length counts itself
    if end - q < 1:
        return np.int64(-MALFORMED)
    n = ld8(q)
    q += 1
    if n == 252:
        n = ld16(q)
        q += 2
    elif n > 250:
        return np.int64(-MALFORMED)
    nb = (ncol + 7) >> 3
    images = 2 if type_ == 31 or type_ == 24 else 1
    if n != ncol or end - q < images * nb:
        return np.int64(-MALFORMED)
    return q + images * nb


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def decode_rows(
    events, chosen, count, cursor, cols, ncol, variable, nvar, out, max_rows, max_bytes, scratch, kt
):
    """Decode row events of one table until they end, or the batch is full: see `rowbatch`.

    `scratch` has SCRATCH_BYTES, and behind them `null_bytes` for `max_rows`. An event's start and end are
    those without its checksum.
    """
    n = np.int64(0)
    txns = np.int64(0)
    befores = np.int64(0)
    afters = np.int64(0)
    used = np.int64(0)
    last = np.int64(-1)
    status = np.int64(rb.DONE)
    i = ld64(cursor + 8 * rb.CU_EVENT)
    p = ld64(cursor + 8 * CU_ADDRESS)
    r = ld64(cursor + 8 * CU_ROW)
    after = cols + 64 * ncol
    op = ld64(out + 8 * rb.OUT_OP)
    txn_of = ld64(out + 8 * rb.OUT_TXN)
    pos_of = ld64(out + 8 * rb.OUT_POS)
    row_of = ld64(out + 8 * rb.OUT_ROW)
    txn_list = ld64(out + 8 * rb.OUT_TXNS)
    has_before = ld64(out + 8 * rb.OUT_BEFORE)
    has_after = ld64(out + 8 * rb.OUT_AFTER)
    in_before = np.int64(0)
    in_after = np.int64(0)
    kind = np.int64(-1)
    nb = (ncol + 7) >> 3
    nulls_before = scratch + SCRATCH_BYTES
    nulls_after = nulls_before + nb * max_rows + SLACK
    while i < count and status == rb.DONE:
        x = events + 8 * rb.EV_WORDS * ld64(chosen + 8 * i)
        ev = ld64(x)
        end = ld64(x + 8 * rb.EV_END)
        type_ = ld64(x + 8 * rb.EV_TYPE)
        txn = ld64(x + 8 * rb.EV_TXN)
        pos = ld64(x + 8 * rb.EV_POS)
        row0 = ld64(x + 8 * rb.EV_ROW)
        what = type_ - (30 if type_ >= 30 else 23)  # 0 write, 1 update, 2 delete
        q = _rows_start(ev, end, type_, ncol)
        if q < 0:
            st64(scratch, -1)
            status = -q
            break
        before_has = np.int64(0)
        after_has = np.int64(0)
        if what != 2:
            after_has = _present(q - nb, ncol)
        if what != 0:
            before_has = _present(q - nb if what == 2 else q - 2 * nb, ncol)
        if _empty(before_has, ncol) and _empty(after_has, ncol):  # rows without bytes cannot be counted
            st64(scratch, -1)
            status = np.int64(MALFORMED)
            break
        if n == 0:
            in_before = before_has
            in_after = after_has
            kind = what
        elif max(before_has, after_has, in_before, in_after) > ALL_COLUMNS and (
            what != kind or _differ(before_has, in_before, ncol) or _differ(after_has, in_after, ncol)
        ):
            status = np.int64(rb.BATCH_FULL)
            break
        if p == 0:
            p = q
            r = np.int64(0)
        while p < end:
            if n >= max_rows or (used >= max_bytes and n):
                status = np.int64(rb.BATCH_FULL)
                break
            q = p
            side = np.int64(0)
            if what == 0:
                no_image(n, cols, variable, nvar)
                _fill(nulls_before + nb * n, nb)
            else:
                q = _image(q, end, n, cols, ncol, before_has, nulls_before + nb * n, scratch, kt)
            if q > 0:
                side = ncol
                if what == 2:
                    no_image(n, after, variable, nvar)
                    _fill(nulls_after + nb * n, nb)
                else:
                    q = _image(q, end, n, after, ncol, after_has, nulls_after + nb * n, scratch, kt)
            if q < 0:
                status = -q
                if ld64(scratch) >= 0:
                    st64(scratch, ld64(scratch) + side)
                break
            if what != 0:
                set_bit(has_before, n)
                befores += 1
            if what != 2:
                set_bit(has_after, n)
                afters += 1
            if txn != last:
                st32(txn_list + 4 * txns, txn)
                txns += 1
                last = txn
            st8(op + n, what + OP_CREATE)
            st32(txn_of + 4 * n, txns - 1)
            st64(pos_of + 8 * n, pos)
            st32(row_of + 4 * n, row0 + r)
            used += q - p
            p = q
            n += 1
            r += 1
        if status == rb.DONE:
            i += 1
            p = np.int64(0)
    if befores:
        _write_validity(cols, ncol, nulls_before, n)
    if afters:
        _write_validity(after, ncol, nulls_after, n)
    st64(cursor + 8 * rb.CU_EVENT, i)
    st64(cursor + 8 * rb.CU_ROWS, n)
    st64(cursor + 8 * rb.CU_TXNS, txns)
    st64(cursor + 8 * rb.CU_BEFORE, befores)
    st64(cursor + 8 * rb.CU_AFTER, afters)
    st64(cursor + 8 * rb.CU_COLUMN, ld64(scratch))
    st64(cursor + 8 * CU_ADDRESS, p)
    st64(cursor + 8 * CU_ROW, r)
    st64(cursor + 8 * CU_IN_BEFORE, in_before)
    st64(cursor + 8 * CU_IN_AFTER, in_after)
    return status
