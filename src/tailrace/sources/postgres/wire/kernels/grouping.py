"""An order of a table's changes in which fewer batches are needed.

All rows of a batch lack the same columns. Where some values of a column are stored out of line and others are
not, updates with and without it alternate, and so would batches, of a row or two each. So changes that lack
the same columns are grouped. The order of each row's changes is kept: no change is moved past another one of
the same key, whether before or after an update.

Kernels are C-like; the rules are in `kernels.memory`.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import be32, ld8, ld64, st64
from tailrace.sources.postgres.wire.kernels.messages import DELETE
from tailrace.sources.postgres.wire.kernels.moments import signed32
from tailrace.sources.postgres.wire.kernels.numeric import be16
from tailrace.sources.wire.kernels import rowbatch as rb

#: Words of a change's findings: the columns it lacks, hashes of its key after and before, whether it is
#: valid.
_LACKS, _KEY, _OLD_KEY, _SOUND = range(4)
_WORDS = 4
#: Most switches between sets of lacking columns, among a table's pending changes, that are left as they are.
_FEW = 8
_PRIME = np.int64(1099511628211)
_BASIS = np.int64(-3750763034362895579)
_OLD, _UNCHANGED, _TEXT, _BINARY = (ord(c) for c in "Outb")


@inline
def _look(p, end, ncol, is_key, found, word):
    """Note which columns a tuple lacks, and its key's hash at `word` of `found`: address after it, 0: bad."""
    if end - p < 2 or be16(p) != ncol:
        return np.int64(0)
    p += 2
    lacks = np.int64(0)
    key = _BASIS
    for c in range(ncol):
        if p >= end:
            return np.int64(0)
        form = ld8(p)
        p += 1
        n = np.int64(0)
        if form == _TEXT or form == _BINARY:
            if end - p < 4:
                return np.int64(0)
            n = signed32(be32(p))
            p += 4
            if n < 0 or n > end - p:
                return np.int64(0)
        elif form == _UNCHANGED:
            lacks = (lacks ^ (c + 1)) * _PRIME
        if ld64(is_key + 8 * c):
            key = (key ^ n) * _PRIME
            for j in range(n):
                key = (key ^ ld8(p + j)) * _PRIME
        p += n
    st64(found + 8 * word, key)
    st64(found + 8 * _LACKS, lacks)
    return p


@entry("void(int64,int64,int64,int64,int64,int64)")
def _look_at_all(events, chosen, count, ncol, is_key, found):
    """Fill in `found` for the chosen changes.

    Args:
        events: records of changes (EV_ of `rowbatch`).
        chosen: indices among them, int64.
        count: their number.
        ncol: columns of the table.
        is_key: whether each belongs to the key, int64.
        found: _WORDS int64 per change, zeroed.
    """
    for i in range(count):
        x = events + 8 * rb.EV_WORDS * ld64(chosen + 8 * i)
        at = found + 8 * _WORDS * i
        p = ld64(x) + 4
        end = ld64(x + 8 * rb.EV_END)
        mark = ld8(p)
        p += 1
        has_old = mark == 75 or mark == _OLD
        if has_old:
            p = _look(p, end, ncol, is_key, at, _OLD_KEY)
            if p == 0:
                continue
            if ld64(x + 8 * rb.EV_TYPE) == DELETE:
                st64(at + 8 * _KEY, ld64(at + 8 * _OLD_KEY))
                st64(at + 8 * _SOUND, 1)
                continue
            p += 1
        if _look(p, end, ncol, is_key, at, _KEY) == 0:
            continue
        if mark == _OLD:  # columns that are not sent come from the old row
            st64(at + 8 * _LACKS, 0)
        if not has_old:
            st64(at + 8 * _OLD_KEY, ld64(at + 8 * _KEY))
        st64(at + 8 * _SOUND, 1)


def grouped(events: np.ndarray, chosen: np.ndarray, is_key: np.ndarray) -> np.ndarray:
    """`chosen`, in an order in which changes that lack the same columns stand together.

    Args:
        events: records of changes (EV_ of `rowbatch`).
        chosen: indices of one table's changes among them, in log order.
        is_key: per column whether it belongs to the table's key, int64.
    """
    if not is_key.any():
        return chosen
    found = np.zeros((len(chosen), _WORDS), np.int64)
    _look_at_all(
        events.ctypes.data,
        chosen.ctypes.data,
        len(chosen),
        len(is_key),
        is_key.ctypes.data,
        found.ctypes.data,
    )
    lacks = found[:, _LACKS]
    if np.count_nonzero(lacks[1:] != lacks[:-1]) <= _FEW or not found[:, _SOUND].all():
        return chosen
    segments = np.zeros(len(chosen), np.int64)
    segments[_cuts(lacks, found[:, _KEY], found[:, _OLD_KEY])] = 1
    order = np.lexsort((lacks, np.cumsum(segments)))  # stable: in log order where these are equal
    return np.ascontiguousarray(chosen[order])


def _cuts(lacks: np.ndarray, keys: np.ndarray, old_keys: np.ndarray) -> list[int]:
    """Changes that no earlier one may be moved past.

    They separate any two changes of one key that lack different columns: the first lies before one of them,
    the second does not.
    """
    numbers = np.arange(len(lacks))
    changed = keys != old_keys
    key = np.concatenate((keys, old_keys[changed]))
    number = np.concatenate((numbers, numbers[changed]))
    order = np.lexsort((number, key))
    key, number = key[order], number[order]
    apart = (key[1:] == key[:-1]) & (lacks[number[1:]] != lacks[number[:-1]])
    pairs = np.stack((number[1:][apart], number[:-1][apart]), axis=1)
    cuts = [0]
    for second, first in pairs[np.argsort(pairs[:, 0], kind="stable")].tolist():
        if cuts[-1] <= first:
            cuts.append(second)
    return cuts[1:]
