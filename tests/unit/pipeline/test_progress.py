"""Progress worked out from Spark's reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.model.table import TableId
from tailrace.pipeline.progress import StreamView
from tailrace.sinks.base import Written
from tailrace.sources.base import Position
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.postgres.position import PostgresPosition

NOW_MS = 1_700_000_100_000


def log(pos: int, file: int = 3, ts_ms: int = NOW_MS - 1500) -> dict[str, Any]:
    return {"file": f"binlog.{file:06d}", "pos": pos, "gtids": "", "server": "", "epoch": 0, "ts_ms": ts_ms}


def report(
    end: dict[str, Any], head: dict[str, Any] | None = None, complete_us: int | None = None, **tables: Any
) -> dict[str, Any]:
    offset = {"v": 1, "mode": "initial", "log": end, "tables": {}, "done": {}, **tables}
    latest = None if head is None else {**offset, "log": head}
    if latest is not None and complete_us is not None:
        latest["complete_us"] = complete_us
    return {"batchId": 4, "sources": [{"endOffset": offset, "latestOffset": latest}]}


def view(
    progress: dict[str, Any], now_s: float = 10.0, position_type: type[Position] = MySqlPosition
) -> StreamView:
    seen = StreamView(position_type)
    seen.progress(progress, now_s, NOW_MS)
    return seen


def test_lag_is_the_distance_to_the_servers_end() -> None:
    seen = view(report(log(1000), log(5000)))
    assert (seen.lag_bytes, seen.lag_ms) == (4000, 1500)


def test_lag_across_log_files_is_counted_in_files() -> None:
    seen = view(report(log(1000), log(200, file=5)))
    assert (seen.lag_bytes, seen.lag_files) == (None, 2)


def test_lag_of_a_postgres_stream_is_the_distance_between_its_lsns() -> None:
    ends = [PostgresPosition(lsn, "7", NOW_MS - 1500).to_json() for lsn in (0x1_0000_0000, 0x1_0000_2000)]
    seen = view(report(*ends), position_type=PostgresPosition)
    assert (seen.lag_files, seen.lag_bytes, seen.lag_ms) == (0, 0x2000, 1500)


def test_head_older_than_the_newest_batch_is_no_lag() -> None:
    seen = view(report(log(5000), log(1000)))
    assert (seen.lag_bytes, seen.lag_files) == (0, 0)


def test_stream_is_complete_up_to_the_time_that_the_source_says() -> None:
    seen = view(report(log(1000), log(5000), complete_us=(NOW_MS - 3000) * 1000))
    assert seen.complete_ts_ms == seen.complete_of("shop.t") == NOW_MS - 3000


def test_stream_at_the_servers_end_as_last_seen_is_not_complete_up_to_now() -> None:
    seen = view(report(log(1000), log(1000)))
    assert (seen.lag_bytes, seen.lag_ms, seen.complete_ts_ms) == (0, 0, None)


def test_time_of_completeness_stays_where_a_report_has_none() -> None:
    seen = view(report(log(1000), log(1000), complete_us=NOW_MS * 1000))
    seen.progress(report(log(2000), log(2000)), 11.0, NOW_MS + 1000)
    assert seen.complete_ts_ms == NOW_MS


def test_table_is_not_complete_while_its_rows_are_read() -> None:
    seen = view(
        report(
            log(1),
            log(1),
            complete_us=NOW_MS * 1000,
            tables={"shop.t": {"c": [1], "n": 1, "e": 9}},
            done={"shop.u": 1, "shop.v": 1, "shop.w": 1},
            again={
                "shop.u": {"id": "a", "c": None, "n": 0, "e": 1, "done": False},
                "shop.v": {"id": "b", "c": [1], "n": 1, "e": 1, "done": True},
            },
        )
    )
    assert seen.unfinished == {"shop.t", "shop.u"}
    assert [seen.complete_of(f"shop.{t}") for t in "tuvw"] == [None, None, NOW_MS, NOW_MS]


def test_offsets_given_as_text_are_read_too() -> None:
    progress = report(log(1000), log(5000))
    source = progress["sources"][0]
    progress["sources"][0] = {name: json.dumps(value) for name, value in source.items()}
    assert view(progress).lag_bytes == 4000


@pytest.mark.parametrize("sources", [[], [{"endOffset": None}], [{"endOffset": {"v": 1}}]])
def test_report_before_the_first_batch_says_nothing(sources: list[Any]) -> None:
    assert view({"sources": sources}).complete_ts_ms is None


def test_snapshot_shows_share_rate_and_time_left() -> None:
    seen = view(report(log(1), tables={"shop.t": {"c": None, "n": 0, "e": 1000}}), now_s=0.0)
    seen.written(0, [Written(TableId("shop", "t"), "shop.t", 250, 0)], now_s=5.0)
    seen.progress(report(log(1), tables={"shop.t": {"c": [250], "n": 250, "e": 1000}}), 5.0, NOW_MS)
    table = seen.tables["shop.t"]
    assert (table.share, table.rate.per_second(5.0), table.eta_s(5.0)) == (0.25, 50.0, 15.0)
    assert not seen.snapshot_done


def test_estimate_that_was_too_low_is_not_shown_as_done() -> None:
    seen = view(report(log(1), tables={"shop.t": {"c": [9], "n": 5000, "e": 1000}}))
    assert seen.tables["shop.t"].share == 0.99
    assert seen.tables["shop.t"].eta_s(20.0) is None


def test_finished_tables_are_done_and_never_snapshotted_ones_are_not_shown() -> None:
    seen = view(report(log(1), done={"shop.t": 1000, "shop.log_only": None}))
    assert list(seen.tables) == ["shop.t"]
    assert seen.snapshot_done


def test_rate_forgets_what_is_long_ago() -> None:
    seen = StreamView(MySqlPosition)
    table = TableId("shop", "t")
    for second in range(100):
        seen.written(second, [Written(table, "shop.t", 0, 1000 if second < 50 else 10)], float(second))
    assert seen.changes.total == 50 * 1010
    assert seen.changes.per_second(99.0) == pytest.approx(10, rel=0.1)
