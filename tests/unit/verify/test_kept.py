"""What is kept of a comparison, for one that goes on after an interruption."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.enumerator.snapshot import KeyRange
from tailrace.errors import StateError
from tailrace.model.split import Key
from tailrace.spark.checkpoint import PlannedBatch
from tailrace.verify.kept import KeptComparison, RangeRead

BATCH = PlannedBatch(7, {"log": {"pos": 1}}, committed=True)
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
PLAN = [KeyRange(None, (5, {"b": "00"})), KeyRange((5, {"b": "00"}), None)]


def begun(path: Path, now: list[float], *, is_new: bool) -> tuple[KeptComparison, list[RangeRead]]:
    kept = KeptComparison(str(path), BATCH, is_new=is_new, clock=lambda: now[0])
    return kept, kept.ranges("s.t", COLUMNS, ["id"], lambda: PLAN)


def add(part: RangeRead, *ids: int) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(["x"] * len(ids))], schema=COLUMNS)
    part.sums.add(rows, ["id"])


def test_ranges_go_on_with_the_checksums_of_what_was_read(tmp_path: Path) -> None:
    now = [100.0]
    kept, (first, second) = begun(tmp_path, now, is_new=True)
    assert [part.rest for part in (first, second)] == PLAN
    add(first, 1, 2)
    upto: Key = (2, {"b": "ff"})
    kept.read("s.t", first, upto)
    add(second, 6)  # of a page that is not read to its end
    add(first, 3)
    now[0] += 60
    kept.read("s.t", second, (6, {"b": "00"}))
    add(second, 7)
    assert KeptComparison.batch(str(tmp_path)) == BATCH
    _, (one, two) = begun(tmp_path, now, is_new=False)
    assert (one.sums.rows, one.rest, one.done) == (2, KeyRange(upto, PLAN[0].upto), False)
    assert (two.sums.rows, two.rest, two.done) == (1, KeyRange((6, {"b": "00"}), None), False)


def test_a_table_is_noted_every_few_seconds_and_when_all_is_read(tmp_path: Path) -> None:
    now = [100.0]
    kept, (first, second) = begun(tmp_path, now, is_new=True)
    kept.read("s.t", first, (1, {"b": "00"}))
    now[0] += 1
    kept.read("s.t", first, None)
    _, found = begun(tmp_path, now, is_new=False)
    assert [part.done for part in found] == [False, False]
    kept.read("s.t", second, None)
    _, found = begun(tmp_path, now, is_new=False)
    assert [part.done for part in found] == [True, True]


def test_a_table_with_other_columns_is_read_anew(tmp_path: Path) -> None:
    kept, (first, _) = begun(tmp_path, [0.0], is_new=True)
    kept.read("s.t", first, None)
    again = KeptComparison(str(tmp_path), BATCH, is_new=False)
    other = COLUMNS.append(pa.field("w", pa.int8()))
    assert not any(part.done for part in again.ranges("s.t", other, ["id"], lambda: PLAN))


def test_nothing_is_kept_of_a_comparison_that_has_ended_or_is_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no comparison to go on with"):
        KeptComparison.batch(str(tmp_path))
    kept, (first, _) = begun(tmp_path, [0.0], is_new=True)
    kept.read("s.t", first, None)
    _, found = begun(tmp_path, [0.0], is_new=True)
    assert not any(part.done for part in found)
    kept.forget()
    with pytest.raises(StateError, match="no comparison to go on with"):
        KeptComparison.batch(str(tmp_path))
