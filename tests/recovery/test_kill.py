"""Whatever is killed, and wherever, the Delta tables are exact afterwards."""

from __future__ import annotations

import random

import pytest

from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.workload import SUBJECTS, Writers, fill

ROWS = 3000
SMALL_CHUNKS = {"snapshot-chunk-rows": 500, "snapshot-parallelism": 2}
#: Enough to touch every batch, little enough to leave the machine to Spark.
LOAD = {"count": 1, "keys": 2 * ROWS, "pause_s": 0.05}
#: (failpoint, who is killed): the process itself, or the driver's JVM. The first ones hit the snapshot's
#: first batches; a killed source process or worker is replaced within the run, which goes on to the end.
KILLS = (
    ("batch.planned", "jvm"),
    ("snapshot.batch", "jvm"),
    ("sink.table", "self"),
    ("sink.committed", "jvm"),
    ("snapshot.batch", "self"),
    ("offset.planned", "self"),
    ("log.batch", "jvm"),
    ("sink.table", "jvm"),
    ("log.batch", "self"),
    ("sink.committed", "self"),
)


def source_rows(mysql, table):
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [d[0] for d in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def in_order(rows):
    return sorted(rows, key=lambda r: [str(v) for v in r.values()])


def assert_exact(mysql, spark, run, database, mode):
    for subject in SUBJECTS[:2]:
        table = f"{database}.{subject.name}"
        held = delta_rows(spark, run.targets / table)
        if mode == "changelog":
            held = replayed(held, subject.key)
        assert in_order(held) == in_order(source_rows(mysql, table))


def replayed(changes, key):
    """The table that a changelog adds up to; every change must fit what is there, and come once."""
    state = {}
    seqs = [c["_seq"] for c in changes if c["_op"] != "r"]
    assert len(seqs) == len(set(seqs)), "a change came twice"
    # snapshot rows as of P sort after every change up to P; equal seqs are rows of one batch's snapshot
    for change in sorted(changes, key=lambda c: (c["_seq"], c["_op"] != "r")):
        row = {n: v for n, v in change.items() if not n.startswith("_")}
        identity = tuple(row[k] for k in key)
        if change["_op"] in ("r", "c"):
            assert identity not in state, f"{change['_op']} of a key that is there: {change}"
        else:
            before = change["_before"].asDict() if change["_before"] else row
            assert state.pop(identity) == before
        if change["_op"] != "d":
            state[identity] = row
    return list(state.values())


@pytest.fixture
def busy(mysql, database):
    for subject in SUBJECTS[:2]:
        fill(mysql, f"{database}.{subject.name}", subject, ROWS)
    return database


#: A changelog shows every loss and every repeat; of upsert tables what they add is the MERGE.
CHAINS = (
    ("changelog", KILLS),
    (
        "upsert",
        (("snapshot.batch", "jvm"), ("sink.table", "jvm"), ("log.batch", "self"), ("sink.committed", "jvm")),
    ),
)


def run_through(mysql, busy, run, kills):
    for failpoint, victim in kills:
        with (
            Writers(mysql, f"{busy}.{SUBJECTS[0].name}", SUBJECTS[0], **LOAD),
            Writers(mysql, f"{busy}.{SUBJECTS[1].name}", SUBJECTS[1], **LOAD),
        ):
            run.run(failpoint=failpoint, victim=victim)
    assert run.run() == 0, run.output()


@pytest.mark.parametrize("chain", CHAINS, ids=[mode for mode, _ in CHAINS])
def test_tables_are_exact_after_kills_at_failpoints(mysql, busy, spark, tmp_path, chain):
    mode, kills = chain
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode=mode, **SMALL_CHUNKS)
    run_through(mysql, busy, run, kills)
    assert_exact(mysql, spark, run, busy, mode)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_upsert_tables_are_exact_after_kills_at_every_failpoint(mysql, busy, spark, tmp_path):
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode="upsert", **SMALL_CHUNKS)
    run_through(mysql, busy, run, KILLS)
    assert_exact(mysql, spark, run, busy, "upsert")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_tables_are_exact_after_twenty_random_kills(mysql, busy, spark, tmp_path, mode):
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode=mode, **SMALL_CHUNKS)
    draw = random.Random(20)
    for _ in range(20):
        with (
            Writers(mysql, f"{busy}.{SUBJECTS[0].name}", SUBJECTS[0], **LOAD),
            Writers(mysql, f"{busy}.{SUBJECTS[1].name}", SUBJECTS[1], **LOAD),
        ):
            run.run_for(draw.uniform(6, 20))
    assert run.run() == 0, run.output()
    assert_exact(mysql, spark, run, busy, mode)
