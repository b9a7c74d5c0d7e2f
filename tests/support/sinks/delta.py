"""Delta tables in the contract suite."""

from __future__ import annotations

from typing import Any

from tailrace.config.model import DeltaSettings, WriteMode
from tailrace.sinks.delta import DeltaSink
from tests.support.sinks.case import Change, Row, SinkCase, as_change


def upsert(request: Any) -> SinkCase:
    spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")

    def rows(name: str) -> list[Row]:
        return [r.asDict() for r in spark.read.format("delta").load(str(path / name)).collect()]

    return SinkCase(lambda router: DeltaSink(DeltaSettings(str(path)), router), rows=rows)


def changelog(request: Any) -> SinkCase:
    spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")
    settings = DeltaSettings(str(path), WriteMode.CHANGELOG)

    def changes(name: str) -> list[Change]:
        return changes_of(spark.read.format("delta").load(str(path / name)))

    return SinkCase(lambda router: DeltaSink(settings, router), changes=changes)


def changes_of(frame: Any) -> list[Change]:
    """The changes in a change log, by `_seq`."""
    found = []
    for line in frame.orderBy("_seq").collect():
        row = line.asDict(recursive=True)
        columns = {k: v for k, v in row.items() if k not in SYSTEM}
        found.append(as_change(row["_op"], columns, row["_before"]))
    return found


#: Columns of a change log beside the table's own.
SYSTEM = frozenset(
    {"_op", "_seq", "_ts_ms", "_txn", "_position", "_before", "_absent", "_absent_before", "tailrace_batch"}
)
