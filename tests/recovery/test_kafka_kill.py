"""Whatever is killed, and wherever, a consumer of the topics meets each change once and keys in order."""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

from tests.recovery.test_kill import in_order, source_rows
from tests.support.kills import BACKLOG_S, SMALL_CHUNKS, TABLES, run_through, writing
from tests.support.pipelines import FIRST_REPORT_S, PipelineProcess
from tests.support.topics import messages
from tests.support.wait import wait_until

#: (failpoint, who is killed): a worker with its transaction open, the JVM between the commits of two writers.
KILLS = (
    ("sink.produced", "self"),
    ("sink.task", "jvm"),
)
EVERY_KILL = (
    *KILLS,
    ("sink.committed", "self"),
    ("sink.produced", "jvm"),
    ("sink.task", "self"),
    ("batch.planned", "jvm"),
    ("snapshot.batch", "self"),
    ("sink.table", "self"),
    ("log.batch", "jvm"),
    ("offset.planned", "self"),
)


@pytest.fixture
def open_run(mysql, kafka, busy, tmp_path):
    def open_(**given):
        sink = {
            "type": "kafka",
            "bootstrap-servers": kafka.bootstrap,
            "topic-prefix": busy,
            "topic-partitions": 3,
            **given,
        }
        return PipelineProcess(
            tmp_path, mysql, f"{busy}.*", sink=sink, pipeline={"name": busy}, **SMALL_CHUNKS
        )

    return open_


@pytest.fixture(params=[{"parallelism": 2}, {}], ids=["divided", "in one task"])
def run(open_run, request):
    return open_run(**request.param)


def assert_exact(mysql, kafka, busy):
    for subject in TABLES:
        table = f"{busy}.{subject.name}"
        held = replayed(messages(kafka, f"{busy}.{table}"))
        assert in_order(held) == in_order(source_rows(mysql, table))


def replayed(found):
    """The rows that a topic's messages add up to; each must fit what is there, and come once."""
    state, seen, partition_of = {}, set(), {}
    deleted = None
    for message in found:
        assert partition_of.setdefault(message.key, message.partition) == message.partition
        if message.value is None:
            assert message.key == deleted, "a tombstone without its delete"
            deleted = None
            continue
        assert deleted is None, "a delete without its tombstone"
        change = json.loads(message.value)
        op, before, after, source = (change[name] for name in ("op", "before", "after", "source"))
        if op != "r":
            event = (source["file"], source["pos"], source["row"], op)
            assert event not in seen, f"a change came twice: {event}"
            seen.add(event)
        if op in ("r", "c"):
            assert message.key not in state, f"{op} of a key that is there"
        else:
            assert state.pop(message.key) == before
        if op == "d":
            deleted = message.key
        else:
            state[message.key] = after
    return list(state.values())


def test_topics_are_exact_after_kills_at_failpoints(mysql, kafka, busy, run):
    run_through(mysql, busy, run, KILLS)
    assert_exact(mysql, kafka, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_topics_with_named_keys_and_partitions_are_exact_after_kills(mysql, kafka, busy, open_run):
    # an update of `v` is a delete and a create
    keys = {"message-key-columns": ".*:id,v", "partition-by": ".*:v", "parallelism": 2}
    run_through(mysql, busy, open_run(**keys), KILLS)
    assert_exact(mysql, kafka, busy)
    found = [m for subject in TABLES for m in messages(kafka, f"{busy}.{busy}.{subject.name}")]
    partitions = {}
    for message in found:
        v = json.loads(message.key)["v"]
        assert partitions.setdefault(v, message.partition) == message.partition
    assert any(name == "__debezium.newkey" for m in found for name, _ in m.headers)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_events_of_an_outbox_come_once_and_in_order_after_kills(mysql, kafka, busy, open_run):
    table = f"{busy}.outbox"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, aggregatetype VARCHAR(20),"
        " aggregateid INT, payload JSON)"
    )
    written = {}
    outbox = {"tables": [r".*\.outbox"], "route-topic-replacement": f"{busy}-${{routedByValue}}"}
    pipeline = open_run(outbox=outbox)
    ended = threading.Event()

    def insert_and_delete():
        with mysql.connect() as connection, connection.cursor() as cursor:
            number = 0
            while not ended.wait(0.01):
                kind, aggregate = f"kind{number // 300 % 5}", number % 17
                cursor.execute(
                    f"INSERT INTO {table} (aggregatetype, aggregateid, payload) VALUES (%s, %s, %s)",
                    (kind, aggregate, json.dumps({"n": number})),
                )
                cursor.execute(f"DELETE FROM {table}")
                connection.commit()
                written.setdefault((kind, aggregate), []).append(number)
                number += 1

    thread = threading.Thread(target=insert_and_delete)
    try:
        thread.start()
        for failpoint, victim in KILLS:
            pipeline.run(failpoint=failpoint, victim=victim)
    finally:
        ended.set()
        thread.join()
    assert pipeline.run() == 0, pipeline.output()
    found = {}
    for kind in {kind for kind, _ in written}:
        for message in messages(kafka, f"{busy}-{kind}"):
            found.setdefault((kind, int(message.key)), []).append(json.loads(message.value)["n"])
    assert sum(map(len, found.values())) > 100
    # what was deleted before the stream's first position is in no log that it reads
    first = min(number for numbers in found.values() for number in numbers)
    expected = {at: [n for n in numbers if n >= first] for at, numbers in written.items()}
    assert found == {at: numbers for at, numbers in expected.items() if numbers}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_topics_are_exact_after_kills_at_every_failpoint(mysql, kafka, busy, run):
    run_through(mysql, busy, run, EVERY_KILL)
    assert_exact(mysql, kafka, busy)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_topics_are_exact_after_fifty_random_kills_of_driver_and_broker(mysql, kafka, busy, run):
    draw = random.Random(20)
    for number in range(51):
        with writing(mysql, busy):
            if number % 3:
                run.work_for(draw.uniform(0, 8))
            else:
                breaking = threading.Thread(
                    target=_break, args=(kafka, run, run.reports(), draw.uniform(0, 8))
                )
                breaking.start()
                run.work_for(20)
                breaking.join()
    assert run.run(timeout_s=BACKLOG_S) == 0, run.output()
    assert_exact(mysql, kafka, busy)


def _break(kafka, run, reports, after_s):
    """Kill the broker so long after the run's first report, and start it again."""
    wait_until(lambda: run.reports() > reports, FIRST_REPORT_S)
    time.sleep(after_s)
    kafka.kill()
    kafka.start()
