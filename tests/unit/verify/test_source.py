"""The source's rows as they are compared, without a server."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.snapshot import KeyRange
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.errors import SchemaMismatchError
from tailrace.model.change import origin_of_rows
from tailrace.model.split import SnapshotSplit
from tailrace.model.types import ColumnType, Kind
from tailrace.sources import registry
from tailrace.sources.base import Activity, Page
from tailrace.spark.checkpoint import PlannedBatch
from tailrace.verify.checksum import Checksums, Shards
from tailrace.verify.kept import KeptComparison, RangeRead
from tailrace.verify.progress import NO_PROGRESS, ReadProgress
from tailrace.verify.range_reader import (
    PAGE_ROWS,
    RangeReader,
    SourceRange,
    SourceTable,
    as_stored,
    keep_to,
)
from tailrace.verify.run import _columns_of
from tailrace.verify.source import RANGE_ROWS, READER_ROWS, Reader, Stopping, ranges
from tests.support.changes import BIGINT, INT, TEXT, table

TIME = ColumnType(Kind.TIME, "time", fraction=6)
SCHEMA = table(("id", INT), ("v", INT), ("at", TIME), key=("id",))


OPTIONS = {"url": "mysql://h", "user": "u", "tables": "s.t"}


@pytest.mark.parametrize(("has_accrued", "waits"), [(True, 2), (False, 3)])
def test_reader_goes_on_once_the_rate_allows_it(has_accrued: bool, waits: int) -> None:
    slept: list[float] = []
    options = parse_options({**OPTIONS, "snapshotMaxRowsPerSecond": "100"})
    seconds = itertools.count()
    pace = SnapshotPace(
        options,
        lambda: Activity(0),
        lambda: float(next(seconds)),
        sleep=slept.append,
        has_accrued=has_accrued,
    )
    keep_to(pace, pa.array([{"id": 1}] * 350))
    assert len(slept) == waits, "100 rows at the start or none, 100 each second"
    keep_to(pace, pa.array([], pa.struct([("id", pa.int32())])))
    assert len(slept) == waits
    keep_to(pace, pa.array([{"id": 1}]))
    assert len(slept) == waits


def test_readers_of_limited_comparison_share_its_limits() -> None:
    reader = RangeReader(parse_options({**OPTIONS, "snapshotMaxRowsPerSecond": "5"}), {})
    limits = parse_options(
        {
            **OPTIONS,
            "snapshotMaxRowsPerSecond": "1000",
            "snapshotMaxBytesPerSecond": "3",
            "snapshotMaxActiveSessions": "9",
            "snapshotWindows": "01:00-02:00",
        }
    )
    found = reader.within(limits, 4).options
    assert (found.snapshot_max_rows_per_second, found.snapshot_max_bytes_per_second) == (250, 1)
    assert (found.snapshot_max_active_sessions, found.snapshot_windows) == (9, ())
    assert reader.within(limits, 4).page_rows == 250
    assert reader.within(replace(limits, snapshot_max_rows_per_second=None), 1).page_rows == PAGE_ROWS


def test_reader_brings_the_values_of_secrets_to_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "geheim")
    reader = RangeReader(parse_options({**OPTIONS, "password": "${env:TEST_PASSWORD}"}), {"pos": 4})
    data = pickle.dumps(reader)
    monkeypatch.delenv("TEST_PASSWORD")
    found = pickle.loads(data)
    assert found.options.password.resolve() == "geheim"
    assert found.as_of == {"pos": 4}


def test_rows_of_a_table_with_a_shard_column_name_it_and_are_compared_with_its_own() -> None:
    shop = SourceTable(table(("id", INT), key=("id",)), 3, shard=("_shard", "shop.t"))
    assert shop.columns.names == ["id", "_shard"]
    assert shop.key == ("id", "_shard")
    rows = as_stored(pa.array([{"id": 1}, {"id": 2}]), shop.columns, shop.schema, shop.shard)
    assert rows.to_pylist() == [{"id": 1, "_shard": "shop.t"}, {"id": 2, "_shard": "shop.t"}]
    others = as_stored(pa.array([{"id": 1}]), shop.columns, shop.schema, ("_shard", "shop.u"))
    held = pa.Table.from_batches([rows, others]).combine_chunks().to_batches()[0]
    assert Shards("_shard", ("shop.t",)).of(held) == rows


def test_column_that_has_become_text_is_compared_by_its_text() -> None:
    row = {"id": 1, "v": 7, "at": timedelta(hours=1, microseconds=500_000)}
    rows = pa.array([row, {"id": 2, "v": None, "at": None}], pa.struct(list(SCHEMA.arrow)))
    held = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.string())])
    assert as_stored(rows, held, SCHEMA).to_pylist() == [
        {"id": 1, "v": "7", "at": "3600500000"},
        {"id": 2, "v": None, "at": None},
    ]
    assert as_stored(rows, held, SCHEMA, keeps_times=True).column("at").to_pylist() == ["01:00:00.5", None]


def test_columns_of_shards_are_those_of_all_of_them() -> None:
    shards = [
        table(("id", INT), ("v", INT), ("a", TEXT), key=("id",)),
        table(("ID", BIGINT), ("v", TEXT), ("b", INT), key=("ID",)),
    ]
    assert _columns_of([SourceTable(shard, 1) for shard in shards]) == pa.schema(
        [("id", pa.int64()), ("v", pa.string()), ("a", pa.string()), ("b", pa.int32())]
    )


class Pages:
    """A session whose table has ten rows, read in pages of three; the first two may come without a range."""

    keys_only = False

    def __init__(self, *, in_order: bool) -> None:
        self.in_order = in_order

    def located(self, split: SnapshotSplit) -> SnapshotSplit:
        return split

    def wait_visible(self, position: Any) -> None: ...

    def log_end(self, after: Any) -> Any:
        return SimpleNamespace(to_json=lambda: after)

    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        first = 0 if split.after is None else split.after[0] + 1
        for at in range(first, 10, 3):
            ids = list(range(at, min(at + 3, 10)))
            rows = pa.StructArray.from_arrays([pa.array(ids, pa.int32())] * 2, ["id", "v"])
            after, upto = (at - 1,), None if at + 3 >= 10 else (ids[-1],)
            yield Page(rows, after, upto) if self.in_order else Page(rows, (), ())
        if not self.in_order:
            yield Page(rows.slice(0, 0), split.after, split.upto)

    def within(self, table: Any, keys: pa.StructArray, after: Any, upto: Any) -> pa.BooleanArray:
        return pa.array([False] * len(keys), pa.bool_())

    def read_origin(self, position: Any, rows: int) -> pa.RecordBatch:
        return origin_of_rows(rows, seq="0", ts_us=0, file="", pos=0)

    def close(self) -> None: ...


@pytest.mark.parametrize(("in_order", "left"), [(True, 4), (False, 10)])
def test_reader_goes_on_behind_the_last_page_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_order: bool, left: int
) -> None:
    monkeypatch.setattr(registry, "session", lambda _: Pages(in_order=in_order))
    numbers = table(("id", INT), ("v", INT), key=("id",))
    source, batch = SourceTable(numbers, 10), PlannedBatch(1, {}, committed=True)
    columns = source.columns
    options = parse_options(OPTIONS)

    class Counted(ReadProgress):
        def __init__(self, most: int) -> None:
            self.most, self.rows = most, 0

        def read(self, table: str, rows: int) -> None:
            self.rows += rows
            if self.rows > self.most:
                raise InterruptedError

    def checksums(progress: Counted, *, is_new: bool) -> Checksums:
        kept = KeptComparison(str(tmp_path), batch, is_new=is_new, clock=lambda: next(clock))
        reader = Reader(RangeReader(options, {}), Stopping(), progress, kept=kept)
        (part,) = kept.ranges(str(numbers.id), columns, ["id"], lambda: [KeyRange(None, None)])
        return reader.checksums(source, part, columns, ["id"])

    clock = itertools.count(100.0, 100.0)
    with pytest.raises(InterruptedError):
        checksums(Counted(8), is_new=True)
    rest = Counted(10)
    found = checksums(rest, is_new=False)
    assert rest.rows == left
    whole = checksums(Counted(10), is_new=True)
    assert found.rows == whole.rows == 10
    assert not len(found.differing(whole))
    assert checksums(Counted(0), is_new=False).rows == 10  # nothing is left


class FailingTasks:
    """Tasks that fail from the second range on; how often they are asked, and cancelled."""

    def __init__(self) -> None:
        self.asked = self.cancelled = 0

    def checksums(self, reader: RangeReader, work: SourceRange) -> Checksums:
        self.asked += 1
        if self.asked > 1:
            raise SchemaMismatchError("column `v` cannot be compared", code="TR-8105")
        return Checksums.empty()

    def cancel(self) -> None:
        self.cancelled += 1


def test_range_that_fails_ends_the_reading_of_all_others() -> None:
    tasks: Any = FailingTasks()
    stopping = Stopping()
    reader = Reader(RangeReader(parse_options(OPTIONS), {}), stopping, NO_PROGRESS, tasks)
    source = SourceTable(SCHEMA, 10)
    parts = [RangeRead(KeyRange((i,), (i + 1,))) for i in range(5)]
    with ThreadPoolExecutor(1) as pool:
        found = [pool.submit(reader.checksums, source, part, source.columns, ["id"]) for part in parts]
    errors = [type(future.exception()) for future in found]
    assert errors == [type(None), SchemaMismatchError, *[CancelledError] * 3]
    assert stopping.error is found[1].exception()
    assert (tasks.asked, tasks.cancelled) == (2, 1)


class Boundaries:
    """A source whose table has consecutive numbers as keys; counts how often it is asked."""

    asked = 0

    def boundary(self, table: Any, after: Any, rows: int) -> Any:
        self.asked += 1
        return ((after or (0,))[0] + rows,)


@pytest.mark.parametrize(
    ("rows", "tasks", "paced", "found"),
    [
        (10, True, False, 1),
        (2 * READER_ROWS, True, False, 2),
        (10 * READER_ROWS, True, False, 4),
        (10 * RANGE_ROWS, True, False, 10),
        (10**9, True, False, 32),
        (10**9, False, False, 4),  # threads tell how far they are
        (10**9, True, True, 4),  # the log that each range reads again is long
    ],
)
def test_table_is_read_in_as_many_ranges_as_it_takes_to_know_how_far_it_is(
    rows: int, tasks: bool, paced: bool, found: int
) -> None:
    options = parse_options(OPTIONS)
    source: Any = Boundaries()
    some: Any = FailingTasks() if tasks else None
    reader = Reader(RangeReader(options, {}, is_paced=paced), Stopping(), NO_PROGRESS, some)
    planned = list(ranges(source, SourceTable(SCHEMA, rows), 4, reader.ranges_per_reader))
    assert len(planned) == found == source.asked + 1
    assert planned[0].after is planned[-1].upto is None
    assert all(one.upto == next_.after for one, next_ in itertools.pairwise(planned))
