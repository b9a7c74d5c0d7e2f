"""Whatever is killed, and wherever, documents have the rows nested in them that the tables have."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.recovery.test_kill import source_rows
from tests.support.kills import BACKLOG_S, KILLS, SMALL_CHUNKS, kill_at_random
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.opensearch import cluster
from tests.support.workload import Subject, Writers, fill

ORDERS = Subject("orders", "id INT PRIMARY KEY, v INT, pad VARCHAR(40)", ("id",), lambda i: (i,))
#: Two in three orders have lines; Writers move lines from order to order, by a change of the key.
LINES = Subject(
    "lines",
    "order_id INT, n INT, v INT, pad VARCHAR(40), PRIMARY KEY (n, order_id)",
    ("order_id", "n"),
    lambda i: (i % 1000 // 3 * 2, i),
)
OWN = (
    ("sink.nested", "self"),
    ("sink.task", "jvm"),
    ("sink.nested", "jvm"),
    ("sink.task", "self"),
    ("sink.table", "self"),
)


@pytest.fixture
def shop(request, mysql, database, tmp_path):
    """A pipeline that nests lines in orders, writers to both, and a check of all documents."""
    target = cluster(request)
    orders, lines = f"{database}.orders", f"{database}.lines"
    fill(mysql, orders, ORDERS, 500)
    fill(mysql, lines, LINES, 1500)
    sink = {
        "type": "opensearch",
        "url": target.url,
        "index-settings": {"number_of_replicas": "0", "number_of_shards": "2"},
        "routing": {lines: "order_id"},
        "nested": [{"parent": orders, "child": lines, "columns": {"order_id": "id"}, "field": "lines"}],
    }
    sizes = {**SMALL_CHUNKS, "snapshot-chunk-rows": 200, "max-bytes-per-trigger": "50k"}
    run = PipelineProcess(tmp_path, mysql, f"{database}.*", sink=sink, **sizes)

    @contextmanager
    def writing():
        with (
            Writers(mysql, orders, ORDERS, count=1, keys=1000, pause_s=0.05),
            Writers(mysql, lines, LINES, count=2, keys=3000, pause_s=0.05),
        ):
            yield

    def check():
        of_order = {}
        wanted = source_rows(mysql, lines)
        assert target.by_key(lines, ("order_id", "n")) == {(r["order_id"], r["n"]): r for r in wanted}
        for row in sorted(wanted, key=lambda r: r["n"]):
            of_order.setdefault(row["order_id"], []).append(row)
        documents = {r["id"]: {**r, "lines": of_order.get(r["id"], [])} for r in source_rows(mysql, orders)}
        assert sum(bool(d["lines"]) for d in documents.values()) > 50
        assert target.by_id(orders) == documents

    return run, writing, check


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nested_rows_are_exact_after_kills_at_every_failpoint(shop):
    run, writing, check = shop
    for failpoint, victim in (*KILLS, *OWN):
        with writing():
            run.run(failpoint=failpoint, victim=victim)
    assert run.run(timeout_s=BACKLOG_S) == 0, run.output()
    check()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nested_rows_are_exact_after_thirty_random_kills(shop):
    run, writing, check = shop
    kill_at_random(run, writing, 30)
    check()
