"""Whatever is killed, and wherever, Redis' streams have each change once, and those of a key in order."""

from __future__ import annotations

import pytest

from tailrace.config.message_sinks import RedisSettings
from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import (
    MESSAGE_KILLS,
    SMALL_CHUNKS,
    TABLES,
    added_up,
    brought_back,
    run_through,
    writing,
)
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.redis import entries


@pytest.fixture
def run(mysql, redis, busy, tmp_path):
    sink = {"type": "redis", "url": redis.url, "topic-prefix": busy, "parallelism": 2}
    return PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS)


def check(mysql, redis, busy):
    settings = RedisSettings(url=redis.url, topic_prefix=busy)
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = entries(settings, f"{busy}.{table}")
        held = added_up((e["key"].decode(), e["seq"].decode(), e["op"].decode(), e["value"]) for e in found)
        assert in_order(held) == in_order(source_rows(mysql, table))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_streams_are_exact_after_kills_at_every_failpoint(mysql, redis, busy, run):
    run_through(mysql, busy, run, MESSAGE_KILLS)
    check(mysql, redis, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_streams_are_exact_after_kills_of_the_server(mysql, redis, busy, run):
    for failpoint in ("sink.produced", "sink.task"):
        with writing(mysql, busy), brought_back(redis):
            run.run(failpoint=failpoint, victim=str(redis.state.pid))
    assert run.run() == 0, run.output()
    check(mysql, redis, busy)
