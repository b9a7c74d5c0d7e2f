"""Whatever is killed, and wherever, the documents of OpenSearch are those of the rows afterwards."""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from tests.recovery.test_kill import source_rows
from tests.support.kills import KILLS, ROWS, SMALL_CHUNKS, TABLES, run_through, run_with_random_kills
from tests.support.pipelines import PipelineProcess
from tests.support.sinks.opensearch import cluster
from tests.support.workload import SUBJECTS, Writers, fill


def document(row):
    """The document of a row."""
    return {name: _value(value) for name, value in row.items()}


def _value(value):
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            text = value.isoformat()
            return text.rstrip("0") if "." in text else text
        case date():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes():
            return base64.b64encode(value).decode()
    return value


@pytest.fixture
def killed(request, mysql, busy, tmp_path):
    """A pipeline over the busy tables, and a check that the documents are their rows."""
    target = cluster(request)
    sink = {"type": "opensearch", "url": target.url, "index-settings": {"number_of_replicas": "0"}}
    run = PipelineProcess(
        tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_CHUNKS, **{"max-bytes-per-trigger": "100k"}
    )

    def check():
        for subject in TABLES:
            table = f"{busy}.{subject.name}"
            found = target.documents(table)
            wanted = [document(row) for row in source_rows(mysql, table)]
            assert len(found) == len(wanted)
            assert sorted(map(repr, found.values())) == sorted(map(repr, wanted))

    return run, check


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_documents_are_exact_after_kills_at_every_failpoint(mysql, busy, killed):
    run, check = killed
    own = (("sink.task", "jvm"), ("sink.task", "self"), ("sink.table", "self"))
    run_through(mysql, busy, run, (*KILLS, *own))
    check()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_documents_are_exact_after_fifty_random_kills(mysql, busy, killed):
    run, check = killed
    run_with_random_kills(mysql, busy, run, 50)
    check()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_documents_with_a_routing_are_exact_after_kills(mysql, database, request, tmp_path):
    subject, target = SUBJECTS[2], cluster(request)
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, ROWS)
    sink = {
        "type": "opensearch",
        "url": target.url,
        "index-settings": {"number_of_replicas": "0", "number_of_shards": "3"},
        "routing": {table: "b"},
    }
    sizes = {**SMALL_CHUNKS, "max-bytes-per-trigger": "100k"}
    run = PipelineProcess(tmp_path, mysql, table, sink=sink, **sizes)
    for failpoint, victim in (
        ("snapshot.batch", "jvm"),
        ("sink.task", "self"),
        ("sink.table", "self"),
        ("log.batch", "jvm"),
    ):
        with Writers(mysql, table, subject, count=2, keys=2 * ROWS, pause_s=0.05):
            run.run(failpoint=failpoint, victim=victim)
    assert run.run() == 0, run.output()
    found = list(target.documents(table).values())
    rows = source_rows(mysql, table)
    wanted = [document(row | {"c": str(row["c"])}) for row in rows]  # an unsigned BIGINT is text
    assert len(found) == len(wanted)
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
