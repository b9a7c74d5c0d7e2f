"""Whatever is killed, and wherever, a webhook gets each change at least once, and those of a key in order."""

from __future__ import annotations

import json

import pytest

from tests.recovery.test_kill import in_order, source_rows
from tests.support.http_receiver import http_receiver
from tests.support.kills import MESSAGE_KILLS, SMALL_CHUNKS, TABLES, added_up, once, run_through
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.webhook import received


def parts(message):
    """Key, `seq`, operation and value."""
    return json.dumps(message["key"]), message["seq"], message["op"], json.dumps(message["value"]).encode()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_are_complete_and_in_order_after_kills_at_every_failpoint(mysql, busy, tmp_path):
    with http_receiver() as receiver:
        sink = {"type": "webhook", "url": receiver.url, "topic-prefix": busy, "parallelism": 2}
        run = PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_CHUNKS)
        run_through(mysql, busy, run, MESSAGE_KILLS)
        for subject in TABLES:
            table = f"{busy}.{subject.name}"
            found = [m for m in received(receiver) if m["table"] == table]
            assert in_order(added_up(once(map(parts, found)))) == in_order(source_rows(mysql, table))
