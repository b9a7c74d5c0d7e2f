"""The kernel for row changes of one relation: tuples into the Arrow buffers of two images.

    insert   relation 4, N, tuple
    update   relation 4, [K or O, tuple,] N, tuple
    delete   relation 4, K or O, tuple
    tuple    number of columns 2, per column: n (NULL), u (unchanged, not sent), or t or b (text, binary),
             length 4, bytes

K is an old row of which only the replica identity's columns are sent (the others as NULL), O a whole one. A
new row's values that are unchanged and stored out of line (TOAST) are not sent; they come from the old row if
that is whole. Else they are unknown: the row lacks the columns, and all rows of a batch lack the same ones.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL manual, "Logical Replication Message Formats" (TupleData).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.columns import no_image
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import be32, ld8, ld64, same, set_bit, st8, st32, st64
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE
from tailrace.sources.postgres.wire.kernels.messages import DELETE, UPDATE
from tailrace.sources.postgres.wire.kernels.moments import signed32
from tailrace.sources.postgres.wire.kernels.numeric import be16
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, OK
from tailrace.sources.postgres.wire.kernels.outcome import NO_ROOM as VALUE_NO_ROOM
from tailrace.sources.postgres.wire.kernels.values import no_value, read_value
from tailrace.sources.wire.kernels import rowbatch as rb

#: Errors of `decode_changes`.
BAD_CHANGE, BAD_VALUE = range(rb.OWN_STATUS, rb.OWN_STATUS + 2)

#: Further words of the cursor, out: outcome of a value that could not be read, whether before images have the
#: replica identity's columns only, whether after images lack columns.
CU_OUTCOME, CU_KEYS, CU_LACKS = range(rb.CU_OWN, rb.CU_OWN + 3)

_KEY, _OLD, _NEW = (ord(c) for c in "KON")
_NULL, _UNCHANGED, _TEXT, _BINARY = (ord(c) for c in "nutb")
_WHOLE, _KEYS_ONLY = 1, 2


def scratch_bytes(columns: int) -> int:
    """Bytes of scratch memory that `decode_changes` needs: two rows of flags, addresses of old values."""
    return 2 * (columns + 8) + 16 * columns + 64


@inline
def _tuple(p, end, row, cols, ncol, olds, keep, lacks, cursor, tables):
    """Read a tuple into row `row`: the address after it, 0 if it is bad (column and outcome: cursor).

    `olds` is the address of (address, length << 8 | form) per column of the old row, 0 if that is not whole;
    with `keep` they are written, else read. `lacks` is the address of a flag per column, set for missing
    ones; 0 if none may be missing.
    """
    st64(cursor + 8 * rb.CU_COLUMN, -1)
    if end - p < 2 or be16(p) != ncol:
        return np.int64(0)
    p += 2
    for c in range(ncol):
        st64(cursor + 8 * rb.CU_COLUMN, c)
        st64(cursor + 8 * CU_OUTCOME, MALFORMED)
        if p >= end:
            return np.int64(0)
        form = ld8(p)
        p += 1
        d = cols + 64 * c
        at = p
        n = np.int64(0)
        if form == _TEXT or form == _BINARY:
            if end - p < 4:
                return np.int64(0)
            n = signed32(be32(p))
            at = p + 4
            if n < 0 or n > end - at:
                return np.int64(0)
            p = at + n
        elif form == _UNCHANGED:
            if lacks == 0:
                return np.int64(0)
            if olds != 0:
                at = ld64(olds + 16 * c)
                n = ld64(olds + 16 * c + 8) >> 8
                form = ld64(olds + 16 * c + 8) & 255
            else:
                st8(lacks + c, 1)
                st64(cursor + 8 * CU_LACKS, 1)
                no_value(row, d)
                continue
        elif form != _NULL:
            return np.int64(0)
        if keep:
            st64(olds + 16 * c, at)
            st64(olds + 16 * c + 8, n << 8 | form)
        if form == _NULL:
            no_value(row, d)
            continue
        status = read_value(at, n, form == _TEXT, row, d, tables)
        if status != OK:
            st64(cursor + 8 * CU_OUTCOME, status)
            return np.int64(0)
    return p


@inline
def _bad_value(cursor):
    """The status after `_tuple` has failed."""
    if ld64(cursor + 8 * rb.CU_COLUMN) >= 0 and ld64(cursor + 8 * CU_OUTCOME) == VALUE_NO_ROOM:
        return np.int64(rb.NO_ROOM)
    return np.int64(BAD_VALUE)


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def decode_changes(
    events, chosen, count, cursor, cols, ncol, variable, nvar, out, max_rows, max_bytes, scratch, tables
):
    """Decode changes of one relation until they end, or the batch is full: see `rowbatch`.

    `scratch` has `scratch_bytes`; its first flags say which columns the after images lack.
    """
    lacking = scratch  # of the batch
    lacks = scratch + ncol + 8  # of the row
    olds = scratch + 2 * (ncol + 8)
    for j in range(ncol):
        st8(lacking + j, 0)
        st8(lacks + j, 0)
    n = np.int64(0)
    txns = np.int64(0)
    befores = np.int64(0)
    afters = np.int64(0)
    used = np.int64(0)
    last = np.int64(-1)
    kind_before = np.int64(0)
    batch_lacks = np.int64(0)
    status = np.int64(rb.DONE)
    i = ld64(cursor + 8 * rb.CU_EVENT)
    after = cols + 64 * ncol
    while i < count:
        if n >= max_rows or (used >= max_bytes and n > 0):
            status = np.int64(rb.BATCH_FULL)
            break
        if n > 0 and ld64(chosen + 8 * i) < ld64(chosen + 8 * i - 8):
            status = np.int64(rb.BATCH_FULL)  # the changes were regrouped here: a batch is in log order
            break
        x = events + 8 * rb.EV_WORDS * ld64(chosen + 8 * i)
        p = ld64(x) + 4
        end = ld64(x + 8 * rb.EV_END)
        what = ld64(x + 8 * rb.EV_TYPE)
        st64(cursor + 8 * rb.CU_COLUMN, -1)
        mark = ld8(p)  # a change has at least five bytes
        p += 1
        before = np.int64(0)
        if mark == _KEY or mark == _OLD:
            before = np.int64(_WHOLE if mark == _OLD else _KEYS_ONLY)
            if befores > 0 and before != kind_before:
                status = np.int64(rb.BATCH_FULL)
                break
            p = _tuple(p, end, n, cols, ncol, olds, what == UPDATE and mark == _OLD, 0, cursor, tables)
            if p == 0:
                status = _bad_value(cursor)
                break
            if what == UPDATE:
                if p >= end or ld8(p) != _NEW:
                    status = np.int64(BAD_CHANGE)
                    break
                p += 1
        elif mark != _NEW or what == DELETE:
            status = np.int64(BAD_CHANGE)
            break
        else:
            no_image(n, cols, variable, nvar)
        if what == DELETE:
            no_image(n, after, variable, nvar)
        else:
            st64(cursor + 8 * CU_LACKS, 0)
            whole = olds if before == _WHOLE else np.int64(0)
            p = _tuple(p, end, n, after, ncol, whole, False, lacks, cursor, tables)
            if p == 0:
                status = _bad_value(cursor)
                if ld64(cursor + 8 * rb.CU_COLUMN) >= 0:
                    st64(cursor + 8 * rb.CU_COLUMN, ld64(cursor + 8 * rb.CU_COLUMN) + ncol)
                break
            row_lacks = ld64(cursor + 8 * CU_LACKS)
            if afters > 0 and (row_lacks or batch_lacks) and not same(lacks, lacking, ncol):
                status = np.int64(rb.BATCH_FULL)
            elif row_lacks and afters == 0:
                batch_lacks = np.int64(1)
                for j in range(ncol):
                    st8(lacking + j, ld8(lacks + j))
            if row_lacks:
                for j in range(ncol):
                    st8(lacks + j, 0)
            if status == rb.BATCH_FULL:
                break
        if p != end:
            status = np.int64(BAD_CHANGE)
            break
        if before:
            kind_before = before
            set_bit(ld64(out + 8 * rb.OUT_BEFORE), n)
            befores += 1
        if what != DELETE:
            set_bit(ld64(out + 8 * rb.OUT_AFTER), n)
            afters += 1
        txn = ld64(x + 8 * rb.EV_TXN)
        if txn != last:
            st32(ld64(out + 8 * rb.OUT_TXNS) + 4 * txns, txn)
            txns += 1
            last = txn
        op = OP_UPDATE if what == UPDATE else OP_DELETE if what == DELETE else OP_CREATE
        st8(ld64(out + 8 * rb.OUT_OP) + n, op)
        st32(ld64(out + 8 * rb.OUT_TXN) + 4 * n, txns - 1)
        st64(ld64(out + 8 * rb.OUT_POS) + 8 * n, ld64(x + 8 * rb.EV_POS))
        st32(ld64(out + 8 * rb.OUT_ROW) + 4 * n, ld64(x + 8 * rb.EV_ROW))
        used += end - ld64(x)
        n += 1
        i += 1
    st64(cursor + 8 * rb.CU_EVENT, i)
    st64(cursor + 8 * rb.CU_ROWS, n)
    st64(cursor + 8 * rb.CU_TXNS, txns)
    st64(cursor + 8 * rb.CU_BEFORE, befores)
    st64(cursor + 8 * rb.CU_AFTER, afters)
    st64(cursor + 8 * CU_KEYS, kind_before == _KEYS_ONLY)
    st64(cursor + 8 * CU_LACKS, batch_lacks)
    return status
