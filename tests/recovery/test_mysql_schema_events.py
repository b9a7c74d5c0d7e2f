"""Schema changes of MySQL and MariaDB are events of the stream, in the offset of the batch they begin."""

from __future__ import annotations

import time

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import SchemaMismatchError
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    TableCreated,
    TableDropped,
    TableTruncated,
)
from tests.support.engine import Engine, multiset, options_for
from tests.support.rereading import Target

#: How long a test waits for a batch, seconds.
PATIENCE_S = 30.0


@pytest.fixture(params=["mysql", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def table(server, request):
    database = request.getfixturevalue("database" if server.product == "mysql" else "mariadb_database")
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
        f"INSERT INTO {database}.t VALUES (1, 10, 'x'), (2, 20, 'y')",
    )
    return f"{database}.t"


def batches(engine, until):
    """The batches up to the one that has a row with the id `until` in its log part."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        batch = engine.next()
        if batch is None:
            time.sleep(0.02)
            continue
        snapshot, log = engine.read(*batch)
        found.append((batch, snapshot, log))
        if any(until in b.image("after").field("id").to_pylist() for b in log):
            return found
    raise AssertionError(f"row {until} does not come")


def events_of(found):
    return [event for (_, end), *_ in found for event in end.schema]


STATEMENTS = (
    "ALTER TABLE {t} ADD COLUMN c INT DEFAULT 5",
    "ALTER TABLE {t} RENAME COLUMN a TO z",
    "ALTER TABLE {t} DROP COLUMN b",
    "ALTER TABLE {t} MODIFY z BIGINT",
    "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)",
    "TRUNCATE TABLE {t}",
)


def test_each_schema_change_is_in_the_offset_of_the_batch_that_begins_with_it(server, table):
    with Engine(options_for(server, table)) as engine:
        Target(engine, table).drain(server)
        found = []
        for number, statement in enumerate(STATEMENTS):
            insert = f"INSERT INTO {table} (id) VALUES ({number + 100})"
            server.execute(statement.format(t=table), insert)
            found += batches(engine, number + 100)
        events = events_of(found)
        added, renamed, dropped, altered, key, truncated = [c for e in events for c in e.changes]
        assert isinstance(added, ColumnAdded)
        assert (added.column.name, added.column.type.native, added.default) == ("c", "int", "5")
        assert (renamed, dropped) == (ColumnRenamed("a", "z"), ColumnDropped("b"))
        assert isinstance(altered, ColumnAltered)
        assert (altered.old.type.native, altered.new.type.native) == ("int", "bigint")
        assert (key, truncated) == (KeyAltered(("id",), ("id", "c")), TableTruncated())
        assert all(len(end.schema) <= 1 for (_, end), *_ in found), "a batch has one statement at most"
        assert [event.ddl for event in events] == [s.format(t=table) for s in STATEMENTS]
        assert [c.name for c in events[-1].after.columns] == ["id", "z", "c"]
        assert all(abs(event.ts_ms / 1000 - time.time()) < 600 for event in events)
        seqs = [event.seq for event in events]
        assert seqs == sorted(seqs)
        for (_, end), _, log in found:  # a batch's changes are behind the statement it begins with
            for change in log:
                assert not end.schema or change.origin.column("seq")[0].as_py() > end.schema[-1].seq


def test_schema_changes_that_follow_each_other_are_told_as_far_as_the_catalog_knows(server, table):
    with Engine(options_for(server, table)) as engine:
        Target(engine, table).drain(server)
        server.execute(*(s.format(t=table) for s in STATEMENTS), f"INSERT INTO {table} (id) VALUES (3)")
        changes = [event.changes for event in events_of(batches(engine, 3))]
        assert changes == [
            (RowsRewritten("`c` was added with a default"),),  # a later statement names it
            (ColumnRenamed("a", "z"),),
            (ColumnDropped("b"),),
            changes[3],
            (KeyAltered(("id",), ("id", "c")),),
            (TableTruncated(),),
        ]
        assert isinstance(changes[3][0], ColumnAltered)


def test_schema_changes_of_many_tables_are_in_few_batches_and_those_of_one_table_in_several(server, table):
    database = table.partition(".")[0]
    names = [f"{database}.t{number}" for number in range(4)]
    server.execute(*(f"CREATE TABLE {n} (id INT PRIMARY KEY, a INT)" for n in names))
    options = options_for(server, rf"{database}\.t\d?")
    with Engine(options) as engine:
        Target(engine, table).drain(server)
        server.execute(
            *(f"ALTER TABLE {name} RENAME COLUMN a TO b" for name in names),
            f"ALTER TABLE {names[1]} RENAME COLUMN b TO c",  # of the same table: another batch
            f"ALTER TABLE {names[2]} ADD COLUMN d INT",
            f"INSERT INTO {names[3]} VALUES (7, 7)",  # a row: what follows is another batch
            f"ALTER TABLE {names[0]} DROP COLUMN b",
            f"INSERT INTO {table} (id) VALUES (3)",
        )
        found = batches(engine, 3)
        changed = [[event.table for event in end.schema] for (_, end), *_ in found if end.schema]
        assert changed == [names, [names[1], names[2]], [names[0]]]
        assert [c for e in events_of(found) for c in e.changes] == [
            *[ColumnRenamed("a", "b")] * 4,
            ColumnRenamed("b", "c"),
            *events_of(found)[5].changes,
            ColumnDropped("b"),
        ]
        seqs = [event.seq for event in events_of(found)]
        assert seqs == sorted(set(seqs))
        ((_, end), _, log) = next(b for b in found if b[2])
        assert all(
            seq > end.schema[-1].seq for change in log for seq in change.origin.column("seq").to_pylist()
        )


def test_events_are_dropped_by_the_next_batch_and_survive_a_restart(server, table):
    options = options_for(server, table)
    with Engine(options) as engine:
        Target(engine, table).drain(server)
        server.execute(f"ALTER TABLE {table} RENAME COLUMN a TO z", f"INSERT INTO {table} VALUES (3, 1, 'q')")
        found = batches(engine, 3)
        (((start, end), snapshot, log),) = [b for b in found if b[0][1].schema]
        assert engine.next() is None or not engine.offset.schema
    assert StreamOffset.from_json(end.to_json()) == end
    with Engine(options) as again:
        assert list(map(multiset, again.read(start, end))) == list(map(multiset, (snapshot, log)))


def test_after_a_restart_a_redefined_column_counts_as_rewritten(server, table):
    options = options_for(server, table)
    with Engine(options) as engine:
        Target(engine, table).drain(server)
        offset = engine.offset
    server.execute(f"ALTER TABLE {table} MODIFY a BIGINT", f"INSERT INTO {table} VALUES (3, 1, 'q')")
    with Engine(options) as engine:
        engine.offset = offset
        (event,) = events_of(batches(engine, 3))
        assert event.changes == (RowsRewritten("column `a` was redefined"),)


def test_table_swapped_dropped_and_created_has_one_change_each(server, table):
    name = table.partition(".")[0]
    with Engine(options_for(server, table)) as engine:
        Target(engine, table).drain(server)
        server.execute(
            f"CREATE TABLE {name}._t_gho (id INT PRIMARY KEY, a INT, n INT NOT NULL)",
            f"RENAME TABLE {table} TO {name}._t_del, {name}._t_gho TO {table}",
            f"DROP TABLE {table}",
            f"CREATE TABLE {table} (id INT PRIMARY KEY)",
            f"INSERT INTO {table} VALUES (3)",
        )
        assert [event.changes for event in events_of(batches(engine, 3))] == [
            (RowsRewritten(f"`{name}._t_gho` was renamed to its name"),),
            (TableDropped(),),
            (TableCreated(),),
        ]


@pytest.mark.parametrize(
    "statement",
    [
        "SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE {t} ADD c INT DEFAULT 5",
        "/*M! ALTER TABLE {t} ADD c INT DEFAULT 5 */",
    ],
)
def test_mariadbs_own_forms_of_a_schema_change_are_seen(mariadb, mariadb_database, statement):
    table = f"{mariadb_database}.t"
    mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    with Engine(options_for(mariadb, table)) as engine:
        target = Target(engine, table)
        target.drain(mariadb)
        mariadb.execute(statement.format(t=table), f"INSERT INTO {table} VALUES (2, 2)")
        (event,) = events_of(batches(engine, 2))
        assert event.changes[0].default == "5"


GONE = [("onTruncate", "TRUNCATE {t}"), ("onDropTable", "DROP TABLE {t}")]

# ---- settings --------------------------------------------------------------------------------


def test_exception_stops_the_stream_before_the_change(server, table):
    given = {"schema.change.behavior": "exception", "exclude.schema.changes": "add.column"}
    with Engine(options_for(server, table, **given)) as engine:
        target = Target(engine, table)
        target.drain(server)
        server.execute(
            f"ALTER TABLE {table} ADD COLUMN c INT",
            f"INSERT INTO {table} (id) VALUES (3)",
            f"ALTER TABLE {table} DROP COLUMN b",
            f"INSERT INTO {table} (id) VALUES (4)",
        )
        with pytest.raises(SchemaMismatchError, match=r"drop\.column") as caught:
            target.drain(server)
        assert caught.value.code == "TR-4430"
        assert [row["id"] for row in target.rows] == [1, 2, 3]
        offset = engine.offset
    with Engine(options_for(server, table)) as engine:  # goes on with the change
        engine.offset, target.engine = offset, engine
        target.drain(server)
        target.equals(server)


@pytest.mark.parametrize(("option", "statement"), GONE)
@pytest.mark.parametrize("setting", ["apply", "ignore"])
def test_rows_of_a_truncated_or_dropped_table_go_or_stay_by_setting(
    server, table, option, statement, setting
):
    kept = [1, 2] if setting == "ignore" else []
    with Engine(options_for(server, f"{table}.*", **{option: setting})) as engine:
        server.execute(f"CREATE TABLE {table}2 (id INT PRIMARY KEY)")
        target = Target(engine, table)
        target.drain(server)
        server.execute(statement.format(t=table))
        target.drain(server)
        assert [row["id"] for row in target.rows] == kept
        server.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
            f"INSERT INTO {table} VALUES (3, 30, 'z')",
        )
        target.drain(server)
        assert [row["id"] for row in target.rows if row["id"] == 3] == [3]


@pytest.mark.parametrize(("option", "statement"), GONE)
def test_fail_stops_the_stream_before_rows_go(server, table, option, statement):
    with Engine(options_for(server, table, **{option: "fail"})) as engine:
        target = Target(engine, table)
        target.drain(server)
        server.execute(statement.format(t=table))
        with pytest.raises(SchemaMismatchError, match=option):
            target.drain(server)
        assert [row["id"] for row in target.rows] == [1, 2]


def test_password_in_a_statement_is_in_no_offset_and_no_log(server, table, caplog):
    """A FEDERATED table's address has one; other engines accept and log it, too."""
    caplog.set_level("DEBUG")
    other = table[:-1] + "federated"
    options = options_for(server, f"{table},{other}")
    with Engine(options) as engine:
        Target(engine, table).drain(server)
        server.execute(
            f"CREATE TABLE {other} (id INT PRIMARY KEY) CONNECTION='mysql://u:s3cr3t@h:3306/d/t'",
            f"ALTER TABLE {other} CONNECTION='mysql://u:s3cr3t@h:3306/d/u'",
            f"INSERT INTO {table} (id) VALUES (100)",
        )
        found = batches(engine, 100)
    texts = [event.ddl for event in events_of(found)]
    assert any("CONNECTION='***'" in text for text in texts), texts
    assert "s3cr3t" not in "".join(str(end.to_json()) for (_, end), *_ in found)
    assert "s3cr3t" not in caplog.text
