"""Iceberg: expired snapshots, and what is deleted with them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tailrace.config.sinks import IcebergSettings
from tailrace.sinks.iceberg import iceberg_sink
from tailrace.sinks.iceberg.maintenance import expire
from tailrace.transform.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table

SHAPE = table(("id", INT), ("name", TEXT), key=("id",))
DAY = 86_400


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def test_expired_snapshots_take_their_files_with_them(spark: SparkSession, tmp_path: Path) -> None:
    sink = iceberg_sink(IcebergSettings(str(tmp_path), expire_interval=DAY), Router([]))
    rows = changes(SHAPE, [("r", None, row(i, "a")) for i in range(3)])
    sink.write(cell_batch(spark, 0, [("snapshot", rows)]))
    for number, old, new in ((1, "a", "b"), (2, "b", "c")):
        update = changes(SHAPE, [("u", row(1, old), row(1, new))], first=100 * number)
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
