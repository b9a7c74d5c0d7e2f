"""Checksums: every canonical type, any order and portions, every difference seen."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SchemaMismatchError
from tailrace.kernels.rowhash import hash_rows
from tailrace.verify.checksum import BUCKETS, Checksums, bucket_of

#: Every Arrow type a stored column may have, with distinct values.
VALUES = {
    pa.int8(): [0, 1, -1, 127, -128],
    pa.int16(): [0, 1, -1, 32767],
    pa.int32(): [0, 1, -1, 1 << 30],
    pa.int64(): [0, 1, -1, 1 << 62],
    pa.float32(): [0.0, -0.0, 1.5, float("inf")],
    pa.float64(): [0.0, -0.0, 1.5, 1e300],
    pa.decimal128(20, 0): [Decimal(0), Decimal(1), Decimal(-1), Decimal(2**64 - 1)],
    pa.decimal128(38, 10): [Decimal(0), Decimal("0.0000000001"), Decimal("-1.5")],
    pa.bool_(): [False, True],
    pa.string(): ["", "a", "A", "é", "abcdefgh", "abcdefghi", "abcdefgh\0", "x" * 1000],
    pa.large_string(): ["", "a", "abcdefghi"],
    pa.binary(): [b"", b"\0", b"\0\0", b"abcdefgh", b"\xff" * 9],
    pa.large_binary(): [b"", b"\0"],
    pa.list_(pa.float32()): [[], [0.0], [-0.0], [0.0, 0.0], [1.5, 2.5, 3.5]],
    pa.date32(): [dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    pa.timestamp("us"): [0, 1, 1_700_000_000_000_001],
    pa.duration("us"): [0, 1, -1],
    pa.timestamp("us", "UTC"): [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    ],
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_distinct_values_and_null_have_distinct_hashes(type_: pa.DataType) -> None:
    values = [*VALUES[type_], None]
    hashes = hash_rows([pa.array(values, type_)], len(values))
    assert len(set(hashes.tolist())) == len(values)


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_hash_does_not_depend_on_where_an_array_begins(type_: pa.DataType) -> None:
    values = [None, *VALUES[type_]] * 7
    array = pa.array(values, type_)
    whole = hash_rows([array], len(array))
    for start in (1, 3, 8, 9):
        part = array.slice(start)
        assert np.array_equal(hash_rows([part], len(part)), whole[start:])
        copied = pa.array(values[start:], type_)
        assert np.array_equal(hash_rows([copied], len(copied)), whole[start:])


def test_value_under_a_null_does_not_count() -> None:
    validity = pa.py_buffer(b"\x02")
    left = pa.Array.from_buffers(pa.int32(), 2, [validity, pa.py_buffer(np.array([7, 1], np.int32))])
    right = pa.Array.from_buffers(pa.int32(), 2, [validity, pa.py_buffer(np.array([9, 1], np.int32))])
    assert np.array_equal(hash_rows([left], 2), hash_rows([right], 2))


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), unique=True, max_size=30))
def test_neighbouring_texts_do_not_lend_each_other_bytes(rows: list[tuple[str, str]]) -> None:
    left, right = [a for a, _ in rows], [b for _, b in rows]
    hashes = hash_rows([pa.array(left, pa.string()), pa.array(right, pa.string())], len(rows))
    assert len(set(hashes.tolist())) == len(rows)


def test_checksums_do_not_depend_on_order_or_portions() -> None:
    rows = _rows(5000)
    shuffled = list(range(5000))
    random.Random(1).shuffle(shuffled)
    one, many = Checksums.empty(), Checksums.empty()
    one.add(rows, ["id"])
    other = rows.take(pa.array(shuffled))
    for start in range(0, 5000, 617):
        portion = Checksums.empty()
        portion.add(other.slice(start, 617), ["id"])
        many.merge(Checksums.from_bytes(portion.to_bytes()))
    assert one.rows == 5000
    assert len(one.differing(many)) == 0


@pytest.mark.parametrize("change", ["value", "missing", "twice", "swapped"])
def test_differing_rows_are_in_the_differing_buckets(change: str) -> None:
    rows = _rows(5000)
    listed = rows.to_pylist()
    if change == "value":
        listed[17]["text"] = "other"
    elif change == "missing":
        del listed[17]
    elif change == "twice":
        listed.append(listed[17])
    else:
        listed[17]["text"], listed[18]["text"] = listed[18]["text"], listed[17]["text"]
    source, target = Checksums.empty(), Checksums.empty()
    source.add(rows, ["id"])
    target.add(pa.RecordBatch.from_pylist(listed, rows.schema), ["id"])
    expected = {17, 18} if change == "swapped" else {17}
    assert set(source.differing(target)) == {int(bucket_of(rows, ["id"])[i]) for i in expected}


def test_rows_spread_over_all_buckets() -> None:
    buckets = np.bincount(bucket_of(_rows(BUCKETS * 20), ["id"]), minlength=BUCKETS)
    assert buckets.min() > 0
    assert buckets.max() < 60


def test_column_of_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatchError):
        hash_rows([pa.array([{"a": 1}])], 1)


def _rows(n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(range(n), pa.int64()), pa.array([f"text {i}" for i in range(n)])], ["id", "text"]
    )


def test_lists_of_anything_are_hashed_by_their_values_wherever_they_stand() -> None:
    for type_, lists in (
        (pa.list_(pa.int32()), [[1, None, 3], [], None, [1, None, 3], [4]]),
        (pa.list_(pa.string()), [["a", "b"], [""], None, ["a", "b"], ["ab"]]),
        (pa.list_(pa.bool_()), [[True, None], [], None, [True, None], [False]]),
    ):
        column = pa.array(lists, type_)
        whole = hash_rows([column], len(column)).tolist()
        assert whole[0] == whole[3]
        assert len(set(whole)) == 4
        assert hash_rows([column.slice(3)], 2).tolist() == whole[3:]
        assert hash_rows([pa.array(lists[4:], type_)], 1).tolist() == whole[4:]
