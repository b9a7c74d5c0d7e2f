"""Schema changes that rewrite rows without logging them: afterwards a target equals its table."""

from __future__ import annotations

import pytest

from tests.support.engine import Engine, options_for
from tests.support.rereading import Target, at_moments

ROWS = 50


@pytest.fixture
def table(mysql, database):
    """A table (id, a, b, d) with rows 1 to ROWS."""
    values = ", ".join(f"({i}, {i * 10}, 'row {i}', {i}.25)" for i in range(1, ROWS + 1))
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b VARCHAR(20), d DECIMAL(10,2))",
        f"INSERT INTO {database}.t VALUES {values}",
    )
    return f"{database}.t"


PARTITIONED = """ALTER TABLE {t} PARTITION BY RANGE (id)
    (PARTITION p0 VALUES LESS THAN (20), PARTITION p1 VALUES LESS THAN MAXVALUE)"""
#: What a statement changes, and the statements; {t} is the table, {s} its database.
REWRITES = {
    "column renamed": ["ALTER TABLE {t} RENAME COLUMN a TO z"],
    "two names swapped": ["ALTER TABLE {t} CHANGE a a2 INT", "ALTER TABLE {t} CHANGE b a VARCHAR(20)"],
    "column added with a default": ["ALTER TABLE {t} ADD COLUMN c INT DEFAULT 5"],
    "column added first, instantly": ["ALTER TABLE {t} ADD COLUMN c INT DEFAULT 5 FIRST, ALGORITHM=INSTANT"],
    "column added NOT NULL": ["ALTER TABLE {t} ADD COLUMN c INT NOT NULL"],
    "generated column added": ["ALTER TABLE {t} ADD COLUMN c INT AS (a + 1) STORED"],
    "generated column redefined": [
        "ALTER TABLE {t} ADD COLUMN c INT AS (a + 1) STORED",
        "ALTER TABLE {t} MODIFY COLUMN c INT AS (a + 2) STORED",
    ],
    "column dropped and created again": [
        "ALTER TABLE {t} DROP COLUMN a",
        "ALTER TABLE {t} ADD COLUMN a INT",
    ],
    "smaller scale": ["ALTER TABLE {t} MODIFY d DECIMAL(10,1)"],
    "rows truncated": ["TRUNCATE TABLE {t}", "INSERT INTO {t} (id, a) VALUES (1000, 1)"],
    "dropped and created again": [
        "DROP TABLE {t}",
        "CREATE TABLE {t} (id INT PRIMARY KEY, a INT)",
        "INSERT INTO {t} VALUES (1000, 1)",
    ],
    "dropped and created again if it did not exist": [
        "DROP TABLE IF EXISTS {t}",
        "CREATE TABLE IF NOT EXISTS {t} (id INT PRIMARY KEY, a INT)",
    ],
    "swapped by RENAME": [
        "CREATE TABLE {s}.new_t (id INT PRIMARY KEY, a INT, n INT NOT NULL)",
        "INSERT INTO {s}.new_t SELECT id + 20, a, 7 FROM {t}",
        "RENAME TABLE {t} TO {s}.old_t, {s}.new_t TO {t}",
    ],
    "partition truncated": [
        PARTITIONED,
        "ALTER TABLE {t} TRUNCATE PARTITION p0",
    ],
    "partition exchanged": [
        PARTITIONED,
        "CREATE TABLE {s}.x (id INT PRIMARY KEY, a INT, b VARCHAR(20), d DECIMAL(10,2))",
        "INSERT INTO {s}.x VALUES (5, 55, 'exchanged', 5.5)",
        "ALTER TABLE {t} EXCHANGE PARTITION p0 WITH TABLE {s}.x",
    ],
}


MOMENTS = ("after the snapshot", "during the snapshot")


@pytest.mark.parametrize("case", at_moments([(how,) for how in REWRITES], MOMENTS))
def test_target_equals_the_table_after_rows_were_rewritten(mysql, table, case):
    (how,), when = case
    statements = REWRITES[how]
    chunk = 100 if when == "after the snapshot" else 5
    with Engine(options_for(mysql, table, snapshotChunkRows=chunk)) as engine:
        target = Target(engine, table)
        target.step()
        if when == "after the snapshot":
            target.drain(mysql)
            target.equals(mysql)
        for statement in statements:
            mysql.execute(statement.format(t=table, s=table.partition(".")[0]))
        mysql.execute(f"DELETE FROM {table} WHERE id = 3")
        target.drain(mysql)
        target.equals(mysql)


def test_statement_that_rewrites_nothing_reads_nothing_again(mysql, table):
    with Engine(options_for(mysql, table)) as engine:
        target = Target(engine, table)
        target.drain(mysql)
        mysql.execute(
            f"ALTER TABLE {table} ADD COLUMN c INT, ADD INDEX (a)",
            f"ALTER TABLE {table} COMMENT 'a table'",
            f"UPDATE {table} SET c = 1 WHERE id = 1",
        )
        target.drain(mysql)
        target.equals(mysql)
        assert not engine.offset.again
        assert engine.offset.to_json()["v"] == 1


def test_table_read_again_while_it_is_written_equals_its_target_batch_by_batch(mysql, table):
    """Each batch of a re-read leaves the keys up to the cursor as they are at the batch's position."""
    with Engine(options_for(mysql, table, snapshotChunkRows=5)) as engine:
        target = Target(engine, table)
        target.drain(mysql)
        mysql.execute(f"ALTER TABLE {table} ADD COLUMN c INT DEFAULT 5")
        for i in range(30):
            mysql.execute(
                f"UPDATE {table} SET a = a + 1 WHERE id % 7 = {i % 7}",
                f"DELETE FROM {table} WHERE id = {i + 10}",
                f"INSERT INTO {table} (id, a) VALUES ({100 + i}, {i}), ({-i - 1}, {i})",
            )
            target.step()
        target.drain(mysql)
        target.equals(mysql)
