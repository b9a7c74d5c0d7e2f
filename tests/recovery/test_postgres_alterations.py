"""PostgreSQL tables that are altered between the plan of a batch and the read of its rows, or hide rows.

What must hold: rows are those of the table, with the values that it has; or the batch is read again.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from tailrace.errors import SchemaMismatchError, SourceError, TransientSourceError
from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import read_snapshot, read_until_rewritten
from tailrace.sources import registry
from tests.recovery.test_postgres_schema import read_all, stream
from tests.support.engine import Engine, rows_of
from tests.support.postgres import options_for
from tests.support.rereading import Target, read


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    return execute


def snapshot_splits(engine, batch):
    return [s for s in engine.plan.splits(*batch) if isinstance(s, SnapshotSplit)]


def rows_of_splits(options, splits, read_split=read_snapshot):
    rows = []
    for split in splits:
        session = registry.session(options)
        try:
            rows += rows_of(list(read_split(session.located(split), session, exact=True)))
        finally:
            session.close()
    return rows


def planned(engine):
    """The splits of the first batch."""
    return snapshot_splits(engine, engine.next())


#: Types with the same number of bytes, of which one is read as the other.
SAME_LENGTH = {
    "int8 to timestamp": ("int8", "ALTER v TYPE timestamp USING to_timestamp(v) AT TIME ZONE 'UTC'"),
    "int4 to date": ("int4", "ALTER v TYPE date USING date '2026-01-01' + v"),
    "int8 to money": ("int8", "ALTER v TYPE money USING v::money"),
    "int8 to float8": ("int8", "ALTER v TYPE float8"),
    "float8 to int8": ("float8", "ALTER v TYPE int8"),
    "timestamp to timestamptz": ("timestamp", "ALTER v TYPE timestamptz USING v AT TIME ZONE 'Asia/Tokyo'"),
}
VALUE = {"timestamp": "'2026-01-01 00:00:00'"}


@pytest.mark.parametrize("how", SAME_LENGTH)
def test_type_of_the_same_length_is_never_read_as_the_other(postgres, postgres_database, run, how):
    type_, alter = SAME_LENGTH[how]
    run(
        f"CREATE TABLE t (id int PRIMARY KEY, v {type_})",
        f"INSERT INTO t SELECT n, {VALUE.get(type_, 'n')} FROM generate_series(1, 100) n",
    )
    with stream(postgres, postgres_database, snapshotChunkRows=10) as engine:
        seen = rows_of(engine.read(*engine.next())[0])
        run(f"ALTER TABLE t {alter}")
        engine.plan._source._snapshots.discard()  # the next batch reads under a snapshot from now
        rows, _, _ = read_all(postgres, engine)
    assert {row["id"] for row in (*seen, *rows)} == set(range(1, 101))  # what was altered is read again
    expected = dict(run("SELECT id, v::text FROM t"))
    for row in rows:
        value = row["v"]
        if isinstance(value, datetime):
            value = value.isoformat(" ").replace("+00:00", "+00")
        if isinstance(value, float):
            value = f"{value:.0f}"
        shown = expected[row["id"]]
        if how.endswith("money"):
            shown = shown.strip("$")
        if how.endswith("timestamptz"):
            shown = "2025-12-31 15:00:00+00"
        assert str(value) == shown


def test_type_that_changes_between_plan_and_read_has_the_batch_planned_again(
    postgres, postgres_database, run
):
    run("CREATE TABLE t (id int PRIMARY KEY, v varchar(3))", "INSERT INTO t VALUES (1, 'a')")
    with stream(postgres, postgres_database) as engine:
        batch = engine.next()
        splits = snapshot_splits(engine, batch)
        run("ALTER TABLE t ALTER v TYPE varchar(9)")  # without rewriting the table
        with pytest.raises(TransientSourceError, match="was altered after its batch was planned"):
            rows_of_splits(engine.options, splits)
        assert rows_of(engine.read(*batch)[0]) == [{"id": 1, "v": "a"}]


RENAMES = {
    "one column": ("ALTER TABLE t RENAME a TO c", {"id": 1, "a": 2, "b": 3}),
    "the key": ("ALTER TABLE t RENAME id TO key", {"id": 1, "a": 2, "b": 3}),
    "two names swapped": (
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b",
        {"id": 1, "a": 2, "b": 3},
    ),
    "another column under the old name": (
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t ADD a int",
        {"id": 1, "a": 2, "b": 3},
    ),
    "a dropped column": ("ALTER TABLE t DROP b", {"id": 1, "a": 2, "b": None}),
}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("how", RENAMES)
def test_column_that_is_renamed_between_plan_and_read_keeps_its_values(
    postgres, postgres_database, run, how, identity
):
    statements, expected = RENAMES[how]
    run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 2, 3)")
    run(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    with stream(postgres, postgres_database) as engine:
        splits = planned(engine)
        run(*statements.split("; "))
        assert rows_of_splits(engine.options, splits) == [expected]


#: What happens after a batch is planned, and the rows that it has when it is repeated; None: it is refused.
REPEATED = {
    "renamed": (["ALTER TABLE t RENAME a TO c", "UPDATE t SET b = 9"], {"id": 1, "c": 2, "b": 3}),
    "renamed after a change": (
        ["UPDATE t SET b = 9", "ALTER TABLE t RENAME a TO c"],
        {"id": 1, "c": 2, "b": 3},
    ),
    "swapped after a change": (
        [
            "UPDATE t SET b = 9",
            "ALTER TABLE t RENAME a TO x",
            "ALTER TABLE t RENAME b TO a",
            "ALTER TABLE t RENAME x TO b",
        ],
        {"id": 1, "b": 2, "a": 3},
    ),
    "key renamed after a change": (
        ["UPDATE t SET b = 9", "ALTER TABLE t RENAME id TO key"],
        {"key": 1, "a": 2, "b": 3},
    ),
    "renamed and dropped": (
        ["UPDATE t SET b = 9", "ALTER TABLE t RENAME a TO c", "ALTER TABLE t DROP b"],
        None,
    ),
    "added": (["UPDATE t SET b = 9", "ALTER TABLE t ADD c int"], {"id": 1, "a": 2, "b": 3, "c": None}),
    "int to date": (
        ["UPDATE t SET b = 9", "ALTER TABLE t ALTER a TYPE date USING date '2026-01-01' + a"],
        None,
    ),
}


@pytest.mark.parametrize("how", REPEATED)
def test_repeated_batch_reconstructs_rows_under_renamed_columns_or_refuses(
    postgres, postgres_database, run, how
):
    statements, expected = REPEATED[how]
    run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 2, 3)")
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    options = options_for(postgres, postgres_database, "public.t", onRewrite="fail")
    with Engine(options) as engine:
        batch = engine.next()
        assert len(rows_of(engine.read(*batch)[0])) == 1
    run(*statements)
    with Engine(options) as engine:
        if expected is None:
            with pytest.raises(SchemaMismatchError, match=r"public\.t"):
                engine.read(*batch)
        else:
            assert rows_of(engine.read(*batch)[0]) == [expected]


@pytest.mark.parametrize("how", REPEATED)
def test_repeated_batch_of_an_altered_table_is_followed_by_reading_it_again(
    postgres, postgres_database, run, how
):
    statements, _ = REPEATED[how]
    run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 2, 3)")
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    options = options_for(postgres, postgres_database, "public.t")
    with Engine(options) as engine:
        start, end = engine.next()
    run(*statements)
    with Engine(options) as engine:
        engine.offset = end
        target = Target(engine, "public.t")
        target.apply(*read(engine, (start, end)), end=end.to_json())
        run("INSERT INTO t VALUES (2)")
        target.drain_all()
        target.equals(postgres, database=postgres_database)


@pytest.mark.parametrize("how", ["key dropped", "key retyped", "renamed and dropped", "dropped"])
def test_table_altered_between_plan_and_read_is_read_again(postgres, postgres_database, run, how):
    statements = {
        "key dropped": ["ALTER TABLE t DROP id, ADD PRIMARY KEY (a)"],
        "key retyped": ["ALTER TABLE t ALTER id TYPE text"],
        "renamed and dropped": ["ALTER TABLE t RENAME a TO c", "ALTER TABLE t DROP b"],
        "dropped": ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, a int)"],
    }[how]
    run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 2, 3)")
    with stream(postgres, postgres_database, "public.t") as engine:
        target = Target(engine, "public.t")
        batch = engine.next()
        splits = snapshot_splits(engine, batch)
        run(*statements)
        try:
            rows_of_splits(engine.options, splits, read_until_rewritten)
        except TransientSourceError:
            engine.plan.close()
        target.apply(*read(engine, batch), end=batch[1].to_json())
        run("INSERT INTO t VALUES (7)")
        target.drain_all()
        target.equals(postgres, database=postgres_database)


def test_rows_of_tables_that_inherit_are_not_those_of_their_parent(postgres, postgres_database, run):
    run(
        "CREATE TABLE parent (id int PRIMARY KEY, v int)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE other (w int) INHERITS (parent)",
        "INSERT INTO parent SELECT n, 0 FROM generate_series(1, 20) n",
        "INSERT INTO child SELECT n, 1 FROM generate_series(10, 60) n",
        "INSERT INTO other SELECT n, 2, 3 FROM generate_series(10, 60) n",
    )
    with stream(postgres, postgres_database, "public.parent", snapshotChunkRows=7) as engine:
        rows, _, _ = read_all(postgres, engine)
        # neither is in the publication: without a key its updates would fail
        run("UPDATE parent SET v = 5", "DELETE FROM other")
        _, changes, _ = read_all(postgres, engine)
        (table,) = engine.plan._source.tables()
        pages = list(engine.plan._source.read_table(table.schema, 100))
    assert sorted((row["id"], row["v"]) for row in rows) == [(n, 0) for n in range(1, 21)]
    assert sorted((op, after["id"]) for op, _, after, _ in changes) == [("u", n) for n in range(1, 21)]
    assert sum(len(page.rows) for page in pages) == 20


def test_row_security_that_appears_is_an_error_and_hides_no_row(postgres, postgres_database, run):
    reader = f"reader_{postgres_database}"
    run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 60)")
    run(f"CREATE ROLE {reader} LOGIN REPLICATION PASSWORD '{postgres.password}'")
    run(f"GRANT SELECT ON t TO {reader}", "CREATE PUBLICATION tailrace FOR TABLE t")
    try:
        with stream(postgres, postgres_database, user=reader, snapshotChunkRows=10) as engine:
            engine.read(*engine.next())
            run(
                "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
                f"CREATE POLICY half ON t TO {reader} USING (id % 2 = 0)",
            )
            with pytest.raises(SourceError, match="row-level security hides rows") as raised:
                read_all(postgres, engine)
            assert "BYPASSRLS" in raised.value.hint
            postgres.execute(f"ALTER ROLE {reader} BYPASSRLS")
            rows, _, _ = read_all(postgres, engine)
            assert {row["id"] for row in rows} >= set(range(21, 61))
    finally:
        run(f"DROP OWNED BY {reader}", f"DROP ROLE {reader}")


def test_log_of_renamed_key_is_followed(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 50) n",
    )
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    with stream(postgres, postgres_database, snapshotChunkRows=10) as engine:
        first = rows_of(engine.read(*engine.next())[0])
        run(
            "UPDATE t SET v = 1 WHERE id = 3",
            "ALTER TABLE t RENAME id TO key",
            "UPDATE t SET v = 2 WHERE key = 4",
        )
        engine.plan._source._snapshots.discard()
        rows, changes, _ = read_all(postgres, engine)
    assert {row.get("id", row.get("key")) for row in [*first, *rows]} == set(range(1, 51))
    assert [(op, after["v"]) for op, _, after, _ in changes] == [("u", 1), ("u", 2)]
