"""Whatever is killed, and wherever, a webhook gets each change at least once, and those of a key in order."""

from __future__ import annotations

import json
import threading

import pytest

from tests.recovery.test_kill import in_order, source_rows
from tests.support.http_receiver import http_receiver
from tests.support.kills import MESSAGE_KILLS, SMALL_CHUNKS, TABLES, added_up, once, run_through, writing
from tests.support.pipelines import FIRST_REPORT_S, PipelineProcess
from tests.support.sinks.webhook import received
from tests.support.wait import wait_until

#: Longer than the sink's own attempts last, seconds.
BUSY_S = 60


def parts(message):
    """Key, `seq`, operation and value."""
    return json.dumps(message["key"]), message["seq"], message["op"], json.dumps(message["value"]).encode()


@pytest.fixture
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def run(mysql, receiver, busy, tmp_path):
    sink = {"type": "webhook", "url": receiver.url, "topic-prefix": busy, "parallelism": 2}
    return PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS)


def check(mysql, receiver, busy):
    """The messages add up to the tables' rows, once those are left out that come again."""
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        found = [m for m in received(receiver) if m["table"] == table]
        assert in_order(added_up(once(map(parts, found)))) == in_order(source_rows(mysql, table))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_are_complete_and_in_order_after_kills_at_every_failpoint(mysql, receiver, busy, run):
    run_through(mysql, busy, run, MESSAGE_KILLS)
    check(mysql, receiver, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_messages_are_complete_and_in_order_after_the_server_was_busy_for_long(mysql, receiver, busy, run):
    def be_busy():
        wait_until(lambda: receiver.posts, FIRST_REPORT_S)
        receiver.status = 503
        threading.Event().wait(BUSY_S)  # the length of the failure is what is tested
        receiver.status = 200

    with writing(mysql, busy):
        busy_for_long = threading.Thread(target=be_busy)
        busy_for_long.start()
        try:
            run.work_for(BUSY_S + 30)
        finally:
            busy_for_long.join()
    assert 503 in {post.status for post in receiver.posts}
    assert run.run() == 0, run.output()
    check(mysql, receiver, busy)
