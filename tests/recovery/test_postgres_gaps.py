"""PostgreSQL tables that are no longer the same under their names, and publications that are altered.

Whatever happens to a table while nobody looks, the stream reads it again. With `onRewrite=ignore` it ends
with an error that names it, at every start.
"""

from __future__ import annotations

import pickle

import pytest

from tailrace.enumerator import captured_tables
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PreflightError, SourceError, TableGapError
from tests.recovery.test_postgres_schema import read_all, stream
from tests.support.rereading import Target, at_moments, read

SWAP = (
    "ALTER TABLE t RENAME TO spare",
    "ALTER TABLE s RENAME TO t",
    "ALTER TABLE spare RENAME TO s",
)
ANEW = ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (7)")
#: How a table gets a gap: statements for an explicit publication and for one FOR ALL TABLES.
GAPS = {
    "made anew": ANEW,
    "swapped with a captured table": (*SWAP, "INSERT INTO t VALUES (8)"),
    "renamed away and back": (
        "ALTER TABLE t RENAME TO away_t",
        "INSERT INTO away_t VALUES (9)",
        "ALTER TABLE away_t RENAME TO t",
    ),
    "moved to another schema and back": (
        "CREATE SCHEMA other",
        "ALTER TABLE t SET SCHEMA other",
        "INSERT INTO other.t VALUES (9)",
        "ALTER TABLE other.t SET SCHEMA public",
    ),
}
OF_PUBLICATION = {
    "removed and added again": (
        "ALTER PUBLICATION tailrace DROP TABLE t",
        "INSERT INTO t VALUES (9)",
        "ALTER PUBLICATION tailrace ADD TABLE t",
    ),
    "removed": ("ALTER PUBLICATION tailrace DROP TABLE t", "INSERT INTO t VALUES (9)"),
    "filtered for a time": (
        "ALTER PUBLICATION tailrace SET TABLE t WHERE (id < 5), s",
        "INSERT INTO t VALUES (9)",
        "ALTER PUBLICATION tailrace SET TABLE t, s",
    ),
    "filtered": ("ALTER PUBLICATION tailrace SET TABLE t WHERE (id < 5), s", "INSERT INTO t VALUES (9)"),
    "without updates for a time": (
        "ALTER PUBLICATION tailrace SET (publish = 'insert')",
        "UPDATE t SET id = 9 WHERE id = 1",
        "ALTER PUBLICATION tailrace SET (publish = 'insert, update, delete, truncate')",
    ),
    "without updates": (
        "ALTER PUBLICATION tailrace SET (publish = 'insert')",
        "UPDATE t SET id = 9 WHERE id = 1",
    ),
    "dropped and created again": (
        "DROP PUBLICATION tailrace",
        "CREATE PUBLICATION tailrace FOR TABLE s",
        "INSERT INTO t VALUES (9)",
        "DROP PUBLICATION tailrace",
        "CREATE PUBLICATION tailrace FOR TABLE t, s",
    ),
}


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE s (id int PRIMARY KEY)")
    execute("INSERT INTO t VALUES (1)", "INSERT INTO s VALUES (2)")
    return execute


def begun(postgres, database, tables="public.[st]", **given):
    """The offset of a stream that has read everything."""
    with stream(postgres, database, tables, **given) as engine:
        read_all(postgres, engine)
        return engine.offset


def refused(postgres, database, offset, tables="public.[st]"):
    """What a stream says that is started at an offset, twice."""
    errors = []
    for _ in range(2):
        with stream(postgres, database, tables, onRewrite="ignore") as engine:
            engine.offset = StreamOffset.from_json(offset.to_json())
            with pytest.raises(TableGapError) as raised:
                read_all(postgres, engine)
            errors.append(raised.value)
    assert str(errors[0]) == str(errors[1])
    return errors[0]


#: What repairs a publication that still lacks changes; the check asks for it first.
REPAIRS = {
    "filtered": "ALTER PUBLICATION tailrace SET TABLE t, s",
    "without updates": "ALTER PUBLICATION tailrace SET (publish = 'insert, update, delete, truncate')",
}


def repair(postgres, database, run, how):
    if how in REPAIRS:
        with stream(postgres, database, "public.[st]") as engine, pytest.raises(PreflightError):
            engine.next()
        run(REPAIRS[how])


def of_either_publication(cases):
    """Parameters (how, all tables): `cases` with one publication in turn, the other one as a slow test."""
    return [
        pytest.param(how, all_tables, marks=[] if number % 2 == all_tables else [pytest.mark.slow])
        for number, how in enumerate(cases)
        for all_tables in (False, True)
    ]


@pytest.mark.parametrize(("how", "all_tables"), of_either_publication(GAPS))
def test_table_that_is_another_one_after_a_stop_is_refused_at_every_start(
    postgres, postgres_database, run, how, all_tables
):
    if all_tables:
        run("CREATE PUBLICATION tailrace FOR ALL TABLES")
    offset = begun(postgres, postgres_database)
    run(*GAPS[how])
    error = refused(postgres, postgres_database, offset)
    assert error.tables == (("public.s", "public.t") if "swapped" in how else ("public.t",))
    assert pickle.loads(pickle.dumps(error)).tables == error.tables


@pytest.mark.parametrize("how", OF_PUBLICATION)
def test_publication_that_lacked_changes_is_refused_at_every_start(postgres, postgres_database, run, how):
    offset = begun(postgres, postgres_database)
    run(*OF_PUBLICATION[how])
    repair(postgres, postgres_database, run, how)
    error = refused(postgres, postgres_database, offset)
    assert "public.t" in error.tables


def write_and_read(postgres, engine, run):
    for _ in range(100):
        run("INSERT INTO s SELECT max(id) + 1 FROM s")
        read_all(postgres, engine)


RUNNING = [*((how, False) for how in OF_PUBLICATION), *of_either_publication(reversed(GAPS))]


@pytest.mark.parametrize(("how", "all_tables"), RUNNING)
def test_gap_is_found_while_the_stream_runs_and_again_at_its_next_start(  # noqa: PLR0917
    postgres, postgres_database, run, monkeypatch, how, all_tables
):
    if all_tables:
        run("CREATE PUBLICATION tailrace FOR ALL TABLES")
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0.2)
    with stream(postgres, postgres_database, "public.[st]", onRewrite="ignore") as engine:
        read_all(postgres, engine)
        run(*({**GAPS, **OF_PUBLICATION}[how]))
        with pytest.raises(TableGapError) as raised:
            write_and_read(postgres, engine, run)
        offset = engine.offset
    repair(postgres, postgres_database, run, how)
    error = refused(postgres, postgres_database, offset)
    assert error.tables == raised.value.tables
    assert "public.t" in error.tables


def test_table_that_was_renamed_away_and_back_is_found_by_the_log_alone(postgres, postgres_database, run):
    with stream(postgres, postgres_database, "public.[st]", onRewrite="ignore") as engine:
        read_all(postgres, engine)
        run(*GAPS["renamed away and back"])
        with pytest.raises(TableGapError, match=r"changes of `public\.t` are missing"):
            read_all(postgres, engine)


def test_table_that_leaves_for_good_does_not_stop_the_others(postgres, postgres_database, run, monkeypatch):
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)
    with stream(postgres, postgres_database, "public.[st]", onRewrite="ignore") as engine:
        read_all(postgres, engine)
        run("ALTER TABLE t RENAME TO away_t", "INSERT INTO away_t VALUES (9)", "INSERT INTO s VALUES (3)")
        _, changes, _ = read_all(postgres, engine)
        assert [after for _, _, after, _ in changes] == [{"id": 3}]
        run("INSERT INTO s VALUES (4)")
        read_all(postgres, engine)
        offset = engine.offset
        run("ALTER TABLE away_t RENAME TO t")
    assert refused(postgres, postgres_database, offset).tables == ("public.t",)


def test_table_that_is_captured_again_after_a_time_is_refused(postgres, postgres_database, run):
    offset = begun(postgres, postgres_database)
    with stream(postgres, postgres_database, "public.s", onRewrite="ignore") as engine:
        engine.offset = offset
        run("INSERT INTO s VALUES (3)", "INSERT INTO t VALUES (9)")
        read_all(postgres, engine)
        offset = engine.offset
    assert refused(postgres, postgres_database, offset).tables == ("public.t",)


def test_table_that_is_unlogged_for_a_time_is_refused(postgres, postgres_database, run):
    run("CREATE PUBLICATION tailrace FOR ALL TABLES")
    with stream(postgres, postgres_database, "public.[st]", onRewrite="ignore") as engine:
        read_all(postgres, engine)
        run("ALTER TABLE t SET UNLOGGED", "INSERT INTO t VALUES (9)", "INSERT INTO s VALUES (3)")
        engine.plan._captured._read_at = None
        with pytest.raises(TableGapError, match="it is UNLOGGED"):
            read_all(postgres, engine)


@pytest.mark.parametrize("published", ["ALL TABLES", "TABLES IN SCHEMA public"])
def test_table_that_was_unlogged_and_is_logged_again_is_read_again(
    postgres, postgres_database, run, published
):
    run(f"CREATE PUBLICATION tailrace FOR {published}")
    with stream(postgres, postgres_database, "public.[st]") as engine:
        read_all(postgres, engine)
        offset = engine.offset
    run("ALTER TABLE t SET UNLOGGED", "INSERT INTO t VALUES (9)", "ALTER TABLE t SET LOGGED")
    with stream(postgres, postgres_database, "public.[st]") as engine:
        engine.offset = offset
        rows, changes, _ = read_all(postgres, engine)
    assert {"id": 9} in [*rows, *(after for _, _, after, _ in changes)]


def test_new_owner_of_the_publication_is_no_gap(postgres, postgres_database, run):
    offset = begun(postgres, postgres_database)
    role = f"owner_{postgres_database}"
    postgres.execute(f"CREATE ROLE {role} SUPERUSER")
    run(f"ALTER PUBLICATION tailrace OWNER TO {role}", "INSERT INTO t VALUES (9)")
    try:
        with stream(postgres, postgres_database, "public.[st]") as engine:
            engine.offset = offset
            _, changes, _ = read_all(postgres, engine)
        assert [after for _, _, after, _ in changes] == [{"id": 9}]
    finally:
        run(f"REASSIGN OWNED BY {role} TO CURRENT_USER", f"DROP ROLE {role}")


def test_offset_without_identities_is_continued(postgres, postgres_database, run):
    offset = begun(postgres, postgres_database)
    old = StreamOffset.from_json({k: v for k, v in offset.to_json().items() if k != "ids"})
    run("INSERT INTO t VALUES (9)")
    with stream(postgres, postgres_database, "public.[st]") as engine:
        engine.offset = old
        _, changes, _ = read_all(postgres, engine)
        assert [after for _, _, after, _ in changes] == [{"id": 9}]
        assert engine.offset.ids.keys() == offset.ids.keys()


def test_key_that_is_changed_while_its_snapshot_is_read_is_refused(postgres, postgres_database, run):
    run('CREATE TABLE u (a text NOT NULL COLLATE "C", PRIMARY KEY (a))')
    run("INSERT INTO u SELECT chr(65 + n % 26) || n FROM generate_series(1, 50) n")
    with stream(postgres, postgres_database, "public.u", snapshotChunkRows=5) as engine:
        engine.read(*engine.next())
        offset = engine.offset
        assert offset.tables["public.u"].cursor
        run('ALTER TABLE u ALTER a TYPE text COLLATE "POSIX"')
    assert refused(postgres, postgres_database, offset, "public.u").tables == ("public.u",)


def both(engine):
    """The targets of both tables: one stream, whose batches each of them applies."""
    return Targets(engine, "public.t", "public.s")


class Targets:
    def __init__(self, engine, *tables):
        self._targets = [Target(engine, table) for table in tables]
        self.engine = engine

    def continued(self, engine):
        for target in self._targets:
            target.engine = engine
        engine.offset = StreamOffset.from_json(self.engine.offset.to_json())
        self.engine = engine

    def step(self):
        batch = self.engine.next()
        if batch is None:
            return False
        parts = read(self.engine, batch)
        for target in self._targets:
            target.apply(*parts, end=batch[1].to_json())
        return True

    def drain(self):
        self.engine.plan.hold()
        while self.step():
            pass
        self.engine.read_beyond()

    def equal(self, server, database):
        for target in self._targets:
            target.equals(server, database=database)


ALL = {**GAPS, **OF_PUBLICATION}
DEFAULT = [*((how, False) for how in ALL), *((how, True) for how in GAPS)]


@pytest.fixture
def often(monkeypatch):
    """The catalog is searched at every batch."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("case", at_moments(DEFAULT))
def test_target_equals_its_table_after_a_gap(postgres, postgres_database, run, case):
    (how, all_tables), when = case
    if all_tables:
        run("CREATE PUBLICATION tailrace FOR ALL TABLES")
    if when == "in the snapshot":
        run(
            "INSERT INTO t SELECT generate_series(100, 120)", "INSERT INTO s SELECT generate_series(200, 220)"
        )
    chunk = 4 if when == "in the snapshot" else 1000
    given = {"tables": "public.[st]", "snapshotChunkRows": chunk}
    with stream(postgres, postgres_database, **given) as engine:
        targets = both(engine)
        if when == "in the snapshot":
            assert targets.step()
        else:
            targets.drain()
            targets.equal(postgres, postgres_database)
        run("INSERT INTO t VALUES (50)")  # in the log before the gap, read behind it
        if when == "running":
            break_and_drain(postgres, postgres_database, run, targets, how)
    if when != "running":
        run(*ALL[how])
        repair(postgres, postgres_database, run, how)
        with stream(postgres, postgres_database, **given) as engine:
            targets.continued(engine)
            targets.drain()
            targets.equal(postgres, postgres_database)
            run("INSERT INTO t VALUES (77)", "DELETE FROM s WHERE id = (SELECT max(id) FROM s)")
            targets.drain()
            targets.equal(postgres, postgres_database)
            assert not engine.offset.again


def break_and_drain(postgres, database, run, targets, how):
    run(*ALL[how])
    if how in REPAIRS:
        with pytest.raises(SourceError, match="lacks changes") as raised:
            targets.drain()
        assert "ALTER PUBLICATION" in raised.value.hint
        run(REPAIRS[how])
    targets.drain()
    targets.equal(postgres, database)
