"""Whatever is killed, and wherever, the tables of ClickHouse equal those of the source afterwards."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import KILLS, SMALL_CHUNKS, TABLES, run_through, run_with_random_kills
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.clickhouse import target_of


def held(row):
    """A row of the source as ClickHouse has it: TIME as a number."""
    us = timedelta(microseconds=1)
    return {name: v // us if isinstance(v, timedelta) else v for name, v in row.items()}


@pytest.fixture
def killed(request, mysql, busy, tmp_path):
    """A pipeline over the busy tables, and a check that the target's tables equal them."""
    target = target_of(request)
    sink = {"type": "clickhouse", "url": target.settings.url}
    run = PipelineProcess(
        tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_CHUNKS, **{"max-bytes-per-trigger": "100k"}
    )

    def check():
        for subject in TABLES:
            table = f"{busy}.{subject.name}"
            found, wanted = target.rows(table), [held(row) for row in source_rows(mysql, table)]
            assert len(found) == len(wanted)
            assert in_order(found) == in_order(wanted)

    return run, check


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_tables_are_exact_after_kills_at_every_failpoint(mysql, busy, killed):
    run, check = killed
    own = (("sink.task", "jvm"), ("sink.task", "self"), ("sink.table", "self"))
    run_through(mysql, busy, run, (*KILLS, *own))
    check()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tables_are_exact_after_fifty_random_kills(mysql, busy, killed):
    run, check = killed
    run_with_random_kills(mysql, busy, run, 50)
    check()


@pytest.fixture
def killed_log(request, mysql, busy, tmp_path):
    """As `killed`, with change logs: each change once, and what they add up to equals the source's tables."""
    target = target_of(request)
    sink = {"type": "clickhouse", "url": target.settings.url, "mode": "changelog"}
    run = PipelineProcess(
        tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_CHUNKS, **{"max-bytes-per-trigger": "100k"}
    )

    def check():
        for subject in TABLES:
            table = f"{busy}.{subject.name}"
            state = {}
            for op, before, after in target.changes(table):
                key = tuple((after or before)[name] for name in subject.key)
                if op in ("r", "c"):
                    assert key not in state, f"{op} of a key that is there"
                else:
                    assert state.pop(key) == before
                if op != "d":
                    state[key] = after
            wanted = [held(row) for row in source_rows(mysql, table)]
            assert in_order(state.values()) == in_order(wanted)

    return run, check


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_change_logs_have_each_change_once_after_kills_at_every_failpoint(mysql, busy, killed_log):
    run, check = killed_log
    own = (("sink.task", "jvm"), ("sink.task", "self"), ("sink.table", "self"))
    run_through(mysql, busy, run, (*KILLS, *own))
    check()
