"""The source's rows as they are compared, without a server."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta

import pyarrow as pa

from tailrace.config.options import parse_options
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.model.types import ColumnType, Kind
from tailrace.sources.base import Activity
from tailrace.verify.checksum import Shards
from tailrace.verify.progress import NO_PROGRESS
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
