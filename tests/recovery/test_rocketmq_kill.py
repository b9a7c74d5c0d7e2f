"""Whatever is killed, and wherever, RocketMQ's queues have each change, and the changes of a key in order."""

from __future__ import annotations

import threading

import pytest

from tailrace.config.message_sinks import RocketMqSettings
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
from tests.support.pipelines import FIRST_REPORT_S, PipelineProcess
from tests.support.sinks.rocketmq import messages
from tests.support.wait import wait_until

#: How long the broker is away.
AWAY_S = 60


@pytest.fixture
def settings(rocketmq, busy):
    return RocketMqSettings(name_servers=rocketmq.name_server, topic_prefix=busy, topic_queues=3)


@pytest.fixture
def run(mysql, settings, busy, tmp_path):
    sink = {
        "type": "rocketmq",
        "name-servers": settings.name_servers,
        "topic-prefix": busy,
        "topic-queues": 3,
        "parallelism": 2,
    }
    return PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS)


def check(mysql, settings, busy):
    """The messages add up to the tables' rows, and each came once."""
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = messages(settings, f"{busy}_{table.replace('.', '_')}")
        queues = {(m.key, m.queue) for m in found}
        assert len(queues) == len({key for key, _ in queues})
        assert {m.properties["TAGS"] for m in found} == {table}
        held = added_up((m.key, m.properties["_seq"], m.properties["_op"], m.value) for m in found)
        assert in_order(held) == in_order(source_rows(mysql, table))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_come_once_and_in_order_after_kills_at_every_failpoint(mysql, settings, busy, run):
    run_through(mysql, busy, run, MESSAGE_KILLS)
    check(mysql, settings, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stream_goes_on_after_the_broker_was_away_for_a_minute(mysql, rocketmq, settings, busy, run):
    def take_away():
        wait_until(lambda: run.reports() > 0, FIRST_REPORT_S)
        rocketmq.kill()
        threading.Event().wait(AWAY_S)  # the length of the failure is what is tested
        rocketmq.start()

    with writing(mysql, busy):
        breaking = threading.Thread(target=take_away)
        breaking.start()
        try:
            run.work_for(AWAY_S + 30)
        finally:
            breaking.join()
    assert run.run() == 0, run.output()
    check(mysql, settings, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stream_goes_on_after_kills_of_the_broker(mysql, rocketmq, settings, busy, run):
    for failpoint in ("sink.produced", "sink.task"):
        with writing(mysql, busy), brought_back(rocketmq):
            run.run(failpoint=failpoint, victim=str(rocketmq.state.pid))
    assert run.run() == 0, run.output()
    check(mysql, settings, busy)
