"""Lake tables are exact after kills: versions of rows, merges that wait, Iceberg, files."""

from __future__ import annotations

import functools
import itertools

import pytest

from tests.recovery.test_kill import in_order, replayed, source_rows
from tests.support.kills import KILLS, SMALL_CHUNKS, TABLES, run_through, run_with_random_kills
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.sinks.iceberg import table_rows


def versions_are_exact(mysql, spark, run, database):
    """Versions of a key follow each other, none comes twice, and the current ones are the table."""
    for subject in TABLES:
        table = f"{database}.{subject.name}"
        rows = sorted(delta_rows(spark, run.targets / table), key=lambda r: (identity(r, subject), r["_seq"]))
        for _, versions in itertools.groupby(rows, functools.partial(identity, subject=subject)):
            for old, new in itertools.pairwise(versions):
                assert old["_seq"] < new["_seq"]
                assert not old["_is_current"]
                assert old["_valid_to"] <= new["_valid_from"]
        current = [own(r) for r in rows if r["_is_current"]]
        assert in_order(current) == in_order(source_rows(mysql, table))


def upserts_are_exact(mysql, spark, run, database):
    for subject in TABLES:
        table = f"{database}.{subject.name}"
        assert in_order(delta_rows(spark, run.targets / table)) == in_order(source_rows(mysql, table))


def iceberg_rows_are_exact(mysql, spark, run, database):
    for subject in TABLES:
        table = f"{database}.{subject.name}"
        assert in_order(table_rows(run.targets, table).to_pylist()) == in_order(source_rows(mysql, table))


def iceberg_changes_are_exact(mysql, spark, run, database):
    for subject in TABLES:
        table = f"{database}.{subject.name}"
        changes = table_rows(run.targets, table).to_pylist()
        for change in changes:
            change["_before"] = change["_before"] and _Before(change["_before"])
        assert in_order(replayed(changes, subject.key)) == in_order(source_rows(mysql, table))


def files_are_exact(mysql, spark, run, database):
    for subject in TABLES:
        table = f"{database}.{subject.name}"
        found = spark.read.parquet(str(run.targets / table)).drop("tailrace_batch")
        changes = [row.asDict() for row in found.collect()]
        assert in_order(replayed(changes, subject.key)) == in_order(source_rows(mysql, table))


class _Before(dict):
    """A row before, as Spark has it."""

    def asDict(self):  # noqa: N802 - Spark's name
        return dict(self)


def identity(row, subject):
    return tuple(str(row[k]) for k in subject.key)


def own(row):
    return {n: v for n, v in row.items() if not n.startswith("_")}


#: A backlog comes in several batches, so that changes of the later ones wait.
SMALL_BATCHES = {**SMALL_CHUNKS, "max-bytes-per-trigger": "100k"}
#: The sink's settings beside its path, what must hold, and the kills at failpoints: the first is met while
#: the snapshot is read, the next by the log that was written meanwhile.
SINKS = {
    "scd2": (
        {"type": "delta", "mode": "scd2", "merge-interval": 3600},
        versions_are_exact,
        (("sink.table", "jvm"), ("sink.merged", "self")),
    ),
    "upsert-waiting": ({"type": "delta", "mode": "upsert", "merge-interval": 5}, upserts_are_exact, ()),
    "iceberg": ({"type": "iceberg"}, iceberg_rows_are_exact, (("sink.table", "self"),)),
    "iceberg-changelog": ({"type": "iceberg", "mode": "changelog"}, iceberg_changes_are_exact, ()),
    "parquet": ({"type": "parquet"}, files_are_exact, ()),
}


@pytest.fixture
def killed(mysql, busy, tmp_path):
    """Makes a pipeline over the busy tables into a sink; what must hold, and the sink's own kills."""

    def make(name):
        settings, assert_exact, kills = SINKS[name]
        sink = {**settings, "path": str(tmp_path / "tables")}
        run = PipelineProcess(tmp_path, mysql, f"{busy}.*", sink=sink, **SMALL_BATCHES)
        return run, assert_exact, kills

    return make


@pytest.mark.slow  # the contract suite and `test_ddl_fuzz_sinks` break off these sinks at the same failpoints
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["scd2", "iceberg"])
def test_lake_tables_are_exact_after_kills_at_failpoints(mysql, busy, spark, killed, name):
    run, assert_exact, kills = killed(name)
    run_through(mysql, busy, run, kills)
    assert_exact(mysql, spark, run, busy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(SINKS))
def test_lake_tables_are_exact_after_kills_at_every_failpoint(mysql, busy, spark, killed, name):
    run, assert_exact, own_kills = killed(name)
    run_through(mysql, busy, run, (*KILLS, *own_kills))
    assert_exact(mysql, spark, run, busy)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", list(SINKS))
def test_lake_tables_are_exact_after_fifty_random_kills(mysql, busy, spark, killed, name):
    run, assert_exact, _ = killed(name)
    run_with_random_kills(mysql, busy, run, 50)
    assert_exact(mysql, spark, run, busy)
