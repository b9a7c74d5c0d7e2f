"""The estimate of a snapshot, of real servers."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.pipeline.estimate import estimate
from tests.support import postgres as postgres_support
from tests.support.engine import options_for

ROWS = 30_000


@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_rows_bytes_and_log_are_measured_and_nothing_is_created(
    request: pytest.FixtureRequest, product: str
) -> None:
    server = request.getfixturevalue(product)
    if product == "postgres":
        database = request.getfixturevalue("postgres_database")
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            f"INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, {ROWS}) n",
            database=database,
        )
        options = postgres_support.options_for(server, database, r"public\.t")
    else:
        database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
        rows = ", ".join(f"({n}, '{'x' * 100}')" for n in range(1, ROWS + 1))
        server.execute(
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v TEXT)",
            f"INSERT INTO {database}.t VALUES {rows}",
        )
        options = options_for(server, rf"{database}\.t")
    before = _made(server, product, options)
    found = estimate(options, 4, seconds=1)
    assert found.rows == pytest.approx(ROWS, rel=0.2)
    assert found.bytes == pytest.approx(ROWS * 108, rel=0.3)
    assert found.rows_per_s is not None
    assert found.rows_per_s > 1000
    assert found.to_json()["connections"] == 4
    assert _made(server, product, options) == before


def _made(server: Any, product: str, options: Any) -> Any:
    """What a stream creates on the server."""
    if product != "postgres":
        return None
    return server.execute(
        "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication)",
        database=options.database,
    )
