"""Whatever is killed, and wherever, the Delta tables are exact afterwards; over MySQL and PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.support import postgres
from tests.support.databases import named_rows
from tests.support.exactness import BusyTable, PostgresTable
from tests.support.kills import KILLS, ROWS, SMALL_CHUNKS, TABLES, run_with_random_kills
from tests.support.pipelines import PipelineProcess, delta_rows


def source_rows(mysql, table):
    with mysql.connect() as connection, connection.cursor() as cursor:
        return named_rows(cursor, f"SELECT * FROM {table}")


def in_order(rows):
    return sorted(rows, key=lambda r: [str(v) for v in r.values()])


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


class Killed:
    """A pipeline into Delta over busy tables.

    Args:
        tables: what it captures.
        process: the pipeline.
        mode: `changelog` or `upsert`.
    """

    def __init__(self, tables, process, mode):
        self.tables, self.process, self.mode = tables, process, mode

    def run_through(self, kills):
        """Run while the tables are written to, killed at each failpoint; then to the end."""
        count = 2 // len(self.tables)
        for failpoint, victim in kills:
            with ExitStack() as writers:
                for table in self.tables:
                    writers.enter_context(table.writing(count=count, keys=2 * ROWS, pause_s=0.05))
                self.process.run(failpoint=failpoint, victim=victim)
        assert self.process.run() == 0, self.process.output()

    def assert_exact(self, spark):
        for table in self.tables:
            key = table.subject.key
            held = delta_rows(spark, self.process.targets / table.name)
            if self.mode == "changelog":
                held = replayed(held, key)
            truth = table.now()
            assert {tuple(row[k] for k in key): row for row in held} == truth
            assert len(held) == len(truth)


@pytest.fixture
def killed(request, tmp_path):
    """Makes a pipeline over filled tables of a product's shared server."""

    def make(product, mode):
        server = request.getfixturevalue(product)
        if product == "postgres":
            database = request.getfixturevalue("postgres_database")
            # a changelog shows repeats, which takes whole row images; an upsert table needs none
            identity = "FULL" if mode == "changelog" else "DEFAULT"
            tables = [PostgresTable(server, database, postgres.SUBJECTS[0], identity)]
            pattern = tables[0].name
            source = {"type": "postgresql", "database": database, "slot-name": f"slot_{database}"}
        else:
            database = request.getfixturevalue("database")
            tables = [BusyTable(server, database, subject) for subject in TABLES]
            pattern, source = f"{database}.*", {}
        for table in tables:
            table.fill(ROWS)
        return Killed(
            tables, PipelineProcess(tmp_path, server, pattern, mode=mode, **source, **SMALL_CHUNKS), mode
        )

    return make


#: A changelog shows every loss and every repeat; of upsert tables what they add is the MERGE.
CHAINS = {
    ("mysql", "changelog"): (("sink.table", "jvm"), ("sink.committed", "self")),
    ("mysql", "upsert"): (("snapshot.batch", "jvm"), ("sink.table", "self")),
    ("postgres", "changelog"): (("batch.planned", "jvm"), ("log.batch", "jvm")),
    ("postgres", "upsert"): (("snapshot.batch", "self"), ("batch.planned", "jvm")),
}
PLACES = [pytest.param(*chain, id="-".join(chain)) for chain in CHAINS]
#: The contract suite crashes these sinks at the same failpoints, and `test_exactness.py` readers at theirs:
#: in one process.
SLOW = {("mysql", "upsert"), ("postgres", "upsert"), ("postgres", "changelog")}


@pytest.mark.parametrize(
    ("product", "mode"),
    [pytest.param(*c, id="-".join(c), marks=[pytest.mark.slow] if c in SLOW else []) for c in CHAINS],
)
def test_tables_are_exact_after_kills_at_failpoints(killed, spark, product, mode):
    run = killed(product, mode)
    run.run_through(CHAINS[product, mode])
    run.assert_exact(spark)


@pytest.mark.parametrize("victim", ["self", pytest.param("jvm", marks=pytest.mark.slow)])
def test_new_tables_are_made_with_their_rows_though_their_maker_is_killed(
    mysql, database, spark, tmp_path, victim
):
    """Their files are there before they are tables."""
    names = [f"t{number}" for number in range(6)]
    with mysql.connect() as connection, connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, v VARCHAR(9))")
            cursor.execute(f"INSERT INTO {database}.{name} VALUES (1, '{name}'), (2, NULL)")
        connection.commit()
    process = PipelineProcess(tmp_path, mysql, f"{database}.*")
    process.run(failpoint="sink.files", victim=victim)
    assert process.run() == 0, process.output()
    for name in names:
        place = process.targets / f"{database}.{name}"
        assert sorted(delta_rows(spark, place), key=lambda row: row["id"]) == source_rows(
            mysql, f"{database}.{name}"
        )
        assert not list(place.glob("_delta_log/*.tmp"))
        history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()
        assert [row.operation for row in history] == ["STREAMING UPDATE"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("product", "mode"), PLACES)
def test_tables_are_exact_after_kills_at_every_failpoint(killed, spark, product, mode):
    run = killed(product, mode)
    run.run_through(KILLS)
    run.assert_exact(spark)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_tables_are_exact_after_fifty_random_kills(mysql, database, killed, spark, mode):
    run = killed("mysql", mode)
    run_with_random_kills(mysql, database, run.process, 50)
    run.assert_exact(spark)
