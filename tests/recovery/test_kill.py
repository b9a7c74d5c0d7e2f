"""Whatever is killed, and wherever, the Delta tables are exact afterwards."""

from __future__ import annotations

import pytest

from tests.support.databases import named_rows
from tests.support.kills import KILLS, SMALL_CHUNKS, TABLES, run_through, run_with_random_kills
from tests.support.pipelines import PipelineProcess, delta_rows


def source_rows(mysql, table):
    with mysql.connect() as connection, connection.cursor() as cursor:
        return named_rows(cursor, f"SELECT * FROM {table}")


def in_order(rows):
    return sorted(rows, key=lambda r: [str(v) for v in r.values()])


def assert_exact(mysql, spark, run, database, mode):
    for subject in TABLES:
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


#: A changelog shows every loss and every repeat; of upsert tables what they add is the MERGE.
CHAINS = (
    (
        "changelog",
        (
            ("batch.planned", "jvm"),
            ("sink.table", "jvm"),
            ("sink.committed", "self"),
        ),
    ),
    ("upsert", (("snapshot.batch", "jvm"), ("sink.table", "self"))),
)


@pytest.mark.parametrize("chain", CHAINS, ids=[mode for mode, _ in CHAINS])
def test_tables_are_exact_after_kills_at_failpoints(mysql, busy, spark, tmp_path, chain):
    mode, kills = chain
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode=mode, **SMALL_CHUNKS)
    run_through(mysql, busy, run, kills)
    assert_exact(mysql, spark, run, busy, mode)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_tables_are_exact_after_kills_at_every_failpoint(mysql, busy, spark, tmp_path, mode):
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode=mode, **SMALL_CHUNKS)
    run_through(mysql, busy, run, KILLS)
    assert_exact(mysql, spark, run, busy, mode)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_tables_are_exact_after_fifty_random_kills(mysql, busy, spark, tmp_path, mode):
    run = PipelineProcess(tmp_path, mysql, f"{busy}.*", mode=mode, **SMALL_CHUNKS)
    run_with_random_kills(mysql, busy, run, 50)
    assert_exact(mysql, spark, run, busy, mode)
