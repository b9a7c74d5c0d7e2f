"""Whatever is killed, and wherever, the Delta tables of a PostgreSQL database are exact afterwards."""

from __future__ import annotations

import pytest

from tests.recovery.test_kill import replayed
from tests.support.kills import KILLS, ROWS, SMALL_CHUNKS
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.postgres import SUBJECTS, Writers, fill, now

NUMBERS = SUBJECTS[0]
#: A changelog shows every loss and every repeat, which takes whole row images; an upsert table needs none.
CHAINS = (
    ("changelog", "FULL", (("snapshot.batch", "jvm"), ("log.batch", "jvm"))),
    ("upsert", "DEFAULT", (("snapshot.batch", "self"), ("batch.planned", "jvm"))),
)


def assert_exact_after(postgres, database, spark, directory, chain):
    mode, identity, kills = chain
    fill(postgres, database, NUMBERS, ROWS, identity=identity)
    run = PipelineProcess(
        directory,
        postgres,
        "public.numbers",
        mode=mode,
        **{
            "type": "postgresql",
            "database": database,
            "slot-name": f"slot_{database}",
            **SMALL_CHUNKS,
        },
    )
    for failpoint, victim in kills:
        with Writers(postgres, database, NUMBERS, count=2, keys=2 * ROWS, pause_s=0.05):
            run.run(failpoint=failpoint, victim=victim)
    assert run.run() == 0, run.output()
    held = delta_rows(spark, run.targets / "public.numbers")
    if mode == "changelog":
        held = replayed(held, NUMBERS.key)
    truth = now(postgres, database, NUMBERS)
    assert {(row["id"],): row for row in held} == truth
    assert len(held) == len(truth)


@pytest.mark.parametrize(
    "chain",
    [pytest.param(CHAINS[0], id="changelog"), pytest.param(CHAINS[1], id="upsert", marks=pytest.mark.slow)],
)
def test_tables_are_exact_after_kills_at_failpoints(postgres, postgres_database, spark, tmp_path, chain):
    assert_exact_after(postgres, postgres_database, spark, tmp_path, chain)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chain", CHAINS, ids=[mode for mode, *_ in CHAINS])
def test_tables_are_exact_after_kills_at_every_failpoint(postgres, postgres_database, spark, tmp_path, chain):
    assert_exact_after(postgres, postgres_database, spark, tmp_path, (*chain[:2], KILLS))
