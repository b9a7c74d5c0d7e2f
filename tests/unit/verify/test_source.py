"""The source's rows as they are compared, without a server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.snapshot import KeyRange
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.model.change import origin_of_rows
from tailrace.model.split import SnapshotSplit
from tailrace.model.types import ColumnType, Kind
from tailrace.sources import registry
from tailrace.sources.base import Activity, Page
from tailrace.spark.checkpoint import PlannedBatch
from tailrace.verify.checksum import Checksums, Shards
from tailrace.verify.kept import KeptComparison
from tailrace.verify.progress import NO_PROGRESS, ReadProgress
from tailrace.verify.run import _columns_of
from tailrace.verify.source import Reader, SourceTable, as_stored
from tests.support.changes import BIGINT, INT, TEXT, table

TIME = ColumnType(Kind.TIME, "time", fraction=6)
SCHEMA = table(("id", INT), ("v", INT), ("at", TIME), key=("id",))


class Never(threading.Event):
    """An event that nobody sets, for which nothing waits."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return False


def test_reader_goes_on_once_the_rate_allows_it() -> None:
    options = parse_options(
        {"url": "mysql://h", "user": "u", "tables": "s.t", "snapshotMaxRowsPerSecond": "100"}
    )
    seconds = itertools.count()
    pace = SnapshotPace(options, lambda: Activity(0), lambda: float(next(seconds)))
    stopping = Never()
    reader = Reader(options, {}, stopping, NO_PROGRESS, pace)
    reader._hold(pa.array([{"id": 1}] * 350))
    assert stopping.waits == 2, "100 rows at the start, 100 each second"
    reader._hold(pa.array([], pa.struct([("id", pa.int32())])))
    assert stopping.waits == 2
    reader._hold(pa.array([{"id": 1}]))
    assert stopping.waits == 2


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
    options = parse_options({"url": "mysql://h", "user": "u", "tables": "s.t"})

    class Counted(ReadProgress):
        def __init__(self, most: int) -> None:
            self.most, self.rows = most, 0

        def read(self, table: str, rows: int) -> None:
            self.rows += rows
            if self.rows > self.most:
                raise InterruptedError

    def checksums(progress: Counted, *, is_new: bool) -> Checksums:
        kept = KeptComparison(str(tmp_path), batch, is_new=is_new, clock=lambda: next(clock))
        reader = Reader(options, {}, threading.Event(), progress, kept=kept)
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
