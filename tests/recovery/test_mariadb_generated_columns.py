"""Generated columns of MariaDB: the log has them when a row is inserted, not when it changes."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.model.change import ChangeBatch
from tests.support.databases import global_variable
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target

CHANGES = (
    "INSERT INTO {t} (id, a) VALUES (10, 1), (11, 1)",
    "UPDATE {t} SET a = a + 100 WHERE id IN (2, 10)",
    "UPDATE {t} SET id = 30 WHERE id = 3",
    "DELETE FROM {t} WHERE id IN (4, 11)",
)


@pytest.fixture
def table(mariadb: Any, mariadb_database: str) -> str:
    name = f"{mariadb_database}.t"
    mariadb.execute(
        f"CREATE TABLE {name} (v INT AS (a * 2) VIRTUAL, id INT NOT NULL, s INT AS (a + 1) STORED,"
        " a INT, PRIMARY KEY (id))",
        f"INSERT INTO {name} (id, a) VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
    )
    return name


def columns(batches: list[ChangeBatch]) -> set[tuple[str, ...]]:
    """The columns of the batches, whatever the log leaves out."""
    assert not any(batch.absent_before or batch.absent_after for batch in batches)
    return {tuple(column.name for column in batch.table.columns) for batch in batches}


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_rows_and_log_have_the_other_columns(mariadb: Any, table: str, metadata: str) -> None:
    with Engine(options_for(mariadb, table)) as engine:
        read, log = engine.read(*engine.next())
        with global_variable(mariadb, "binlog_row_metadata", metadata):
            mariadb.execute(*(s.format(t=table) for s in CHANGES))
        engine.plan.hold()
        while (batch := engine.next()) is not None:
            log += engine.read(*batch)[1]
    assert sum(map(len, log)) == 8
    assert columns(read) == columns(log) == {("id", "a")}


def test_target_equals_the_table_when_rows_change(mariadb: Any, table: str) -> None:
    with Engine(options_for(mariadb, table)) as engine:
        target = Target(engine, table)
        target.step()
        mariadb.execute(*(s.format(t=table) for s in CHANGES))
        target.drain(mariadb)
        target.equals(mariadb)


def test_rows_that_change_before_they_are_selected_are_those_of_the_position(
    mariadb: Any, table: str
) -> None:
    with Engine(options_for(mariadb, table)) as engine:
        target = Target(engine, table)
        batch = engine.next()
        mariadb.execute(*(s.format(t=table) for s in CHANGES))
        read, log = engine.read(*batch)
        target.apply(read, log, end=batch[1].to_json())
        assert sorted((row["id"], row["a"]) for row in target.rows) == [(i, i) for i in range(1, 6)]
        target.drain(mariadb)
        target.equals(mariadb)
