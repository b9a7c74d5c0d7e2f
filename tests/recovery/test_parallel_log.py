"""A backlog of the log read by several tasks."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.enumerator.enumerator import Limits
from tailrace.reader.hash_partition import in_share
from tailrace.reader.log import read_log
from tailrace.sources import registry
from tailrace.sources.mysql import session as session_module
from tailrace.sources.mysql import source as mysql_source
from tailrace.sources.mysql.binlog import follower as follower_module
from tests.support.engine import Engine, changes_of, options_for, whole_log
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS, Writers, fill

TASKS = 3


def read(options, split):
    session = registry.session(options)
    try:
        return changes_of(list(in_share(read_log(session.located(split), session), split.share)))
    finally:
        session.close()


def refuse(*_):
    raise AssertionError("the log was read from the server")


def backlog(engine, mysql, table, subject):
    """Write 300 kB of log, and step over it in one batch; return where that starts."""
    assert engine.next() is not None
    start = engine.offset
    assert engine.next() is None, "the log is followed from now on"
    source = registry.source(engine.options)
    with Writers(mysql, table, subject, count=3, keys=1000):
        wait_until(lambda: source.log_end().pos >= start.log["pos"] + 300_000, 60, "300 kB of log")
    end = source.log_end()
    wait_until(lambda: source.position(engine.plan.head().log).order >= end.order, 60, f"{end}")
    assert engine.next(Limits()) is not None
    return start


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
@pytest.mark.parametrize("partitioner", ["forward", "hash"])
def test_tasks_of_a_backlog_read_each_change_once(mysql, database, monkeypatch, subject, partitioner):
    monkeypatch.setattr(mysql_source, "INLINE_BYTES", 0)
    table = f"{database}.t"
    fill(mysql, table, subject, 500)
    options = options_for(
        mysql, table, startingPosition="latest", logParallelism=TASKS, partitioner=partitioner
    )
    with Engine(options) as engine:
        start = backlog(engine, mysql, table, subject)
        splits = engine.plan.splits(start, engine.offset)
        with monkeypatch.context() as without_server:
            without_server.setattr(session_module, "read_log", refuse)
            parts = [read(options, split) for split in splits]
        assert len(parts) == TASKS
        assert all(parts)
        everything = whole_log(options, start.log, engine.offset.log)
        assert Counter(map(repr, everything)) == Counter(repr(c) for part in parts for c in part)
        engine.plan.close()
        assert [read(options, split) for split in splits] == parts, "from the server, as the relay is gone"
        if partitioner == "forward":
            assert [c for part in parts for c in part] == everything
            return
        owners = {}
        for number, part in enumerate(parts):
            assert [seq for *_, seq in part] == sorted(seq for *_, seq in part), "the order of the log"
            for _, before, after, _ in part:
                key = tuple((after or before)[k] for k in subject.key)
                assert owners.setdefault(key, number) == number, "a key in two partitions"


def test_auto_divides_what_the_relay_has(mysql, database, monkeypatch):
    monkeypatch.setattr(mysql_source, "INLINE_BYTES", 0)
    monkeypatch.setattr(mysql_source, "SLICE_BYTES", 50_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(TASKS))
    subject = SUBJECTS[0]
    table = f"{database}.t"
    fill(mysql, table, subject, 500)
    options = options_for(mysql, table, startingPosition="latest", logParallelism="auto")
    with Engine(options) as engine:
        start = backlog(engine, mysql, table, subject)
        splits = engine.plan.splits(start, engine.offset)
        assert len(splits) == TASKS
        with monkeypatch.context() as without_server:
            without_server.setattr(session_module.MySqlSession, "_locate", refuse)
            without_server.setattr(session_module, "read_log", refuse)
            parts = [read(options, split) for split in splits]
        assert [c for part in parts for c in part] == whole_log(options, start.log, engine.offset.log)
    monkeypatch.setattr(follower_module, "RELAY_BYTES", 0)
    with Engine(options) as engine:
        engine.offset = start
        wait_until(lambda: engine.next(Limits()) is not None, 60, "a batch")
        (split,) = engine.plan.splits(start, engine.offset)
        assert split.relayed is None
