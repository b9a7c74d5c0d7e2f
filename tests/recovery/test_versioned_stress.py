"""Eight writers, schema changes, kills and a minute without the server: then targets equal the source."""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

import pytest

from tailrace.repetition import repeatedly
from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import BACKLOG_S, ROWS, SMALL_CHUNKS, TABLES
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.clickhouse import target_of as clickhouse_target
from tests.support.sinks.opensearch import cluster
from tests.support.workload import Writers

#: Number of kills, and how long the server is away, seconds.
KILLS, AWAY_S = 6, 60


class Rows:
    """Targets of ClickHouse that hold rows."""

    mode = "upsert"

    def __init__(self, request):
        self.target = clickhouse_target(request)
        self.server = self.target.server
        self.sink = {"type": "clickhouse", "url": self.target.settings.url, "mode": self.mode}

    def rows(self, table, key):
        return self.target.rows(table)


class Log(Rows):
    """Change logs of ClickHouse: their last changes."""

    mode = "changelog"

    def rows(self, table, key):
        state = {}
        for op, before, after in self.target.changes(table):
            row = after or before
            state.pop(tuple(row[name] for name in key), None)
            if op != "d":
                state[tuple(row[name] for name in key)] = row
        return list(state.values())


class Documents:
    """Documents of OpenSearch."""

    def __init__(self, request):
        self.target = cluster(request)
        self.server = request.getfixturevalue("opensearch")
        settings = {"number_of_replicas": "0"}
        self.sink = {"type": "opensearch", "url": self.target.url, "index-settings": settings}

    def rows(self, table, key):
        return self.target.typed_rows(table)


def altering(mysql, database, numbers):
    """One schema change of one table."""
    number = next(numbers)
    table = f"{database}.{TABLES[number % 2].name}"
    n = number // 2
    change = (
        f"ADD COLUMN n{n} INT DEFAULT 7",
        f"ADD COLUMN d{n} DECIMAL(10, 2) NULL",
        f"MODIFY pad VARCHAR({50 + n})",
        f"MODIFY d{n - 2} DECIMAL({8 + n % 3}, 4) NULL",
        f"DROP COLUMN n{n - 4}",
    )[n % 5]
    mysql.execute(f"ALTER TABLE {table} {change}")


@contextmanager
def away(server, seconds):
    """The server is killed, and comes back later."""
    ended = threading.Event()

    def work():
        ended.wait(10)
        server.kill()
        ended.wait(seconds)
        server.start()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def comparable(row, names):
    def value(v):
        if isinstance(v, timedelta):
            return v // timedelta(microseconds=1)
        return v.normalize() if isinstance(v, Decimal) else v

    return {name: value(row[name]) for name in names}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", [Rows, Log, Documents])
def test_targets_are_exact_after_writers_schema_changes_kills_and_a_minute_without_the_server(
    mysql, busy, request, tmp_path, kind
):
    subject = kind(request)
    sizes = {**SMALL_CHUNKS, "max-bytes-per-trigger": "200k"}
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=subject.sink, **sizes)
    numbers, draw = itertools.count(), random.Random(7)
    for kill in range(KILLS):
        first, second = (
            Writers(mysql, f"{busy}.{s.name}", s, count=4, keys=2 * ROWS, pause_s=0.1) for s in TABLES
        )
        with first, second, repeatedly(lambda: altering(mysql, busy, numbers), 3):
            if kill % 3:
                run.work_for(draw.uniform(0, 8))
            else:
                run.run_for(draw.uniform(5, 20))
    with away(subject.server, AWAY_S):
        assert run.run(timeout_s=BACKLOG_S) == 0, run.output()
    assert run.run(timeout_s=BACKLOG_S) == 0, run.output()
    for of_table in TABLES:
        wanted = source_rows(mysql, f"{busy}.{of_table.name}")
        names = list(wanted[0])
        found = subject.rows(f"{busy}.{of_table.name}", of_table.key)
        assert in_order([comparable(row, names) for row in found]) == in_order(
            [comparable(row, names) for row in wanted]
        )
