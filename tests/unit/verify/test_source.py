"""The source's rows as they are compared, without a server."""

from __future__ import annotations

import itertools
import threading

import pyarrow as pa

from tailrace.config.options import parse_options
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.sources.base import Activity
from tailrace.verify.checksum import Shards
from tailrace.verify.source import Reader, SourceTable, as_stored
from tests.support.changes import INT, table


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
    reader = Reader(options, {}, stopping, lambda _: None, pace)
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
