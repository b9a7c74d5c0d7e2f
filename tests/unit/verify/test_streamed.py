"""Targets that are read in parts: all of these count, some at the same time, and an error ends the others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from tailrace.errors import TransientSourceError
from tailrace.verify.checksum import BUCKETS, Checksums
from tailrace.verify.portion import KeyRanges
from tailrace.verify.streamed import Rows, StreamedTarget

ALL = np.arange(BUCKETS)
READERS = 3


def batch(first: int, end: int) -> pa.RecordBatch:
    ids = pa.array(range(first, end), pa.int64())
    return pa.RecordBatch.from_arrays([ids, ids.cast(pa.string())], ["id", "v"])


class _Target(StreamedTarget):
    def __init__(self, *parts: Callable[[], Rows]) -> None:
        self.parts = parts

    @property
    def columns(self) -> pa.Schema:
        return batch(0, 0).schema

    @property
    def readers(self) -> int:
        return READERS

    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:
        return self.parts


@pytest.mark.parametrize("number", [0, 1, 7])
def test_parts_count_together(number: int) -> None:
    def part(n: int) -> Rows:
        return iter([batch(10 * n, 10 * n + 5), batch(10 * n + 5, 10 * n + 10)])

    target = _Target(*(partial(part, n) for n in range(number)))
    whole = Checksums.of([batch(0, 10 * number)], ["id"])
    found = target.checksums(["id", "v"], ["id"])
    assert found.rows == 10 * number
    assert not len(found.differing(whole))
    rows = target.rows(["id", "v"], ["id"], ALL)
    assert sorted(rows["id"].to_pylist()) == list(range(10 * number))
    only = KeyRanges("id", ((3, 12),))
    assert target.checksums(["id", "v"], ["id"], only).rows == len(range(3, min(13, 10 * number)))


def test_parts_are_read_at_the_same_time_by_so_many_readers() -> None:
    inside, most, lock = [0], [0], threading.Lock()
    together = threading.Barrier(READERS, timeout=20)

    def part() -> Rows:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        together.wait()
        yield batch(0, 1)
        with lock:
            inside[0] -= 1

    assert _Target(*[part] * (2 * READERS)).checksums(["id"], ["id"]).rows == 2 * READERS
    assert most == [READERS]


def test_error_of_a_part_ends_the_others() -> None:
    begun = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        for first in itertools.count():
            begun.set()
            yield batch(first, first + 1)

    def failing() -> Iterator[pa.RecordBatch]:
        assert begun.wait(20)
        raise TransientSourceError("the connection was lost", code="TR-3001")
        yield

    with pytest.raises(TransientSourceError, match="was lost"):
        _Target(endless, failing, endless, endless).checksums(["id"], ["id"])
