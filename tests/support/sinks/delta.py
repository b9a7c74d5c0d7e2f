"""Delta tables in the contract suite."""

from __future__ import annotations

from shutil import rmtree
from typing import Any

from tailrace.config.sinks import DeltaSettings, ReaderFeatures, WriteMode
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.verify.target import target_after
from tests.support.sinks.case import Change, Row, SinkCase, as_change


def upsert(request: Any) -> SinkCase:
    return _rows_case(request, WriteMode.UPSERT, merge_interval=0)


def upsert_with_changes_that_wait(request: Any) -> SinkCase:
    return _rows_case(request, WriteMode.UPSERT, merge_interval=3600)


def upsert_in_place(request: Any) -> SinkCase:
    """Columns are altered in place."""
    return _rows_case(request, WriteMode.UPSERT, merge_interval=0, features=ReaderFeatures.LATEST)


def scd2(request: Any) -> SinkCase:
    return _rows_case(request, WriteMode.SCD2, merge_interval=0)


def _rows_case(
    request: Any,
    mode: WriteMode,
    merge_interval: int,
    features: ReaderFeatures = ReaderFeatures.COMPATIBLE,
) -> SinkCase:
    spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")
    settings = DeltaSettings(str(path), mode, merge_interval=merge_interval, reader_features=features)

    def rows(name: str) -> list[Row]:
        target = target_after(spark, str(path), name, mode=mode, key=("id",), batch=1_000_000)
        assert target is not None
        return [r.asDict() for r in target.frame.collect()]

    takes_parts = mode is WriteMode.UPSERT
    return SinkCase(
        lambda router: DeltaSink(settings, router),
        lambda name: rmtree(path / name),
        rows=rows,
        takes_parts=takes_parts,
    )


def changelog(request: Any) -> SinkCase:
    spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")
    settings = DeltaSettings(str(path), WriteMode.CHANGELOG)

    def changes(name: str) -> list[Change]:
        return changes_of(spark.read.format("delta").load(str(path / name)))

    return SinkCase(
        lambda router: DeltaSink(settings, router),
        lambda name: rmtree(path / name),
        changes=changes,
        compares=True,
    )


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
