"""Targets that somebody dropped: they are filled again, whatever the sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import RouteRule
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.base import Sink
from tailrace.sinks.route import Router
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks import CASES
from tests.support.sinks.case import SinkCase

#: One lake and a replica are enough for `make test`.
FAST = ["delta-upsert", "mysql"]
PARAMS = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.fixture(params=PARAMS)
def case(request: pytest.FixtureRequest) -> SinkCase:
    return CASES[request.param](request)


class _Run:
    """A pipeline from a MySQL table `t` into the target `shop.t`, run up to the log's end."""

    def __init__(self, spark: SparkSession, mysql: Any, database: str, path: Path) -> None:
        self._spark = spark
        self._pipeline = parse_pipeline(
            f"source: {{url: '{mysql.url}', user: {mysql.user}, password: {mysql.password},"
            f" tables: '{database}[.].*', snapshot-chunk-rows: 2}}\n"
            f"sink: {{type: console}}\nroute: [{{source-table: '{database}[.](.*)', sink-table: shop.$1}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{path / 'checkpoint'}'}}\n"
        )
        self.router = Router([RouteRule(f"{database}[.](.*)", "shop.$1")])

    def __call__(self, sink: Sink) -> None:
        read = lambda: read_cells(self._spark, self._pipeline)  # noqa: E731
        Supervisor(read, self._pipeline, sink, _Quiet(), threading.Event()).run()


@pytest.fixture
def run(spark: SparkSession, mysql: Any, database: str, tmp_path: Path) -> _Run:
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(20))",
        f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')",
    )
    return _Run(spark, mysql, database, tmp_path)


@pytest.fixture
def open_sink(case: SinkCase, run: _Run) -> Iterator[Callable[[], Sink]]:
    opened = []

    def open_() -> Sink:
        opened.append(case.open(run.router))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def held(case: SinkCase, name: str) -> dict[int, str]:
    """The rows by key: of a target that holds changes, what they lead to."""
    if case.rows is not None:
        return {row["id"]: row["name"] for row in case.rows(name)}
    assert case.changes is not None
    rows: dict[int, str] = {}
    for op, before, after in case.changes(name):
        if op == "d":
            assert before is not None
            rows.pop(before["id"], None)
        else:
            assert after is not None
            rows[after["id"]] = after["name"]
    return rows


def test_target_that_was_dropped_is_filled_again(
    case: SinkCase, run: _Run, open_sink: Callable[[], Sink], mysql: Any, database: str
) -> None:
    sink = open_sink()
    run(sink)
    wanted = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert held(case, "shop.t") == wanted

    # while the pipeline lives
    case.drop("shop.t")
    mysql.execute(
        f"UPDATE {database}.t SET name = 'x' WHERE id = 3", f"DELETE FROM {database}.t WHERE id = 1"
    )
    run(sink)
    wanted = {2: "b", 3: "x", 4: "d", 5: "e"}
    assert held(case, "shop.t") == wanted

    # while it is down
    sink.close()
    case.drop("shop.t")
    mysql.execute(f"INSERT INTO {database}.t VALUES (6, 'f')")
    run(open_sink())
    assert held(case, "shop.t") == wanted | {6: "f"}
