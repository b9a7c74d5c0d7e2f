"""The division of a batch into the parts of a change log: a stored form, which no version may change."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.sinks.clickhouse import division


def test_changes_go_to_the_buckets_that_they_have_always_gone_to() -> None:
    """A batch that one version has begun is completed by another one."""
    seqs = pa.array([f"{n:032x}" for n in range(20)])
    found = division.buckets_of(seqs, 5).tolist()
    assert found == [4, 1, 3, 2, 1, 4, 0, 0, 3, 1, 3, 0, 0, 4, 1, 1, 2, 0, 1, 0]
    assert division.buckets_of(seqs[7:12], 5).tolist() == found[7:12]
    assert division.buckets_of(seqs, 1).tolist() == [0] * 20
    assert [division.bucket_count(n) for n in (0, 1, 50_000, 50_001, 1_000_000)] == [1, 1, 1, 2, 20]


def test_parts_end_where_they_have_always_ended() -> None:
    big = 12 << 20
    sizes = pa.array([big, big, big, 1, 100 << 20, 1, 1])
    assert list(division.parts(sizes)) == [(0, 2), (2, 2), (4, 3)]
    assert list(division.parts(pa.array([5]))) == [(0, 1)]


def test_size_of_a_row_is_that_of_its_values_however_arrow_holds_them() -> None:
    rows = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int64()),
            "s": ["ab", None, "ü"],
            "l": pa.array([["a", None], None, []], pa.list_(pa.string())),
            "v": pa.array([[1.0], [], None], pa.list_(pa.float32())),
        }
    )
    (batch,) = rows.to_batches()
    assert division.sizes_of(batch).to_pylist() == [32 + 2 + 16 + 1 + 8, 32, 32 + 2]
    for start in range(3):
        assert (
            division.sizes_of(batch.slice(start)).to_pylist() == division.sizes_of(batch).to_pylist()[start:]
        )
    odd = rows.take(pa.array([2, 0])).combine_chunks().to_batches()[0]
    assert division.sizes_of(odd).to_pylist() == [34, 59]


@pytest.mark.parametrize("table", ["shop.t", "a:b.c:d"])
def test_name_of_a_part_tells_its_table_and_kind(table: str) -> None:
    name = division.part_name(table, "log", 3, 1)
    assert division.group_of(name) == f"{table}:log"
