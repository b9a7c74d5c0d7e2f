"""What a snapshot will take, by what was measured."""

from __future__ import annotations

import pytest

from tailrace.model.table import TableId
from tailrace.pipeline.estimate import Estimate, TableEstimate, lines
from tailrace.sources.base import LogRetention

LARGE = TableEstimate(TableId("shop", "orders"), 3_000_000, 100.0)
SMALL = TableEstimate(TableId("shop", "users"), 1_000_000, None)


def retention(left_s: float | None) -> LogRetention:
    return LogRetention(0, None, left_s, 0, {"binlog_expire_logs_seconds": "100"})


def test_table_that_was_not_measured_has_rows_of_the_mean_size() -> None:
    assert Estimate([LARGE, SMALL], 1e5, 4, None, None).bytes == 400_000_000


def test_time_is_between_that_of_all_connections_and_of_one() -> None:
    found = Estimate([LARGE, SMALL], 1e5, 4, 2e6, None)
    assert found.seconds == (10.0, 40.0)
    assert found.log_bytes == 80_000_000


@pytest.mark.parametrize(("left_s", "loses"), [(39.0, True), (41.0, False), (None, False)])
def test_log_that_is_removed_too_early_is_warned_of(left_s: float | None, loses: bool) -> None:
    found = Estimate([LARGE, SMALL], 1e5, 4, 2e6, retention(left_s))
    assert found.loses_log is loses
    assert any("warning" in line for line in lines(found)) is loses


def test_estimate_is_said_in_words() -> None:
    assert list(lines(Estimate([LARGE, SMALL], 1e5, 4, 2e6, retention(864_000)))) == [
        "2 tables, about 4 M rows, 381 MiB in memory",
        "  shop.orders: about 3 M rows, 286 MiB",
        "  shop.users: about 1 M rows, size not known",
        "reading takes 10 s to 40 s: one connection reads 100 k rows/s, up to 4 read; the sink may be slower",
        "the log grows by 1.91 MiB/s: up to 76.3 MiB while rows are read",
        "the server keeps its log for 10 d (binlog_expire_logs_seconds = 100)",
    ]


def test_empty_tables_take_no_time() -> None:
    found = Estimate([TableEstimate(TableId("shop", "t"), 0, None)], None, 4, None, None)
    assert list(lines(found))[-1] == "no rows to read"
    assert found.to_json()["seconds"] is None
