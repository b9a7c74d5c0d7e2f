"""Whatever is killed, and wherever, NATS has each change once, and the changes of a key in order."""

from __future__ import annotations

import pytest

from tailrace.config.message_sinks import NatsSettings
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
from tests.support.sinks.nats import messages

#: Longer than the test.
WINDOW_S = 3600


@pytest.fixture
def run(mysql, nats, busy, tmp_path):
    sink = {
        "type": "nats",
        "url": nats.url,
        "topic-prefix": busy,
        "parallelism": 2,
        "duplicate-window": WINDOW_S,
    }
    return PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS)


def check(mysql, nats, busy):
    """The messages add up to the tables' rows, and each came once."""
    settings = NatsSettings(url=nats.url, topic_prefix=busy)
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = messages(settings, f"{busy}.{table}")
        held = added_up((h["key"], h["seq"], h["op"], value) for h, value in found)
        assert in_order(held) == in_order(source_rows(mysql, table))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_come_once_and_in_order_after_kills_at_every_failpoint(mysql, nats, busy, run):
    run_through(mysql, busy, run, MESSAGE_KILLS)
    check(mysql, nats, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_come_once_and_in_order_after_kills_of_the_server(mysql, nats, busy, run):
    for failpoint in ("sink.produced", "sink.task"):
        with writing(mysql, busy), brought_back(nats):
            run.run(failpoint=failpoint, victim=str(nats.state.pid))
    assert run.run() == 0, run.output()
    check(mysql, nats, busy)
