"""Schema changes of PostgreSQL as events of the stream: which they are, and where they are.

A target that renames and drops columns by events, and by nothing else, equals its table at any time. The
model of a target takes rows as they come: one of the old shape behind an event, or of the new one before,
leaves a column that the table does not have, or NULL in one that it has.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.enumerator import captured_tables
from tailrace.enumerator.enumerator import Limits
from tailrace.enumerator.offset import KnownShape, StreamOffset
from tailrace.errors import SchemaMismatchError
from tailrace.model.schema_change import schema_events
from tests.recovery.test_postgres_schema import stream
from tests.support.engine import multiset
from tests.support.rereading import Target, read

COLUMNS = "id int PRIMARY KEY, a int, b text, c varchar(9), d numeric(10,2)"


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    return execute


@pytest.fixture
def _at_every_batch(monkeypatch):
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


def plain(run, columns=COLUMNS, rest=""):
    run(
        f"CREATE TABLE t ({columns}){rest}",
        "INSERT INTO t (id, a, b, c, d) "
        "SELECT n, n, 'b' || n, 'c' || n, n + 0.25 FROM generate_series(1, 9) n",
    )


class Follower(Target):
    """A target that notes the events; batch by batch it has the columns that they tell."""

    def __init__(self, engine, table="public.t", *, strict=True):
        super().__init__(engine, table)
        self._strict = strict
        self.kinds = []
        self.events = []

    def apply(self, rows, log, *, end):
        events = schema_events(end)
        self.events += events
        self.kinds += [change.kind for event in events for change in event.changes]
        changes = [b for b in log if len(b)]
        if events and changes:
            first = min(min(b.origin.column("seq").to_pylist()) for b in changes)
            assert all(event.seq <= first for event in events)
        super().apply(rows, log, end=end)
        if self._strict:
            assert len({tuple(sorted(row)) for row in self.rows}) <= 1, "rows have several shapes"

    def is_told(self, postgres, database, *kinds):
        """Assert that it equals the table by these events alone."""
        self.drain_all()
        self.equals(postgres, database=database)
        names = {name for row in self.rows for name in row}
        assert names == {c.name for c in self.engine.plan._captured.schemas["public.t"].columns}
        assert (tuple(self.kinds), self.readings) == (kinds, 0)
        self.kinds.clear()


def following(postgres, database, **given):
    return stream(postgres, database, **{"tables": "public.t", "formerColumns": "follow"} | given)


#: Statements, and the kinds of the events.
TOLD = {
    "renamed": (["ALTER TABLE t RENAME a TO z"], ["rename.column"]),
    "dropped": (["ALTER TABLE t DROP b"], ["drop.column"]),
    "added": (["ALTER TABLE t ADD n int"], ["add.column"]),
    "widened": (["ALTER TABLE t ALTER c TYPE varchar(20)"], ["alter.column.type"]),
    "widened to text": (["ALTER TABLE t ALTER c TYPE text"], ["alter.column.type"]),
    "more digits": (["ALTER TABLE t ALTER d TYPE numeric(12,2)"], ["alter.column.type"]),
    "three at once": (
        ["BEGIN; ALTER TABLE t RENAME a TO z; ALTER TABLE t RENAME b TO y; ALTER TABLE t ADD n int; COMMIT"],
        ["rename.column", "rename.column", "add.column"],
    ),
    "rolled back": (["BEGIN; ALTER TABLE t RENAME a TO z; ROLLBACK"], []),
    "comments": (["COMMENT ON TABLE t IS 'x'", "COMMENT ON COLUMN t.a IS 'x'"], []),
}
#: The same, of changes that are told by the catalog alone.
TOLD_LATER = {
    "NOT NULL": (["ALTER TABLE t ALTER a SET NOT NULL"], ["alter.column.type"]),
    "renamed twice": (["ALTER TABLE t RENAME a TO y", "ALTER TABLE t RENAME y TO z"], ["rename.column"]),
    "renamed there and back": (["ALTER TABLE t RENAME a TO y", "ALTER TABLE t RENAME y TO a"], []),
    "dropped and another added": (
        ["ALTER TABLE t DROP b", "ALTER TABLE t ADD n int"],
        ["drop.column", "add.column"],
    ),
    "last in its transaction": (
        ["BEGIN; UPDATE t SET a = 5; ALTER TABLE t RENAME a TO z; COMMIT"],
        ["rename.column"],
    ),
}
UPDATE = "UPDATE t SET d = d + 1 WHERE id < 5"
#: The same with changes of rows between and behind them, which the stream reads at once.
TOLD_AHEAD = {
    "renamed twice": (
        ["ALTER TABLE t RENAME a TO y", UPDATE, "ALTER TABLE t RENAME y TO z", UPDATE],
        ["rename.column", "rename.column"],
    ),
    "renamed there and back": (
        ["ALTER TABLE t RENAME a TO y", UPDATE, "ALTER TABLE t RENAME y TO a", UPDATE],
        ["rename.column", "rename.column"],
    ),
    "added one by one": (
        ["ALTER TABLE t ADD m int", UPDATE, "ALTER TABLE t ADD n int", "UPDATE t SET n = 1 WHERE id = 2"],
        ["add.column", "add.column"],
    ),
    "added and renamed": (
        ["ALTER TABLE t ADD m int", "UPDATE t SET m = 1 WHERE id = 2", "ALTER TABLE t RENAME m TO n", UPDATE],
        ["add.column", "rename.column"],
    ),
    "renamed and dropped": (
        ["ALTER TABLE t RENAME a TO y", UPDATE, "ALTER TABLE t DROP b", UPDATE],
        ["rename.column", "drop.column"],
    ),
    "first in its transaction": (
        ["BEGIN; ALTER TABLE t RENAME a TO z; UPDATE t SET z = z + 1; COMMIT", UPDATE],
        ["rename.column"],
    ),
    "widened and renamed": (
        ["ALTER TABLE t ALTER c TYPE varchar(20)", UPDATE, "ALTER TABLE t RENAME c TO z", UPDATE],
        ["alter.column.type", "rename.column"],
    ),
}
#: What log and catalog do not tell.
UNTOLD = {
    "swapped": [
        (
            "BEGIN; ALTER TABLE t RENAME b TO x; ALTER TABLE t RENAME c TO b; "
            "ALTER TABLE t RENAME x TO c; COMMIT"
        ),
        UPDATE,
    ],
    "swapped one by one": [
        *("ALTER TABLE t RENAME b TO x", UPDATE, "ALTER TABLE t RENAME c TO b", UPDATE),
        *("ALTER TABLE t RENAME x TO c", UPDATE),
    ],
    "dropped and added by the same name": [
        "ALTER TABLE t DROP b",
        UPDATE,
        "ALTER TABLE t ADD b text",
        UPDATE,
    ],
    "renamed, and its name given again": ["ALTER TABLE t RENAME a TO z", "ALTER TABLE t ADD a int", UPDATE],
    "dropped, and another renamed to it": ["ALTER TABLE t DROP a", "ALTER TABLE t RENAME b TO a", UPDATE],
    "added and dropped": ["ALTER TABLE t ADD n int", "UPDATE t SET n = 1", "ALTER TABLE t DROP n", UPDATE],
    "two dropped": ["ALTER TABLE t DROP b", UPDATE, "ALTER TABLE t DROP c", UPDATE],
    "dropped, another added": ["ALTER TABLE t DROP b", UPDATE, "ALTER TABLE t ADD n text", UPDATE],
    "a drop and an add with rows of another": [
        *("ALTER TABLE t RENAME a TO n", UPDATE, "ALTER TABLE t RENAME n TO a"),
        *("ALTER TABLE t DROP a", "ALTER TABLE t ADD n int", UPDATE),
    ],
    "between changes of a transaction": [
        "BEGIN; UPDATE t SET a = 5; ALTER TABLE t RENAME a TO z; UPDATE t SET z = 6 WHERE id = 3; COMMIT"
    ],
    "twice in a transaction": [
        f"BEGIN; ALTER TABLE t RENAME a TO y; {UPDATE}; ALTER TABLE t RENAME y TO z; {UPDATE}; COMMIT"
    ],
    "key": ["ALTER TABLE t RENAME id TO key", "UPDATE t SET a = 3 WHERE key = 2"],
}


#: The cases of each test run; the slow tests have all.
FAST = (
    *("renamed", "dropped", "widened", "NOT NULL", "dropped and another added", "last in its transaction"),
    *("ahead: renamed there and back", "ahead: added and renamed", "ahead: first in its transaction"),
    *("swapped", "dropped and added by the same name", "two dropped", "between changes of a transaction"),
    "a drop and an add with rows of another",
)


def cases(names):
    """Parameters: these cases."""
    return [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in names]


def script(run, statements):
    for statement in statements:
        run(*(part.strip() for part in statement.split(";")))


@pytest.mark.usefixtures("_at_every_batch")
@pytest.mark.parametrize("how", cases([*TOLD, *TOLD_LATER]))
def test_schema_change_without_changes_behind_it_is_told_and_reads_nothing_again(
    postgres, postgres_database, run, how
):
    statements, kinds = {**TOLD, **TOLD_LATER}[how]
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine)
        target.drain_all()
        run(UPDATE)
        script(run, statements)
        target.is_told(postgres, postgres_database, *kinds)
        run("DELETE FROM t WHERE id = 1")
        target.is_told(postgres, postgres_database)


@pytest.mark.parametrize("moment", ["running", pytest.param("stopped", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", cases([*TOLD, *(f"ahead: {how}" for how in TOLD_AHEAD)]))
def test_schema_change_between_changes_has_its_place(postgres, postgres_database, run, how, moment):
    """The catalog is read when the log says so."""
    ahead = {f"ahead: {name}": case for name, case in TOLD_AHEAD.items()}
    statements, kinds = {**TOLD, **ahead}[how]
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine)
        target.drain_all()
        if moment == "stopped":
            engine.plan.close()
        run(UPDATE, "INSERT INTO t (id, a, d) VALUES (50, 1, 1)")
        script(run, statements)
        run("INSERT INTO t (id, d) VALUES (51, 1)", "UPDATE t SET d = 8 WHERE id IN (2, 3, 50)")
        target.is_told(postgres, postgres_database, *kinds)


@pytest.mark.parametrize("how", cases(UNTOLD))
def test_what_log_and_catalog_do_not_tell_is_read_again(postgres, postgres_database, run, how):
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        run(UPDATE)
        script(run, UNTOLD[how])
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings == 1
        run("DELETE FROM t WHERE d > 7")
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings == 1


def until_event(engine, target):
    """Apply batches; the first one with an event is returned, and not applied."""
    engine.plan.hold()
    while True:
        batch = engine.next()
        if batch[1].schema:
            return batch
        target.apply(*read(engine, batch), end=batch[1].to_json())


def test_batch_that_comes_again_begins_with_the_same_event(postgres, postgres_database, run):
    """Killed when a batch with an event was planned, or read; the table has changed once more since."""
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine)
        target.drain_all()
        run(UPDATE)
        target.drain_all()  # a batch after that of the last rows
        run(UPDATE, "ALTER TABLE t RENAME a TO y", "UPDATE t SET y = y + 1")
        start, end = until_event(engine, target)
        first = read(engine, (start, end))
    with following(postgres, postgres_database) as engine:  # the plan was not stored
        engine.offset = start
        assert until_event(engine, target)[1].schema == end.schema
    run("ALTER TABLE t RENAME y TO z", "ALTER TABLE t DROP b", UPDATE)
    with following(postgres, postgres_database) as engine:
        engine.offset = end
        target.engine = engine
        again = read(engine, (start, end))
        assert multiset(again[1]) == multiset(first[1])
        target.apply(*again, end=end.to_json())
        target.is_told(postgres, postgres_database, "rename.column", "drop.column", "rename.column")


def test_event_waits_for_the_log_that_is_older(postgres, postgres_database, run):
    """The catalog is ahead of a backlog that is read in small batches."""
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine)
        target.drain_all()
        run(*("INSERT INTO t (id, a, b) SELECT max(id) + 1, 5, 'x' FROM t" for _ in range(8)))
        run("ALTER TABLE t RENAME a TO z")
        engine.plan._captured._read_at = None
        engine.plan.hold()
        while (batch := engine.next(Limits(2, None))) is not None:
            target.apply(*read(engine, batch), end=batch[1].to_json())
        assert len(target.events) == 1
        target.is_told(postgres, postgres_database, "rename.column")


@pytest.mark.parametrize("read_at", ["middle", "end"])
@pytest.mark.parametrize("statement", ["ALTER TABLE t RENAME a TO z", "ALTER TABLE t DROP b"])
def test_table_that_is_altered_before_its_rows_are_read_is_read_again(
    postgres, postgres_database, run, statement, read_at
):
    plain(run)
    chunk = 4 if read_at == "middle" else 1000
    with following(postgres, postgres_database, snapshotChunkRows=chunk) as engine:
        target = Target(engine, "public.t")
        batch = engine.next()
        run(statement, UPDATE)
        target.apply(*read(engine, batch), end=batch[1].to_json())
        offset = engine.offset
    with following(postgres, postgres_database, snapshotChunkRows=chunk) as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings >= 1


def test_column_that_is_added_while_rows_are_read_has_them_read_once(postgres, postgres_database, run):
    plain(run)
    with following(postgres, postgres_database, snapshotChunkRows=4) as engine:
        target = Target(engine, "public.t")
        assert target.step()
        run("ALTER TABLE t ADD n int", "UPDATE t SET n = 1 WHERE id IN (2, 9)")
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings == 0


@pytest.mark.parametrize("via_root", [True, False])
def test_partitions_whose_columns_have_other_numbers_are_told(postgres, postgres_database, run, via_root):
    run(
        f"CREATE TABLE t ({COLUMNS}) PARTITION BY RANGE (id)",
        "CREATE TABLE low (x int, d numeric(10,2), c varchar(9), id int PRIMARY KEY, b text, a int)",
        "ALTER TABLE low DROP x",
        "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE high PARTITION OF t DEFAULT",
        "INSERT INTO t (id, a, b, c, d) SELECT n, n, 'b' || n, 'c' || n, 1 FROM generate_series(1, 9) n",
    )
    if not via_root:
        run("CREATE PUBLICATION tailrace FOR TABLE low, high")
    name = "t" if via_root else "low"
    with following(postgres, postgres_database, tables=f"public.{name}") as engine:
        target = Follower(engine, f"public.{name}")
        target.drain_all()
        run(UPDATE, "ALTER TABLE t RENAME a TO z", UPDATE, "ALTER TABLE t ADD n int")
        run("UPDATE t SET n = 3, z = 4 WHERE id IN (3, 8)")
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert (target.kinds, target.readings) == (["rename.column", "add.column"], 0)


def test_tables_that_inherit_are_told(postgres, postgres_database, run):
    run("CREATE TABLE base (a int, b text)", "CREATE TABLE t (id int PRIMARY KEY, d int) INHERITS (base)")
    run("INSERT INTO t SELECT n, 'b', n, n FROM generate_series(1, 9) n")
    with following(postgres, postgres_database) as engine:
        target = Follower(engine)
        target.drain_all()
        run(UPDATE, "ALTER TABLE base RENAME a TO z", UPDATE)
        target.is_told(postgres, postgres_database, "rename.column")
        run(UPDATE, "ALTER TABLE base ADD n int", "UPDATE t SET n = 4 WHERE id = 2")
        target.is_told(postgres, postgres_database, "add.column")


def test_targets_that_do_not_follow_are_given_the_rows_again_with_the_event(postgres, postgres_database, run):
    plain(run)
    with stream(postgres, postgres_database, "public.t") as engine:
        target = Follower(engine, strict=False)
        target.drain_all()
        run(UPDATE, "ALTER TABLE t RENAME a TO z", UPDATE)
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert (target.kinds, target.readings) == (["rename.column", "rewrite.rows"], 1)
        run("ALTER TABLE t ALTER c TYPE text", UPDATE)
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert (target.kinds[2:], target.readings) == (["alter.column.type"], 1)


STOPPING = {
    "add.column": "ALTER TABLE t ADD n int",
    "rename.column": "ALTER TABLE t RENAME a TO z",
    "drop.column": "ALTER TABLE t DROP b",
    "alter.column.type": "ALTER TABLE t ALTER c TYPE text",
    "rewrite.rows": "ALTER TABLE t ALTER a TYPE bigint",
}


@pytest.mark.parametrize("kind", STOPPING)
def test_schema_change_stops_the_stream_if_it_is_to(postgres, postgres_database, run, kind):
    plain(run)
    given = {"schema.change.behavior": "exception", "include.schema.changes": kind}
    with following(postgres, postgres_database, **given) as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        run(UPDATE)
        target.drain_all()
        offset, before = engine.offset, target.rows
        run(STOPPING[kind], UPDATE)
    for _ in range(2):
        with following(postgres, postgres_database, **given) as engine:
            engine.offset = StreamOffset.from_json(offset.to_json())
            target.engine = engine
            with pytest.raises(SchemaMismatchError) as raised:
                target.drain_all()
            assert raised.value.code == "TR-4430"
            assert {tuple(row) for row in target.rows} == {tuple(row) for row in before}
            offset = engine.offset
    with following(postgres, postgres_database) as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)


def test_offset_from_before_shapes_were_stored_is_continued(postgres, postgres_database, run):
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine, strict=False)
        target.drain_all()
        former = engine.offset.to_json()
    del former["shapes"]
    with following(postgres, postgres_database) as engine:
        engine.offset = StreamOffset.from_json(former)
        target.engine = engine
        run(UPDATE)
        target.is_told(postgres, postgres_database)
        run("ALTER TABLE t RENAME a TO z", UPDATE)
        target.is_told(postgres, postgres_database, "rename.column")
        former = engine.offset.to_json()
    del former["shapes"]
    run(UPDATE, "ALTER TABLE t RENAME z TO y", UPDATE)
    with following(postgres, postgres_database) as engine:
        engine.offset = StreamOffset.from_json(former)
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings == 1


def test_shape_that_need_not_hold_yet_tells_nothing(postgres, postgres_database, run):
    """The table joined the stream with columns from a catalog that is ahead of the log."""
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Follower(engine, strict=False)
        target.drain_all()
        offset = engine.offset
        run(UPDATE, "ALTER TABLE t RENAME a TO z", "UPDATE t SET z = 7 WHERE id = 2")
        end = engine.plan._source.log_end()
    with following(postgres, postgres_database) as engine:
        engine.plan._source.tables()
        shape = KnownShape(engine.plan._source.shapes()["public.t"], end.to_json())
        ids = {**engine.plan._source.identities()}
        engine.offset = replace(offset, shapes={"public.t": shape}, ids=ids)
        target.engine = engine
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings == 1


def test_first_change_after_a_restart_may_have_the_new_columns_amid_other_tables(
    postgres, postgres_database, run
):
    """The new connection describes the table for the first time, behind changes of another one."""
    plain(run)
    run("CREATE TABLE o (id int PRIMARY KEY)")
    with following(postgres, postgres_database, tables=r"public\.(t|o)") as engine:
        target = Follower(engine)
        target.drain_all()
        run(UPDATE)
        target.drain_all()
        engine.plan.close()
        run("INSERT INTO o VALUES (1)", "ALTER TABLE t RENAME a TO z", "INSERT INTO o VALUES (2)", UPDATE)
        target.is_told(postgres, postgres_database, "rename.column")


@pytest.mark.usefixtures("_at_every_batch")
def test_columns_of_a_catalog_that_is_behind_the_log_are_not_taken_for_those_of_the_log(
    postgres, postgres_database, run, monkeypatch
):
    """The table changes once more while the event of the first change waits for the log."""
    plain(run)
    with following(postgres, postgres_database) as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        run("ALTER TABLE t RENAME a TO z")
        engine.plan.hold()
        found = engine.plan._source.log_end

        def later():
            end = found()
            if run("SELECT 1 FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'z'"):
                run("ALTER TABLE t DROP z", "ALTER TABLE t ADD a int", "UPDATE t SET a = 77 WHERE id = 2")
            return end

        monkeypatch.setattr(engine.plan._source, "log_end", later)
        while target.step():
            pass
        engine.read_beyond()
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert target.readings >= 1
