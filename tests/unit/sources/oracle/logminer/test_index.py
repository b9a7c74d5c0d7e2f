"""The index of the log: how far it is certain, and where batches end."""

from __future__ import annotations

from typing import Any

from tailrace.model.table import TableId
from tailrace.sources.oracle.logminer.index import LogIndex
from tailrace.sources.oracle.logminer.miner import COMMIT, DDL, INSERT, ROLLBACK, START, Head
from tailrace.sources.oracle.position import OraclePosition

T = TableId("S", "T")
AT = "2026-01-31 12:00:00"


def head(
    xid: str, operation: int, scn: int, *, last: int | None = None, table: Any = None, **more: Any
) -> Head:
    values = {"count": 1, "sql": "", "is_ours": True, **more}
    return Head(xid, operation, table, scn, last or scn, (f"{last or scn:08d}", 0), AT, **values)


def index(*heads: Head, since: int = 1, upto: int | None = None) -> LogIndex:
    found = LogIndex(since, lambda table: table == T, lambda _: 5_000_000)
    found.add(heads, upto)
    return found


def ranged(found: LogIndex, scn: int, **limits: Any) -> Any:
    given = {"upto": None, "max_rows": None, "max_bytes": None, "before_us": None, **limits}
    return found.range_after(OraclePosition(scn, scn + 1, "1/1"), is_signals=lambda _: False, **given)


def transaction(xid: str, first: int, last: int, rows: int = 1) -> list[Head]:
    return [
        head(xid, START, first),
        head(xid, INSERT, first, last=last - 1, table=T, count=rows),
        head(xid, COMMIT, last),
    ]


def test_the_last_scn_may_be_incomplete() -> None:
    found = index(*transaction("A", 5, 9))
    assert found.frontier == 8
    assert ranged(found, 1).end.scn == 8
    assert not ranged(found, 1).has_changes
    found.add([head("A", COMMIT, 9), head("B", START, 12)], None)
    assert found.frontier == 11
    assert ranged(found, 1).has_changes


def test_the_end_of_a_file_is_certain() -> None:
    assert index(*transaction("A", 5, 9), upto=20).frontier == 20


def test_a_position_names_where_its_oldest_open_transaction_begins() -> None:
    found = index(head("OPEN", START, 3), *transaction("A", 5, 9), *transaction("B", 8, 15), upto=20)
    assert ranged(found, 1, upto=9).end.since == 3
    found = index(*transaction("A", 5, 9), *transaction("B", 8, 15), upto=20)
    assert ranged(found, 1, upto=9).end.since == 8
    assert ranged(found, 1, upto=4).end.since == 5
    assert ranged(found, 1).end.since == 21
    gone = index(head("R", START, 3), head("R", ROLLBACK, 6), upto=20)
    assert ranged(gone, 1).end.since == 21


def test_a_batch_ends_where_its_limit_is_reached() -> None:
    found = index(
        *transaction("A", 5, 6, 3), *transaction("B", 7, 8, 3), *transaction("C", 9, 10, 3), upto=20
    )
    assert ranged(found, 1, max_rows=6).end.scn == 8
    assert ranged(found, 1, max_rows=1).end.scn == 6
    assert ranged(found, 1, max_rows=9).end.scn == 20
    assert ranged(found, 1, max_bytes=256 * 6).end.scn == 8
    assert ranged(found, 20) is None


def test_a_batch_ends_before_a_time() -> None:
    found = index(*transaction("A", 5, 9), upto=20)
    assert ranged(found, 1, before_us=4_999_999).end.scn == 8
    assert ranged(found, 8, before_us=4_999_999) is None


def test_a_batch_with_changes_before_a_schema_change_goes_up_to_it() -> None:
    ddl = head("", DDL, 12, table=T, sql="ALTER TABLE t ADD x NUMBER")
    found = index(*transaction("A", 5, 6, 3), *transaction("B", 7, 8, 3), ddl, upto=20)
    assert ranged(found, 1, max_rows=3).end.scn == 12
    assert ranged(found, 1, max_rows=3).rewritten == (T,)
    assert ranged(found, 12).rewritten == ()
    unknown = [head("A", INSERT, 5, table=TableId("UNKNOWN", "OBJ# 7")), head("A", COMMIT, 6)]
    after = index(*unknown, *transaction("B", 13, 14), ddl, upto=20)
    assert ranged(after, 1, max_rows=1).end.scn == 20
    assert ranged(after, 1, upto=6).end.scn == 6


def test_changes_of_a_transaction_whose_begin_is_in_an_earlier_run_are_its_own() -> None:
    found = index(head("0A0001000000000B", START, 3), upto=5)
    found.add([head("0A000100FFFFFFFF", INSERT, 7, table=T), head("0A0001000000000B", COMMIT, 8)], 20)
    assert ranged(found, 1).has_changes


def test_records_of_other_containers_count_for_the_frontier_alone() -> None:
    found = index(*transaction("A", 5, 9), head("A", COMMIT, 30, is_ours=False))
    assert (found.frontier, len(found.commits)) == (29, 1)
