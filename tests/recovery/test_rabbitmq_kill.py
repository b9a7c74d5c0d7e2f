"""Whatever is killed, and wherever, RabbitMQ has each change at least once, and those of a key in order."""

from __future__ import annotations

import pytest

from tailrace.config.rabbitmq import QueueType
from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import (
    MESSAGE_KILLS,
    SMALL_CHUNKS,
    TABLES,
    added_up,
    brought_back,
    once,
    run_through,
    writing,
)
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.rabbitmq import messages, settings_of


@pytest.fixture
def settings(rabbitmq, busy):
    return settings_of(rabbitmq, topic_prefix=busy, queue_type=QueueType.QUORUM)


@pytest.fixture
def run(mysql, rabbitmq, settings, busy, tmp_path):
    sink = {
        "type": "rabbitmq",
        "url": settings.url,
        "user": settings.user,
        "password": f"${{file:{rabbitmq.password_file}}}",
        "topic-prefix": busy,
        "queue-type": "quorum",
        "parallelism": 2,
    }
    return PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS)


def check(mysql, settings, busy):
    """The messages add up to the tables' rows, once those are left out that come again."""
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = [(p.headers, value) for p, value in messages(settings, f"{busy}.{table}")]
        held = added_up(once((h["key"], h["_seq"], h["op"], value) for h, value in found))
        assert in_order(held) == in_order(source_rows(mysql, table))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_are_complete_and_in_order_after_kills_at_every_failpoint(mysql, settings, busy, run):
    run_through(mysql, busy, run, MESSAGE_KILLS)
    check(mysql, settings, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_are_complete_and_in_order_after_kills_of_the_server(mysql, rabbitmq, settings, busy, run):
    for failpoint in ("sink.produced", "sink.task"):
        with writing(mysql, busy), brought_back(rabbitmq):
            run.run(failpoint=failpoint, victim=str(rabbitmq.state.pid))
    assert run.run() == 0, run.output()
    check(mysql, settings, busy)
