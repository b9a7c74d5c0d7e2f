"""A table that autovacuum works on, as it does for minutes after a large table was filled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace.sources import registry
from tailrace_dev.servers import PostgresServer
from tests.support.postgres import options_for
from tests.support.wait import wait_until


@pytest.fixture
def _eager(postgres: PostgresServer) -> Iterator[None]:
    """Autovacuum looks each second whether there is something to do."""
    postgres.execute("ALTER SYSTEM SET autovacuum_naptime = 1", "SELECT pg_reload_conf()")
    yield
    postgres.execute("ALTER SYSTEM RESET autovacuum_naptime", "SELECT pg_reload_conf()")


@pytest.mark.usefixtures("_eager")
def test_table_is_published_although_autovacuum_works_on_it(
    postgres: PostgresServer, postgres_database: str
) -> None:
    slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
    at_once = "autovacuum_vacuum_insert_threshold = 0, autovacuum_vacuum_insert_scale_factor = 0"
    postgres.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, v text) WITH ({slow}, {at_once})",
        "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 100000) AS n",
        database=postgres_database,
    )

    def works() -> bool:
        with closing(postgres.connect(database=postgres_database)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 't'::regclass")
            return bool(cursor.fetchone()[0])

    wait_until(works, 60)
    with closing(registry.source(options_for(postgres, postgres_database, "public.t"))) as source:
        tables = [found.schema for found in source.tables()]
        assert works()
        assert source.publish(tables) == []
