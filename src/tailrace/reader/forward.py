"""Rows as of a later position, from rows as of an earlier one and the rows *after* changes.

Logs that hold only the key of the row before a change (PostgreSQL without REPLICA IDENTITY FULL) cannot be
undone, and an update may lack columns that it left as they were (values stored out of line). So the changes
are spooled, and read backwards: the *last* event of a key says whether there is a row at the end, and what it
is, but for the columns that it lacks. These are sought further back, at an earlier event of the same key or,
across an update of the key, of the key before it; what the log does not have is in the earlier row.

    base      k=1 a=x b=LARGE                                     row at the end
    log       u k=1 a=y b=?      u k=1->7 a=y b=?      u k=7 a=z b=?     =>  k=7 a=z b=LARGE
    read                              <---- b sought under k=1 <---- b sought under k=7

Keys are numbered, so that all the rest is arithmetic of arrays. Memory grows with the number of keys that the
log touches; rows wait on disk. Each event must fit the one before it: a create needs that there is no row, an
update or delete needs one. A log with a gap, or of another table, does not lead from base to end unnoticed.

Pure: no server, no clock. The property test rebuilds tables from random histories and compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.errors import SourceError
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.log import key_columns
from tailrace.reader.spilled_rows import SpilledRows
from tailrace.reader.touched_keys import TouchedKeys

#: Changes whose keys are numbered at once, at least, and their bytes at most.
_BLOCK, _BLOCK_BYTES = 65_536, 64 << 20
#: What a key's next event needs: unknown, no row, a row.
_ANY, _NONE, _ROW = -1, 0, 1


def carried_forward(
    rows: Iterable[pa.StructArray], table: TableSchema, changes: Iterable[ChangeBatch | None]
) -> Iterator[pa.StructArray]:
    """The rows after `changes`, in any order.

    Args:
        rows: all rows before them.
        table: the schema of the rows, with a key, and of all changes.
        changes: the changes in log order; None: the table is emptied there.

    Raises:
        SourceError: the changes do not lead on from the rows.
    """
    with tempfile.TemporaryFile() as file:
        places: list[tuple[int, int]] = []
        keys = TouchedKeys(table)
        for batch in changes:
            if batch is None:
                rows, places, keys = (), [], TouchedKeys(table)
                file.seek(0)
                file.truncate()
                continue
            for image in batch.images().values():
                keys.add(_keys(image, table))
            cell = encode_cell(batch)
            places.append((file.tell(), cell.size))
            file.write(cell)
        end = _End(table, keys)
        events: list[_Events] = []
        size = 0
        for at, length in reversed(places):
            file.seek(at)
            events.insert(0, _Events(decode_cell(file.read(length))))
            size += length
            if size > _BLOCK_BYTES or sum(map(len, events)) > max(_BLOCK, len(keys) // 4):
                end.observe(events)
                events, size = [], 0
        end.observe(events)
    yield from end.rows(rows)


def _keys(images: pa.StructArray, table: TableSchema) -> pa.StructArray:
    keys = key_columns(images, table.key).filter(images.is_valid())
    if any(keys.field(i).null_count for i in range(len(table.key))):
        raise contradiction(table, "a change has no value of its key")
    return keys


class _Events:
    """A batch whose keys are numbered.

    Attributes:
        after: number of each key after its change; of a delete -1.
        before: number of each key before it; of a create -1.
    """

    def __init__(self, batch: ChangeBatch) -> None:
        self.batch = batch
        self.op = batch.op.to_numpy()
        self.after = self.before = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.batch)

    def number(self, after: np.ndarray, before: np.ndarray) -> None:
        """Give it the numbers of the keys of its images, -1 where there is none."""
        self.after = after
        # an update that leaves the key as it is may come without it
        self.before = np.where((self.op == OP_UPDATE) & (before < 0), after, before)

    @property
    def moved(self) -> np.ndarray:
        """Whether each is an update of the key."""
        found: np.ndarray = (self.op == OP_UPDATE) & (self.after != self.before)
        return found


@dataclass(frozen=True)
class _Steps:
    """Events in their order; an update of a key is two: the row leaves one key, and comes to the other.

    Args:
        at: the change of each.
        key: its key.
        needs: whether there must be a row with the key before it.
        leaves: whether there is one after it.
    """

    at: np.ndarray
    key: np.ndarray
    needs: np.ndarray
    leaves: np.ndarray

    @classmethod
    def of(cls, events: _Events) -> _Steps:
        moved = events.moved
        at = np.repeat(np.arange(len(events)), np.where(moved, 2, 1))
        second = np.r_[False, at[1:] == at[:-1]] if len(at) else np.zeros(0, bool)
        goes = (events.op[at] == OP_DELETE) | (moved[at] & ~second)
        key = np.where(goes, events.before[at], events.after[at])
        return cls(at, key, (events.op[at] != OP_CREATE) & ~second, ~goes)

    def last(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The last step of each key: change, key, and whether it leaves a row."""
        _, reverse = np.unique(self.key[::-1], return_index=True)
        last = np.sort(len(self.key) - 1 - reverse)
        return self.at[last], self.key[last], self.leaves[last]


class _End:
    """The rows at the end, as far as the events observed so far tell: later ones first."""

    def __init__(self, table: TableSchema, keys: TouchedKeys) -> None:
        self._table, self._keys = table, keys
        self._names = [c.name for c in table.columns]
        #: By key: whether the end is known, which row seeks columns here, what the next event needs.
        self._decided = np.zeros(len(keys), bool)
        self._sought = np.full(len(keys), -1, np.int64)
        self._needed = np.full(len(keys), _ANY, np.int8)
        self._done = SpilledRows(table.arrow)
        #: Rows that lack columns, and which: a number of `_lacking`.
        self._open = SpilledRows(table.arrow)
        self._lacks = np.zeros(0, np.int32)
        self._lacking: list[frozenset[str]] = []

    # -- the log --------------------------------------------------------------------------------------

    def observe(self, block: Sequence[_Events]) -> None:
        """Observe events, in log order, that come before those observed so far."""
        self._number(block)
        steps = [_Steps.of(events) for events in block]
        self._require_fit(steps)
        for events, its in zip(reversed(block), reversed(steps), strict=True):
            lacks = frozenset(events.batch.absent_after)
            if lacks and events.moved.any():
                for start, stop in reversed(_independent(events)):
                    self._settle_moved(events, start, stop, lacks)
            else:
                at, key, leaves = its.last()
                self._decided[key[~leaves]] = True
                self._settle(events.batch, at[leaves], key[leaves], key[leaves], lacks)

    def _number(self, block: Sequence[_Events]) -> None:
        parts, masks = [], []
        for events in block:
            for side in ("after", "before"):
                image = events.batch.image(side)
                parts.append(key_columns(image, self._table.key))
                masks.append(image.is_valid().to_numpy(zero_copy_only=False))
        if not parts:
            return
        numbers = self._keys.numbers(pa.concat_arrays(parts))
        numbers = np.where(np.concatenate(masks), numbers, -1)
        at = 0
        for events in block:
            n = len(events)
            events.number(numbers[at : at + n], numbers[at + n : at + 2 * n])
            at += 2 * n

    def _require_fit(self, block: Sequence[_Steps]) -> None:
        """Check that each event of a key fits the next one."""
        if not block:
            return
        key, needs, leaves = (
            np.concatenate([getattr(steps, name) for steps in block]) for name in ("key", "needs", "leaves")
        )
        if (key < 0).any():
            raise contradiction(self._table, "a change has no key")
        order = np.argsort(key, kind="stable")
        key, needs, leaves = key[order], needs[order], leaves[order]
        same = key[1:] == key[:-1]
        last, first = np.r_[~same, True], np.r_[True, ~same]
        needed = self._needed[key[last]]
        if (leaves[:-1][same] != needs[1:][same]).any() or (
            (needed != _ANY) & (needed != leaves[last])
        ).any():
            raise contradiction(self._table, "two changes of one key do not fit")
        self._needed[key[first]] = np.where(needs[first], _ROW, _NONE)

    def _settle_moved(self, events: _Events, start: int, stop: int, lacks: frozenset[str]) -> None:
        """Take changes of different keys, updates of keys among them, that lack columns."""
        at = np.arange(start, stop)
        goes = events.op[at] == OP_DELETE
        leaves = at[~goes]
        self._settle(events.batch, leaves, events.after[leaves], events.before[leaves], lacks)
        self._decided[events.before[at]] = True

    def _settle(
        self, batch: ChangeBatch, at: np.ndarray, key: np.ndarray, source: np.ndarray, lacks: frozenset[str]
    ) -> None:
        """Take rows that changes have left.

        Args:
            batch: the changes.
            at: their places in it.
            key: the key of each, each once.
            source: the key that its row had before.
            lacks: the columns that they lack.
        """
        is_new, record = ~self._decided[key], self._sought[key]
        self._decided[key] = True
        self._sought[key] = -1
        if is_new.any():
            rows = batch.image("after").take(pa.array(at[is_new]))
            if lacks:
                self._sought[source[is_new]] = self._opened(rows, lacks)
            else:
                self._done.append(rows)
        wanted = record >= 0
        if wanted.any():
            rows = batch.image("after").take(pa.array(at[wanted]))
            left, made = self._filled(record[wanted], rows, lacks)
            self._sought[source[wanted]] = left
            for part in made:
                self._done.append(part)

    def _opened(self, rows: pa.StructArray, lacks: frozenset[str]) -> np.ndarray:
        """Keep rows that lack columns; returns their numbers."""
        if lacks not in self._lacking:
            self._lacking.append(lacks)
        first = len(self._lacks)
        pattern = np.full(len(rows), self._lacking.index(lacks), np.int32)
        self._lacks = np.concatenate((self._lacks, pattern))
        self._open.append(rows)
        return np.arange(first, len(self._lacks))

    def _filled(
        self, records: np.ndarray, rows: pa.StructArray, lacks: frozenset[str]
    ) -> tuple[np.ndarray, list[pa.StructArray]]:
        """Fill columns that kept rows lack.

        Args:
            records: the numbers of the kept rows.
            rows: for each an earlier state of it.
            lacks: the columns that these lack.

        Returns:
            For each its number if it still lacks some, else -1; and those that are whole.
        """
        left, made = records.copy(), []
        for pattern in np.unique(self._lacks[records]).tolist():
            holes = self._lacking[pattern]
            given = holes - lacks
            if not given:
                continue
            its = np.flatnonzero(self._lacks[records] == pattern)
            kept, older = self._open.take(records[its]), rows.take(pa.array(its))
            columns = [(older if name in given else kept).field(name) for name in self._names]
            joined = pa.StructArray.from_arrays(columns, fields=list(self._table.arrow))
            if holes & lacks:
                left[its] = self._opened(joined, holes & lacks)
            else:
                left[its] = -1
                made.append(joined)
        return left, made

    # -- the rows before ------------------------------------------------------------------------------

    def rows(self, before: Iterable[pa.StructArray]) -> Iterator[pa.StructArray]:
        """The rows at the end, from those before the first event."""
        found = np.zeros(len(self._keys), bool)
        for part in before:
            number = self._keys.numbers(key_columns(part, self._table.key))
            touched = number >= 0
            if not touched.any():
                yield part
                continue
            yield part.filter(pa.array(~touched))
            hit = number[touched]
            if found[hit].any() or (self._needed[hit] != _ROW).any():
                raise contradiction(self._table, "it creates a row that is there before it")
            found[hit] = True
            wanted = touched.copy()
            wanted[touched] = self._sought[hit] >= 0
            if wanted.any():
                rows = part.filter(pa.array(wanted))
                _, made = self._filled(self._sought[number[wanted]], rows, frozenset())
                yield from made
        if (found != (self._needed == _ROW)).any():
            raise contradiction(self._table, "it changes a row that is not there before it")
        yield from self._done.everything()


def _independent(events: _Events) -> list[tuple[int, int]]:
    """The changes in runs in which no key occurs twice."""
    at = np.arange(len(events))
    moved = events.moved
    after = np.where(events.op == OP_DELETE, events.before, events.after)
    key, place = np.r_[after, events.before[moved]], np.r_[at, at[moved]]
    order = np.lexsort((place, key))
    key, place = key[order], place[order]
    again = key[1:] == key[:-1]
    cuts = [0]
    pairs = np.stack((place[1:][again], place[:-1][again]), axis=1)
    for second, first in pairs[np.argsort(pairs[:, 0], kind="stable")].tolist():
        if cuts[-1] <= first:
            cuts.append(second)
    return list(zip(cuts, [*cuts[1:], len(events)], strict=True))


def contradiction(table: TableSchema, what: str) -> SourceError:
    """The error for a log that does not fit the rows before it."""
    return SourceError(
        f"the log does not lead on from the kept rows of table `{table.id}`",
        f"{what}: a part of the log is missing, or the rows have changed without an entry in it",
        "take another base: tailrace archive PIPELINE.YAML --base; restore as of an earlier time, or from an "
        "earlier base",
        code="TR-8219",
    )
