"""Whatever is killed, and wherever, NATS has each change once, and the changes of a key in order."""

from __future__ import annotations

import pytest

from tailrace.config.message_sinks import NatsSettings
from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import MESSAGE_KILLS, SMALL_CHUNKS, TABLES, added_up, run_through
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.nats import messages

#: Longer than the test.
WINDOW_S = 3600


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_come_once_and_in_order_after_kills_at_every_failpoint(mysql, nats, busy, tmp_path):
    sink = {
        "type": "nats",
        "url": nats.url,
        "topic-prefix": busy,
        "parallelism": 2,
        "duplicate-window": WINDOW_S,
    }
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_CHUNKS)
    run_through(mysql, busy, run, MESSAGE_KILLS)
    settings = NatsSettings(url=nats.url, topic_prefix=busy)
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = messages(settings, f"{busy}.{table}")
        held = added_up((h["key"], h["seq"], h["op"], value) for h, value in found)
        assert in_order(held) == in_order(source_rows(mysql, table))
