"""Schema changes of PostgreSQL that rewrite rows without logging them: afterwards a target equals its table.

Each case runs at one moment, and at all of them with the slow tests.
"""

from __future__ import annotations

import pytest

from tailrace.enumerator import captured_tables
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import SchemaMismatchError
from tests.recovery.test_postgres_schema import stream
from tests.support.rereading import Target, at_moments

COLUMNS = "id int PRIMARY KEY, a int, b text, c text, d numeric(10,2)"
#: Statements that leave other rows than the log tells, on a plain table.
REWRITES = {
    "truncated": ["TRUNCATE t"],
    "truncated and filled": ["TRUNCATE t", "INSERT INTO t VALUES (1000, 1)"],
    "truncated within a transaction": [
        "BEGIN; INSERT INTO t VALUES (998); TRUNCATE t; INSERT INTO t VALUES (999); COMMIT"
    ],
    "truncated after changes": ["INSERT INTO t VALUES (998)", "UPDATE t SET a = 7", "TRUNCATE t"],
    "truncated, twice": [
        "TRUNCATE t",
        "INSERT INTO t VALUES (999)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (4)",
    ],
    "truncated with another": ["CREATE TABLE o (id int PRIMARY KEY REFERENCES t)", "TRUNCATE t CASCADE"],
    "column added with a default": ["ALTER TABLE t ADD n int DEFAULT 5"],
    "default dropped again": ["ALTER TABLE t ADD n int DEFAULT 5", "ALTER TABLE t ALTER n DROP DEFAULT"],
    "default dropped and rewritten": [
        "ALTER TABLE t ADD n int DEFAULT 5",
        "ALTER TABLE t ALTER n DROP DEFAULT",
        "VACUUM FULL t",
    ],
    "column added with a volatile default": ["ALTER TABLE t ADD n text DEFAULT clock_timestamp()::text"],
    "volatile default dropped again": [
        "ALTER TABLE t ADD n text DEFAULT clock_timestamp()::text",
        "ALTER TABLE t ALTER n DROP DEFAULT",
    ],
    "identity column added": ["ALTER TABLE t ADD n int GENERATED ALWAYS AS IDENTITY"],
    "column of a domain with a default added": [
        "CREATE DOMAIN five AS int DEFAULT 5",
        "ALTER TABLE t ADD n five",
    ],
    "generated column added": ["ALTER TABLE t ADD n int GENERATED ALWAYS AS (a + 1) STORED"],
    "generated column redefined": ["ALTER TABLE t ALTER g SET EXPRESSION AS (a + 2)"],
    "renamed": ["ALTER TABLE t RENAME a TO z"],
    "names swapped": [
        "ALTER TABLE t RENAME b TO x",
        "ALTER TABLE t RENAME c TO b",
        "ALTER TABLE t RENAME x TO c",
    ],
    "smaller scale": ["ALTER TABLE t ALTER d TYPE numeric(10,1)"],
    "another type": ["ALTER TABLE t ALTER d TYPE text"],
    "the same type by an expression": ["ALTER TABLE t ALTER b TYPE text USING b || '!'"],
    "dropped and created again": ["ALTER TABLE t DROP b", "ALTER TABLE t ADD b text"],
    "key renamed": ["ALTER TABLE t RENAME id TO key"],
}
#: The same on a table with partitions `low` (below 20) and `high`, which has partitions itself.
OF_PARTITIONS = {
    "root truncated": ["TRUNCATE t"],
    "partition truncated": ["TRUNCATE low"],
    "partitioned partition truncated": ["TRUNCATE high"],
    "partition dropped": ["DROP TABLE low"],
    "partition detached": ["ALTER TABLE t DETACH PARTITION low"],
    "partition detached and attached again": [
        "ALTER TABLE t DETACH PARTITION low",
        "DELETE FROM low WHERE id = 13",
        "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (20)",
    ],
    "partition attached": [
        "CREATE TABLE more (id int PRIMARY KEY, a int, b text)",
        "INSERT INTO more VALUES (2000, 1, 'x')",
        "ALTER TABLE t ATTACH PARTITION more FOR VALUES FROM (2000) TO (3000)",
    ],
    "partition made, filled and attached at once": [
        """BEGIN; CREATE TABLE more (LIKE t INCLUDING ALL); INSERT INTO more VALUES (2000, 1, 'x');
        ALTER TABLE t ATTACH PARTITION more FOR VALUES FROM (2000) TO (3000); COMMIT"""
    ],
    "partitioned partition attached": [
        "CREATE TABLE more (id int PRIMARY KEY, a int, b text) PARTITION BY RANGE (id)",
        "CREATE TABLE more1 PARTITION OF more FOR VALUES FROM (2000) TO (2500)",
        "INSERT INTO more VALUES (2000, 1, 'x')",
        "ALTER TABLE t ATTACH PARTITION more FOR VALUES FROM (2000) TO (3000)",
    ],
    "new partition truncated": [
        "CREATE TABLE more PARTITION OF t FOR VALUES FROM (2000) TO (3000)",
        "INSERT INTO t VALUES (2000, 1)",
        "TRUNCATE more",
    ],
    "column added with a default": ["ALTER TABLE t ADD n int DEFAULT 5"],
    "default dropped again": ["ALTER TABLE t ADD n int DEFAULT 5", "ALTER TABLE t ALTER n DROP DEFAULT"],
    "the same type by an expression": ["ALTER TABLE t ALTER b TYPE text USING b || '!'"],
}
#: The same on a table with columns of the types of the user.
OF_TYPES = {
    "label of an enum renamed": ["ALTER TYPE mood RENAME VALUE 'low' TO 'lower'"],
    "label of an enum in other types renamed": ["ALTER TYPE color RENAME VALUE 'red' TO 'rot'"],
    "attribute added to a composite type": ["ALTER TYPE pair ADD ATTRIBUTE z int"],
    "attribute of a composite type dropped": ["ALTER TYPE pair DROP ATTRIBUTE x"],
}
#: Statements after which every row is as it was, or as the log tells.
HARMLESS = {
    "column added": ["ALTER TABLE t ADD n int", "UPDATE t SET n = 1 WHERE id = 1"],
    "NOT NULL set and dropped": ["ALTER TABLE t ALTER a SET NOT NULL", "ALTER TABLE t ALTER a DROP NOT NULL"],
    "default of rows to come": ["ALTER TABLE t ALTER a SET DEFAULT 3", "INSERT INTO t (id) VALUES (99)"],
    "comments": ["COMMENT ON TABLE t IS 'x'", "COMMENT ON COLUMN t.a IS 'x'"],
    "index and statistics": ["CREATE INDEX ON t (a)", "ALTER TABLE t ALTER a SET STATISTICS 5", "ANALYZE t"],
    "VACUUM FULL": ["DELETE FROM t WHERE id = 2", "VACUUM FULL t"],
    "CLUSTER": ["CLUSTER t USING t_pkey"],
}
HARMLESS_OF_PARTITIONS = {
    "partition created": [
        "CREATE TABLE more PARTITION OF t FOR VALUES FROM (2000) TO (3000)",
        "INSERT INTO t VALUES (2000, 1)",
    ],
    "partitioned partition created": [
        "CREATE TABLE more PARTITION OF t FOR VALUES FROM (2000) TO (3000) PARTITION BY RANGE (id)",
        "CREATE TABLE more1 PARTITION OF more FOR VALUES FROM (2000) TO (3000)",
        "INSERT INTO t VALUES (2000, 1)",
    ],
    "column added": ["ALTER TABLE t ADD n int", "UPDATE t SET n = 1 WHERE id = 1"],
    "index and statistics": ["CREATE INDEX ON t (a)", "ANALYZE t"],
}


HARMLESS_OF_TYPES = {
    "label of an enum added": [
        "ALTER TYPE mood ADD VALUE 'middle' BEFORE 'high'",
        "UPDATE t SET m = 'middle' WHERE id = 4",
    ],
    "column of another enum added": ["ALTER TABLE t ADD s size", "UPDATE t SET s = 'l' WHERE id = 4"],
    "names of types and attributes": [
        "ALTER TYPE mood RENAME TO temper",
        "ALTER TYPE pair RENAME ATTRIBUTE x TO first",
    ],
}


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    return execute


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """The catalog is searched at every batch."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


def plain(run):
    run(
        f"CREATE TABLE t ({COLUMNS}, g int GENERATED ALWAYS AS (a * 10) STORED)",
        "INSERT INTO t SELECT n, n, 'b' || n, 'c' || n, n + 0.25 FROM generate_series(1, 30) n",
    )


def partitioned(run):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (20)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (20) TO (2000) PARTITION BY RANGE (id)",
        "CREATE TABLE higher PARTITION OF high FOR VALUES FROM (20) TO (2000)",
        "INSERT INTO t SELECT n, n, 'b' || n FROM generate_series(1, 30) n",
    )


def typed(run):
    run(
        "CREATE TYPE size AS ENUM ('s', 'l')",
        "CREATE TYPE mood AS ENUM ('low', 'high')",
        "CREATE TYPE color AS ENUM ('red', 'blue')",
        "CREATE DOMAIN tint AS color",
        "CREATE TYPE colors AS RANGE (subtype = color)",
        "CREATE TYPE pair AS (x int, y color[])",
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text, m mood, c tint, r colors, p pair)",
        "INSERT INTO t SELECT n, n, 'b', 'low', 'red', '[red,blue]', (n, '{red}')::pair"
        " FROM generate_series(1, 30) n",
    )


def script(run, statements):
    for statement in statements:
        run(*(part.strip() for part in statement.split(";")))


_REWRITES = {plain: REWRITES, partitioned: OF_PARTITIONS, typed: OF_TYPES}
_HARMLESS = {plain: HARMLESS, partitioned: HARMLESS_OF_PARTITIONS, typed: HARMLESS_OF_TYPES}
CASES = at_moments([(make, how) for make, rewrites in _REWRITES.items() for how in rewrites])


@pytest.mark.parametrize("case", CASES)
def test_target_equals_the_table_after_rows_were_rewritten(postgres, postgres_database, run, case):
    (make, how), when = case
    make(run)
    statements = _REWRITES[make][how]
    given = {"tables": "public.t", "snapshotChunkRows": 4 if when == "in the snapshot" else 1000}
    with stream(postgres, postgres_database, **given) as engine:
        target = Target(engine, "public.t")
        if when == "in the snapshot":
            assert target.step()
        else:
            target.drain_all()
            target.equals(postgres, database=postgres_database)
        run("INSERT INTO t (id, a) VALUES (5000, 5)" if make is plain else "INSERT INTO t VALUES (19, 1)"
            " ON CONFLICT (id) DO UPDATE SET a = 99")  # fmt: skip
        if when != "stopped":
            script(run, statements)
            target.drain_all()
            target.equals(postgres, database=postgres_database)
        offset = engine.offset
    if when == "stopped":
        script(run, statements)
    with stream(postgres, postgres_database, **given) as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert all(reread.done for reread in engine.offset.again.values())


@pytest.mark.parametrize(
    ("make", "how"),
    [(make, how) for make, harmless in _HARMLESS.items() for how in harmless],
)
def test_statement_that_changes_no_row_reads_nothing_again(postgres, postgres_database, run, make, how):
    make(run)
    with stream(postgres, postgres_database, "public.t") as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        script(run, _HARMLESS[make][how])
        for _ in range(2):
            run("INSERT INTO t (id) SELECT max(id) + 1 FROM t")
            target.drain_all()
            target.equals(postgres, database=postgres_database)
        assert engine.offset.to_json()["v"] == 1


@pytest.mark.parametrize("how", ["truncated", "column added with a default"])
def test_policy_decides_what_happens_to_rows_that_are_rewritten(postgres, postgres_database, run, how):
    plain(run)
    with stream(postgres, postgres_database, "public.t", onRewrite="fail") as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        offset, before = engine.offset, len(target.rows)
        script(run, REWRITES[how])
        run("INSERT INTO t (id) VALUES (3000)")
    for _ in range(2):
        with stream(postgres, postgres_database, "public.t", onRewrite="fail") as engine:
            engine.offset = StreamOffset.from_json(offset.to_json())
            with pytest.raises(SchemaMismatchError, match=r"rows of `public\.t` changed"):
                Target(engine, "public.t").drain_all()
    with stream(postgres, postgres_database, "public.t", onRewrite="ignore") as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        assert len(target.rows) == before + 1
        assert engine.offset.to_json()["v"] == 1


def test_offset_from_before_rows_were_told_apart_is_continued(postgres, postgres_database, run):
    plain(run)
    with stream(postgres, postgres_database, "public.t") as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        value = engine.offset.to_json()
    value["ids"]["public.t"] = "/".join(value["ids"]["public.t"].split("/")[:3])
    run("INSERT INTO t (id) VALUES (99)")
    with stream(postgres, postgres_database, "public.t") as engine:
        engine.offset = StreamOffset.from_json(value)
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert engine.offset.to_json()["v"] == 1
        run("ALTER TABLE t ADD n int DEFAULT 5")
        target.drain_all()
        target.equals(postgres, database=postgres_database)


def test_key_that_changes_while_the_stream_comes_to_a_rewrite_of_its_table(postgres, postgres_database, run):
    """The catalog is not read again before the first change is passed, and the log has the new key."""
    plain(run)
    with stream(postgres, postgres_database, tables="public.t", snapshotChunkRows=4) as engine:
        target = Target(engine, "public.t")
        assert target.step()
        run("ALTER TABLE t ALTER b TYPE text USING b || '!'")
        target.step()  # the rewrite is found
        run("ALTER TABLE t ALTER id TYPE text", "UPDATE t SET a = 0 WHERE id IN ('2', '20')")
        target.drain_all()
        target.equals(postgres, database=postgres_database)
