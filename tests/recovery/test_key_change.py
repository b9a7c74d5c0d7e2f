"""A table's key changes while its snapshot runs: right rows, or one error that says what happened."""

from __future__ import annotations

import pytest

from tailrace.errors import KeyChangedError
from tailrace.reader.schema_projection import fit_batch
from tests.support.engine import Engine, Held, options_for
from tests.support.rereading import Target

ROWS = 300


@pytest.fixture(params=["mysql", "mariadb"])
def place(request):
    """A server and a database on it."""
    database = "database" if request.param == "mysql" else "mariadb_database"
    return request.getfixturevalue(request.param), request.getfixturevalue(database)


def rows_in(server, table):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT a, b, c FROM {table}")
        return {(b, c): {"a": a, "b": b, "c": c} for a, b, c in cursor.fetchall()}


def until_done(engine, sink, server, table, key):
    """Read until the snapshot is finished and the target is the table."""
    engine.plan.hold()
    while (batch := engine.next()) is not None:
        sink.take(*engine.read(*batch))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(key)} FROM {table}")
        assert set(sink.state) == {tuple(row) for row in cursor.fetchall()}


def filled(server, database, columns, rows):
    table = f"{database}.t"
    server.execute(f"CREATE TABLE {table} ({columns})", f"INSERT INTO {table} VALUES {rows}")
    return table


def numbers():
    return ", ".join(f"({n}, {n}, {n % 7})" for n in range(ROWS))


def read_on(engine):
    """Read until an error ends it."""
    for _ in range(1000):
        batch = engine.next()
        if batch is not None:
            engine.read(*batch)


def refused(server, table, statement, *, chunk=50, restarted=False):
    """The error after `statement` ran in the midst of the snapshot; a second process gets the same."""
    options = options_for(server, table, snapshotChunkRows=chunk, onRewrite="ignore")
    errors = []
    with Engine(options, parallelism=1) as engine:
        engine.read(*engine.next())
        assert engine.offset.tables
        server.execute(*statement)
        with pytest.raises(KeyChangedError) as caught:
            read_on(engine)
        errors.append(caught.value)
        offset = engine.offset
    with Engine(options, parallelism=1) as engine:
        engine.offset = offset
        with pytest.raises(KeyChangedError) as caught:
            read_on(engine)
        errors.append(caught.value)
    assert errors[1].table == table
    return errors


@pytest.mark.parametrize(
    ("change", "old", "new", "written"),
    [
        ("RENAME COLUMN id TO uid", "id int", "uid int", True),
        ("RENAME COLUMN id TO uid", "id int", "uid int", False),
        ("MODIFY id VARCHAR(20) NOT NULL", "id int", "id varchar(20)", True),
        ("MODIFY id SMALLINT NOT NULL", "id int", "id smallint", False),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "id int", "id int, v int", True),
        ("DROP COLUMN id, ADD PRIMARY KEY (v)", "id int", "v int", False),
    ],
    ids=["renamed-written", "renamed", "retyped-written", "narrowed", "longer-written", "dropped"],
)
def test_changed_primary_key_is_an_error_that_names_both_keys(place, change, old, new, written):
    server, database = place
    table = filled(server, database, "id INT PRIMARY KEY, v INT NOT NULL, w INT", numbers())
    statements = [f"ALTER TABLE {table} {change}"]
    if written:
        statements.append(f"UPDATE {table} SET w = w + 1")
    for error in refused(server, table, statements):
        assert f"`{table}`" in error.message
        assert f"({old})" in error.detail
        assert f"({new}" in error.detail
        assert error.hint


@pytest.mark.parametrize("other", ["utf8mb4_bin", "utf8mb4_general_ci"])
def test_changed_collation_of_the_key_is_an_error_and_loses_no_row(place, other):
    server, database = place
    words = ", ".join(f"('{chr(c)}{n}', {n})" for n in range(20) for c in b"abcdeABCDE"[n % 2 :: 2])
    table = filled(server, database, "k VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT", words)
    change = f"ALTER TABLE {table} MODIFY k VARCHAR(20) COLLATE {other}"
    for error in refused(server, table, [change], chunk=10):
        assert "k varchar(20) COLLATE utf8mb4_unicode_ci" in error.detail
        assert f"k varchar(20) COLLATE {other}" in error.detail


@pytest.mark.parametrize("when", ["planned", "between"])
def test_collation_changed_between_plan_and_read_is_an_error(mysql, database, when):
    words = ", ".join(f"('{chr(c)}{n}', {n})" for n in range(20) for c in b"abcdeABCDE"[n % 2 :: 2])
    table = filled(mysql, database, "k VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT", words)
    with Engine(options_for(mysql, table, snapshotChunkRows=20, onRewrite="ignore"), parallelism=1) as engine:
        batch = engine.next()
        if when == "between":
            engine.read(*batch)
            while (batch := engine.next()) is None or batch[0].tables == batch[1].tables:
                pass
        mysql.execute(f"ALTER TABLE {table} MODIFY k VARCHAR(20) COLLATE utf8mb4_bin")
        with pytest.raises(KeyChangedError, match="key of"):
            engine.read(*batch)


@pytest.mark.parametrize("change", ["MODIFY id BIGINT NOT NULL", "MODIFY id INT NOT NULL COMMENT 'x'"])
def test_wider_key_goes_on(place, change):
    server, database = place
    table = filled(server, database, "id INT PRIMARY KEY, v INT NOT NULL, w INT", numbers())
    with Engine(
        options_for(server, table, snapshotChunkRows=50, onRewrite="ignore"), parallelism=1
    ) as engine:
        sink = Held(engine, ("id",))
        sink.take(*engine.read(*engine.next()))
        server.execute(
            f"ALTER TABLE {table} {change}", f"INSERT INTO {table} VALUES (-1, 0, 0), (100000, 0, 0)"
        )
        until_done(engine, sink, server, table, ("id",))


@pytest.mark.parametrize(
    "change", ["ADD UNIQUE (a)", "ADD PRIMARY KEY (a)", "ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST"]
)
def test_table_keyed_by_a_unique_index_keeps_its_key_when_it_gets_another(place, change):
    server, database = place
    rows = ", ".join(f"({n}, {n // 10}, {n % 10})" for n in range(ROWS, 0, -1))
    table = filled(server, database, "a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE (b, c)", rows)
    with Engine(
        options_for(server, table, snapshotChunkRows=50, onRewrite="ignore"), parallelism=1
    ) as engine:
        sink = Held(engine, ("b", "c"))
        snapshot, log = engine.read(*engine.next())
        sink.take(snapshot, log)
        known = snapshot[0].table
        assert engine.offset.tables
        server.execute(
            f"UPDATE {table} SET a = a + 1000 WHERE b = 2",
            f"ALTER TABLE {table} {change}",
            f"UPDATE {table} SET a = a + 1000 WHERE b = 3",
        )
        engine.plan.hold()
        while (batch := engine.next()) is not None:
            snapshot, log = engine.read(*batch)
            assert {b.table.key for b in (*snapshot, *log)} <= {("b", "c")}
            # as a target with the columns of the start sees it
            sink.take([fit_batch(b, known) for b in snapshot], [fit_batch(b, known) for b in log])
        assert sink.state == rows_in(server, table)


def test_batch_of_a_table_keyed_by_a_unique_index_is_the_same_after_another_index(place):
    server, database = place
    table = filled(
        server,
        database,
        "a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE (b, c)",
        "(1, 1, 1), (2, 2, 2)",
    )
    options = options_for(server, table)
    with Engine(options) as engine:
        engine.read(*engine.next())
        server.execute(f"UPDATE {table} SET a = a + 10")
        while (batch := engine.next()) is None:
            pass
        before = [b.op.to_pylist() for b in engine.read(*batch)[1]]
        server.execute(f"ALTER TABLE {table} ADD UNIQUE (a)")
        with Engine(options) as other:
            assert [b.op.to_pylist() for b in other.read(*batch)[1]] == before
        with Engine(options) as other:  # a process that has planned, and so read the catalog
            other.offset = batch[1]
            other.next()
            assert [b.op.to_pylist() for b in other.read(*batch)[1]] == before


def test_unique_index_of_the_cursor_dropped_is_an_error(place):
    server, database = place
    rows = ", ".join(f"({n}, {n}, {n})" for n in range(ROWS))
    table = filled(server, database, "a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE u (b)", rows)
    for error in refused(server, table, [f"ALTER TABLE {table} DROP INDEX u, ADD PRIMARY KEY (a)"]):
        assert "(b int)" in error.detail
        assert "(a int)" in error.detail


@pytest.mark.parametrize("columns", ["k BLOB, v INT, PRIMARY KEY (k(4))", "k BINARY(4) PRIMARY KEY, v INT"])
def test_tables_with_binary_keys_are_read_whole(place, columns):
    server, database = place
    values = ", ".join(f"(x'{n:08x}', {n})" for n in range(1, ROWS))
    table = filled(server, database, columns, values)
    with Engine(options_for(server, table, snapshotChunkRows=20), parallelism=2) as engine:
        sink = Held(engine, ("k",))
        sink.take(*engine.read(*engine.next()))
        server.execute(f"UPDATE {table} SET v = v + 1")
        until_done(engine, sink, server, table, ("k",))


KEY_CHANGES = {
    "renamed": ("id INT PRIMARY KEY, v INT NOT NULL, w INT", "RENAME COLUMN id TO uid"),
    "retyped": ("id INT PRIMARY KEY, v INT NOT NULL, w INT", "MODIFY id VARCHAR(20) NOT NULL"),
    "longer": ("id INT PRIMARY KEY, v INT NOT NULL, w INT", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"),
    "another": ("id INT PRIMARY KEY, v INT NOT NULL, w INT", "DROP COLUMN id, ADD PRIMARY KEY (v)"),
    "added": ("id INT NOT NULL, v INT NOT NULL, w INT, UNIQUE (v)", "ADD PRIMARY KEY (id)"),
    "index replaced": (
        "id INT NOT NULL, v INT NOT NULL, w INT, UNIQUE u (id)",
        "DROP INDEX u, ADD UNIQUE (v)",
    ),
}


@pytest.mark.parametrize(("columns", "change"), KEY_CHANGES.values(), ids=KEY_CHANGES.keys())
def test_table_whose_key_changes_during_its_snapshot_is_read_again(mysql, database, columns, change):
    table = filled(mysql, database, columns, numbers())
    with Engine(options_for(mysql, table, snapshotChunkRows=50), parallelism=1) as engine:
        target = Target(engine, table)
        target.step()
        mysql.execute(
            f"ALTER TABLE {table} {change}",
            f"UPDATE {table} SET w = w + 1 WHERE v < 20",
            f"DELETE FROM {table} WHERE v = 3",
        )
        target.drain(mysql)
        target.equals(mysql)


@pytest.mark.parametrize(("old", "new"), [("unicode_ci", "bin"), ("bin", "unicode_ci")])
def test_table_whose_key_sorts_otherwise_during_its_snapshot_is_read_again(mysql, database, old, new):
    words = ", ".join(f"('{chr(c)}{n}', {n})" for n in range(20) for c in b"abcdeABCDE"[n % 2 :: 2])
    columns = f"k VARCHAR(20) COLLATE utf8mb4_{old} PRIMARY KEY, v INT"
    table = filled(mysql, database, columns, words)
    with Engine(options_for(mysql, table, snapshotChunkRows=10), parallelism=1) as engine:
        target = Target(engine, table)
        target.step()
        mysql.execute(f"ALTER TABLE {table} MODIFY k VARCHAR(20) COLLATE utf8mb4_{new}")
        target.drain(mysql)
        target.equals(mysql)
