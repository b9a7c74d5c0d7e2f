"""Iceberg: small files joined; expired snapshots, and what is deleted with them."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from tailrace.config.sinks import IcebergSettings, WriteMode
from tailrace.sinks.iceberg.compaction import compact
from tailrace.sinks.iceberg.maintenance import expire
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.sinks.iceberg import table_rows

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
DAY = 86_400


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


WIDER = table(("id", INT), ("name", TEXT), ("note", TEXT), key=("id",))


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.CHANGELOG])
def test_small_files_are_joined_and_no_row_is_changed(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    sink = IcebergSink(IcebergSettings(str(tmp_path), mode), Router([]))
    for number in range(7):
        schema = SCHEMA if number < 4 else WIDER
        more = {} if schema is SCHEMA else {"note": f"n{number}"}
        images = [row(100 * number + i, "a") | more for i in range(20)]
        log = [("c", None, image) for image in images]
        log.append(("u", images[0], images[0] | {"name": "b"}))
        sink.write(cell_batch(spark, number, [("log", changes(schema, log, first=100 * number))]))
    sink.close()
    with closing(load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/_tailrace/iceberg.db")) as c:
        held = c.load_table(("shop", "t"))
        before, now = rows_of(held), time.time()
        assert len(list(held.scan().plan_files())) == 7

        def joined(after_s: float) -> int:
            return compact(spark, c.load_table(("shop", "t")), DAY, now + after_s, nullcontext())

        assert [joined(s) for s in (DAY / 2, DAY + 60, DAY + 120, 3 * DAY)] == [0, 7, 0, 0]
        held = c.load_table(("shop", "t"))
        assert len(list(held.scan().plan_files())) == 1
        assert rows_of(held) == before
        newest, older = list(reversed(held.snapshots()))[:2]
        assert newest.summary.operation is Operation.REPLACE, "streaming readers would stop at an overwrite"
        assert {k: newest.summary[k] for k in OURS} == {k: older.summary[k] for k in OURS}
    sink = IcebergSink(IcebergSettings(str(tmp_path), mode), Router([]))
    again = changes(WIDER, [("d", row(0, "b") | {"note": None}, None)], first=10_000)
    for _ in range(2):
        sink.write(cell_batch(spark, 7, [("log", again)]))
    sink.close()
    ids = sorted(r["id"] for r in table_rows(tmp_path, "shop.t").to_pylist())
    assert ids.count(0) == (0 if mode is WriteMode.UPSERT else 3)
    assert len(set(ids)) == 139 + (mode is WriteMode.CHANGELOG)


OURS = ("tailrace.stream", "tailrace.batch", "tailrace.end")


def rows_of(held: Table) -> list[dict[str, Any]]:
    return sorted(held.scan().to_arrow().to_pylist(), key=str)


def test_sink_joins_files_when_it_is_due(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(IcebergSettings(str(tmp_path), WriteMode.CHANGELOG, optimize_interval=1), Router([]))
    for number in range(6):
        log = changes(SCHEMA, [("c", None, row(number, "a"))], first=number)
        time.sleep(1.0 if number == 5 else 0)
        sink.write(cell_batch(spark, number, [("log", log)]))
    sink.close()
    with closing(load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/_tailrace/iceberg.db")) as c:
        assert len(list(c.load_table(("shop", "t")).scan().plan_files())) < 6
    assert sorted(r["id"] for r in table_rows(tmp_path, "shop.t").to_pylist()) == list(range(6))


def test_expired_snapshots_take_their_files_with_them(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(IcebergSettings(str(tmp_path), expire_interval=DAY), Router([]))
    rows = changes(SCHEMA, [("r", None, row(i, "a")) for i in range(3)])
    sink.write(cell_batch(spark, 0, [("snapshot", rows)]))
    for number, old, new in ((1, "a", "b"), (2, "b", "c")):
        update = changes(SCHEMA, [("u", row(1, old), row(1, new))], first=100 * number)
        sink.write(cell_batch(spark, number, [("log", update)]))
    sink.close()
    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/_tailrace/iceberg.db")
    held = catalog.load_table(("shop", "t"))
    assert len(held.snapshots()) == 3, "the sink expires what is due only"
    named = held.snapshots()[0].snapshot_id
    held.manage_snapshots().create_tag(named, "first").commit()

    def expired(after_s: float) -> bool:
        fresh = catalog.load_table(("shop", "t"))
        return expire(fresh, DAY, 48, time.time() + after_s)

    assert [expired(s) for s in (DAY / 2, DAY + 60, 2 * DAY, 4 * DAY, 4 * DAY + 60)] == [
        False,  # not due
        False,  # due, but nothing is old
        False,  # not due again
        True,
        False,
    ]
    held = catalog.load_table(("shop", "t"))
    assert {s.snapshot_id for s in held.snapshots()} == {named, held.metadata.current_snapshot_id}
    now, first = (held.scan(snapshot_id=s) for s in (None, named))
    assert sorted(r["name"] for r in now.to_arrow().to_pylist()) == ["a", "a", "c"]
    assert sorted(r["name"] for r in first.to_arrow().to_pylist()) == ["a", "a", "a"]
    files = {Path(task.file.file_path).name for scan in (now, first) for task in scan.plan_files()}
    assert {path.name for path in (tmp_path / "shop" / "t" / "data").iterdir()} == files
    catalog.close()
