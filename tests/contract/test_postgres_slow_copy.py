"""Reading a table of a busy PostgreSQL server: by short COPYs, each by the key's index."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tailrace.model.split import SnapshotSplit
from tailrace.sources import pausing, registry
from tailrace_dev.servers import PostgresServer
from tests.support.engine import Engine
from tests.support.postgres import options_for
from tests.support.wait import wait_until

ROWS = 2_000


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without their time."""
    found: list[float] = []
    init = pausing.Pauses.__init__

    def made(self: pausing.Pauses, share: float) -> None:
        init(self, share, found.append, time.monotonic)

    monkeypatch.setattr(pausing.Pauses, "__init__", made)
    return found


def read(server: PostgresServer, database: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of the table `t`, read slowly in chunks, and the number of chunks."""
    rows, chunks = [], 0
    given = options_for(server, database, r"public\.t", snapshotChunkRows=700)
    with Engine(given, parallelism=2) as engine:
        while engine.offset.is_new or engine.offset.tables:
            batch = wait_until(engine.next, 30, "a batch")
            for split in engine.plan.splits(*batch):
                if isinstance(split, SnapshotSplit):
                    chunks += 1
                    with closing(registry.session(given)) as session:
                        for page in session.pages(replace(split, time_share=0.5)):
                            rows += page.rows.to_pylist()
    return rows, chunks


@pytest.mark.parametrize("partitioned", [False, True])
def test_every_row_is_read_once_by_the_index_though_nothing_is_known_of_the_table(
    postgres: PostgresServer, postgres_database: str, slept: list[float], partitioned: bool
) -> None:
    columns = "(a int, b text, v int, PRIMARY KEY (a, b))"
    parts = ["CREATE TABLE t0 PARTITION OF t FOR VALUES FROM (0) TO (1)",
             "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (9)"]  # fmt: skip
    postgres.execute(
        f"CREATE TABLE t {columns}" + (" PARTITION BY RANGE (a)" if partitioned else ""),
        *(parts if partitioned else []),
        f"INSERT INTO t SELECT n % 2, n::text, n FROM generate_series(1, {ROWS}) n",
        database=postgres_database,
    )

    def scans() -> tuple[int, int]:
        sql = "SELECT sum(seq_scan)::int, sum(idx_scan)::int FROM pg_stat_user_tables WHERE relname ~ '^t'"
        ((sequential, by_index),) = postgres.execute(sql, database=postgres_database)
        return int(sequential), int(by_index)

    before = scans()
    rows, chunks = read(postgres, postgres_database)
    assert sorted(row["v"] for row in rows) == list(range(1, ROWS + 1))
    assert chunks == 3
    assert len(slept) >= ROWS // pausing.MOST_ROWS
    wait_until(lambda: scans()[1] >= before[1] + 2 * len(slept), 10, "the counters of scans")
    planned = chunks * (2 if partitioned else 1)  # looking for the ends of chunks, in so small a table
    assert scans()[0] <= before[0] + planned


def test_table_without_a_key_is_read_at_full_speed(
    postgres: PostgresServer, postgres_database: str, slept: list[float]
) -> None:
    postgres.execute(
        "CREATE TABLE t (v int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t SELECT generate_series(1, {ROWS})",
        database=postgres_database,
    )
    rows, chunks = read(postgres, postgres_database)
    assert sorted(row["v"] for row in rows) == list(range(1, ROWS + 1))
    assert (chunks, slept) == (1, [])
