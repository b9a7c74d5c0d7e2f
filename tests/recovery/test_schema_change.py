"""Schema changes at the worst moment: between a batch's position and the SELECT that reads as of it."""

from __future__ import annotations

import pytest

from tailrace.errors import SchemaMismatchError
from tests.support.engine import Engine, apply, changes_of, options_for, rows_of
from tests.support.rereading import Target


@pytest.fixture
def table(mysql, database):
    mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT, w VARCHAR(10))")
    mysql.execute(f"INSERT INTO {database}.t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')")
    return f"{database}.t"


def next_batch(engine):
    """The next batch's offsets: waits for the log, which comes by itself."""
    while (batch := engine.next()) is None:
        pass
    return batch


def drain(mysql, engine, state):
    """Apply what comes until the log's end is reached."""
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS")
        end = cursor.fetchone()[:2]
    while engine.offset.tables or (engine.offset.log["file"], engine.offset.log["pos"]) != tuple(end):
        batch = engine.next()
        if batch is not None:
            snapshot, log = engine.read(*batch)
            apply(state, changes_of(log), ("id",))
            state.update({(r["id"],): r for r in rows_of(snapshot)})
    return state


def drain_log(mysql, engine):
    """Snapshot and log part of everything up to the log's end."""
    ((file, pos, *_),) = mysql.execute("SHOW BINARY LOG STATUS")
    snapshot, log = [], []
    engine.plan.hold()
    while engine.offset.tables or (engine.offset.log["file"], engine.offset.log["pos"]) != (file, pos):
        batch = engine.next()
        if batch is not None:
            rows, changes = engine.read(*batch)
            snapshot += rows
            log += changes
    return snapshot, log


def test_column_dropped_before_the_select_reads_as_null_and_the_log_goes_on(mysql, table):
    mysql.execute(f"ALTER TABLE {table} MODIFY v INT NOT NULL, MODIFY w VARCHAR(10) NOT NULL")
    with Engine(options_for(mysql, table, snapshotChunkRows=100)) as engine:
        start, end = engine.next()
        mysql.execute(f"ALTER TABLE {table} DROP COLUMN w")
        mysql.execute(f"UPDATE {table} SET v = 20 WHERE id = 2")
        snapshot, _ = engine.read(start, end)
        assert [r["v"] for r in rows_of(snapshot)] == [1, 3, 4, 2]  # the changed row was rewound
        assert {r["w"] for r in rows_of(snapshot)} == {None}
        nullable = {name: {b.table.column(name).nullable for b in snapshot} for name in ("v", "w")}
        assert nullable == {"v": {False}, "w": {True}}, "targets refuse NULL in a column that is NOT NULL"
        batch = next_batch(engine)
        changes = changes_of(engine.read(*batch)[1])
        while not changes:
            changes = changes_of(engine.read(*next_batch(engine))[1])
        assert [(op, before, after) for op, before, after, _ in changes] == [
            ("u", {"id": 2, "v": 2}, {"id": 2, "v": 20})
        ]


def test_column_added_before_the_select_is_not_in_rows_of_the_position_before_it(mysql, table):
    with Engine(options_for(mysql, table, snapshotChunkRows=100)) as engine:
        start, end = engine.next()
        mysql.execute(f"ALTER TABLE {table} ADD COLUMN x INT FIRST")
        mysql.execute(f"UPDATE {table} SET x = 7 WHERE id = 1")
        snapshot, _ = engine.read(start, end)
        assert sorted(r["id"] for r in rows_of(snapshot)) == [1, 2, 3, 4]
        assert all(set(r) == {"id", "v", "w"} for r in rows_of(snapshot))


def test_table_dropped_before_the_select_reads_as_empty(mysql, table):
    with Engine(options_for(mysql, table, snapshotChunkRows=100)) as engine:
        start, end = engine.next()
        mysql.execute(f"DROP TABLE {table}")
        assert engine.read(start, end) == ([], [])


def test_key_dropped_before_the_select_stops_the_stream_with_a_clear_error(mysql, table):
    with Engine(options_for(mysql, table, snapshotChunkRows=100, onRewrite="ignore")) as engine:
        start, end = engine.next()
        mysql.execute(f"ALTER TABLE {table} DROP COLUMN id, ADD PRIMARY KEY (v)")
        with pytest.raises(SchemaMismatchError, match="key of"):
            engine.read(start, end)


def test_batches_are_cut_at_a_schema_change(mysql, table):
    with Engine(options_for(mysql, table, snapshotChunkRows=100)) as engine:
        engine.read(*engine.next())
        mysql.execute(f"INSERT INTO {table} VALUES (5, 5, 'e')")
        mysql.execute(f"ALTER TABLE {table} ADD COLUMN x INT")
        mysql.execute(f"INSERT INTO {table} VALUES (6, 6, 'f', 6)")
        schemas = []
        while len(schemas) < 2:
            batch = engine.next()
            if batch is None:
                continue
            found = {tuple(b.table.arrow.names) for b in engine.read(*batch)[1]}
            assert len(found) <= 1, "one batch holds two shapes"
            schemas += found
        assert schemas == [("id", "v", "w"), ("id", "v", "w", "x")]


def test_table_created_while_running_comes_as_creates(mysql, database):
    mysql.execute(f"CREATE TABLE {database}.a (id INT PRIMARY KEY)")
    with Engine(options_for(mysql, f"{database}.*")) as engine:
        engine.read(*engine.next())
        mysql.execute(f"CREATE TABLE {database}.b (id INT PRIMARY KEY)")
        mysql.execute(f"INSERT INTO {database}.b VALUES (1), (2)")
        seen = []
        while len(seen) < 2:
            batch = engine.next()
            if batch is not None:
                snapshot, log = engine.read(*batch)
                assert not snapshot
                seen += [(op, after) for op, _, after, _ in changes_of(log)]
        assert seen == [("c", {"id": 1}), ("c", {"id": 2})]


def test_table_of_mixed_history_ends_up_right(mysql, table):
    with Engine(options_for(mysql, table, snapshotChunkRows=1), parallelism=1) as engine:
        target = Target(engine, table)
        target.step()
        mysql.execute(f"UPDATE {table} SET v = 10 WHERE id = 1")
        mysql.execute(f"ALTER TABLE {table} MODIFY v BIGINT")
        mysql.execute(f"UPDATE {table} SET v = 5000000000 WHERE id = 4")
        mysql.execute(f"DELETE FROM {table} WHERE id = 3")
        target.drain(mysql)
        target.equals(mysql)


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE IF NOT EXISTS {it} (id INT PRIMARY KEY)", "CREATE TABLE {other} LIKE {it}"],
    ids=["if-not-exists", "like"],
)
def test_existing_table_that_a_create_statement_names_is_snapshotted(mysql, database, statement):
    mysql.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.it (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.it VALUES (1), (2), (3)",
    )
    with Engine(options_for(mysql, f"{database}.a")) as engine:
        engine.read(*engine.next())
        offset = engine.offset
    mysql.execute(statement.format(it=f"{database}.it", other=f"{database}.other"))
    with Engine(options_for(mysql, rf"{database}\.(a|it)")) as engine:  # widened, for AvailableNow
        engine.offset = offset
        engine.plan.hold()
        rows = []
        while (batch := engine.next()) is not None:
            rows += rows_of(engine.read(*batch)[0])
    assert sorted(row["id"] for row in rows) == [1, 2, 3]


def test_offset_forgets_tables_that_were_dropped(mysql, database):
    mysql.execute(f"CREATE TABLE {database}.a (id INT PRIMARY KEY)")
    with Engine(options_for(mysql, rf"{database}(_x)?\..*")) as engine:
        engine.read(*engine.next())
        for number in range(3):
            mysql.execute(
                f"CREATE TABLE {database}.b{number} (id INT PRIMARY KEY)",
                f"INSERT INTO {database}.b{number} VALUES ({number})",
                f"CREATE DATABASE {database}_x",
                f"CREATE TABLE {database}_x.c (id INT PRIMARY KEY, k INT NOT NULL UNIQUE)",
                f"INSERT INTO {database}_x.c VALUES ({number}, 1)",
            )
            if number != 1:  # else the stream first hears of it when it is gone
                drain_log(mysql, engine)
            mysql.execute(f"DROP TABLE {database}.b{number}", f"DROP DATABASE {database}_x")
            drain_log(mysql, engine)
            assert set(engine.offset.done) | set(engine.offset.tables) == {f"{database}.a"}
