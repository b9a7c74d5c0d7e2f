"""How splits are shared among tasks."""

from __future__ import annotations

from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.spark.partition import partitions_of
from tests.support.changes import INT, table


def split(number: int, after: int | None = None, upto: int | None = None) -> SnapshotSplit:
    schema = table(("id", INT), key=("id",), name=f"shop.t{number}")
    ends = [None if end is None else (end,) for end in (after, upto)]
    return SnapshotSplit(schema, *ends, as_of={}, page_rows=10)


def test_tables_that_a_split_reads_as_a_whole_share_tasks() -> None:
    small = [split(number) for number in range(10)]
    large = [split(10, None, 5), split(10, 5, None)]
    log = LogSplit(start={}, end={}, cursors={}, finished=None)
    found = [partition.splits for partition in partitions_of([log, *small, *large], 4)]
    assert found[:3] == [(log,), (large[0],), (large[1],)]
    assert sorted(map(len, found[3:])) == [2, 2, 3, 3]
    assert {s.table.id for group in found[3:] for s in group} == {s.table.id for s in small}


def test_few_tables_have_a_task_each() -> None:
    assert [len(partition.splits) for partition in partitions_of([split(0), split(1)], 4)] == [1, 1]
