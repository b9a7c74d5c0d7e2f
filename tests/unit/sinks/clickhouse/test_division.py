"""The division of a batch into the parts of a change log: a stored form, which no version may change."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.sinks.clickhouse import division


def test_changes_go_to_the_buckets_that_they_have_always_gone_to() -> None:
    """A batch that one version has begun is completed by another one."""
    seqs = pa.array([f"{n // 4:032x}" for n in range(20)])  # four rows of a snapshot each
    rows = pa.RecordBatch.from_pydict({"id": pa.array(range(20), pa.int32()), "s": ["x", None] * 10})
    hashes = division.hashes_of(seqs, rows)
    found = division.buckets_of(hashes, 5).tolist()
    assert found == [0, 0, 1, 0, 3, 4, 4, 1, 1, 4, 4, 4, 4, 4, 1, 4, 1, 4, 2, 3]
    assert division.hashes_of(seqs[7:12], rows[7:12]).equals(hashes[7:12])
    assert division.buckets_of(hashes, 1).tolist() == [0] * 20
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
    (image,) = rows.to_struct_array().chunks

    def sizes(*images: pa.StructArray) -> list[int]:
        return division.sizes_of(4, images, len(images[0])).to_pylist()

    found = sizes(image)
    assert found == [64 + 2 + 16 + 1 + 8, 64, 64 + 2]
    for start in range(3):
        assert sizes(image[start:]) == found[start:]
    assert sizes(image.take(pa.array([2, 0]))) == [found[2], found[0]]
    # an image that no row of a cell has is there, or not
    assert sizes(image, pa.nulls(3, image.type)) == found
    assert sizes(image, image) == [2 * n - 64 for n in found]


@pytest.mark.parametrize("table", ["shop.t", "a:b.c:d"])
def test_name_of_a_part_tells_its_table_and_kind(table: str) -> None:
    name = division.part_name(table, "log", 3, 1)
    assert division.group_of(name) == f"{table}:log"
