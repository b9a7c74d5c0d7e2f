"""PostgreSQL keys of rare types, a catalog that is asked once, and databases without an encoding."""

from __future__ import annotations

import threading

import pytest

from tailrace.errors import PreflightError, SchemaMismatchError, SourceError
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres import session as sessions
from tailrace.sources.postgres.checks import preflight
from tailrace.sources.preflight import Severity
from tests.recovery.test_postgres_schema import read_all, stream
from tests.support.engine import rows_of
from tests.support.postgres import options_for
from tests.support.replication import postgres_of, standby_of


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    return execute


def test_key_of_an_array_is_refused_by_the_check_and_read_as_text(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (k int[] PRIMARY KEY)",
        "INSERT INTO t SELECT ARRAY[n, n] FROM generate_series(1, 30) n",
    )
    with (
        stream(postgres, postgres_database) as engine,
        pytest.raises(PreflightError, match=r"set textColumns to public\\\.t\\\.k"),
    ):
        engine.next()
    with stream(postgres, postgres_database, textColumns=r"public\.t\.k", snapshotChunkRows=5) as engine:
        first = rows_of(engine.read(*engine.next())[0])
        run("INSERT INTO t VALUES ('{0,0}'), ('{99,99}')", "DELETE FROM t WHERE k = '{1,1}'")
        engine.plan._source._snapshots.discard()
        rows, changes, _ = read_all(postgres, engine)
    assert {row["k"] for row in [*first, *rows]} >= {f"{{{n},{n}}}" for n in range(1, 31)}
    assert ("d", {"k": "{1,1}"}) in [(op, before) for op, before, *_ in changes]


def test_key_of_an_enum_in_a_schema_with_a_dot_is_compared(postgres, postgres_database, run):
    labels = ", ".join(f"'l{n}'" for n in range(30))
    run('CREATE SCHEMA "a.b"', f'CREATE TYPE "a.b"."c.d" AS ENUM ({labels})')
    run('CREATE TABLE t (k "a.b"."c.d" PRIMARY KEY)')
    run(f'INSERT INTO t SELECT unnest(ARRAY[{labels}]::"a.b"."c.d"[])')
    with stream(postgres, postgres_database, snapshotChunkRows=5) as engine:
        first = rows_of(engine.read(*engine.next())[0])
        run("DELETE FROM t WHERE k = 'l1'", "DELETE FROM t WHERE k = 'l29'")
        engine.plan._source._snapshots.discard()
        rows, changes, _ = read_all(postgres, engine)
    assert {row["k"] for row in [*first, *rows]} == {f"l{n}" for n in range(29)}
    assert [(op, before) for op, before, *_ in changes] == [("d", {"k": "l1"})]


def test_label_of_a_key_that_is_renamed_is_named(postgres, postgres_database, run):
    run("CREATE TYPE e AS ENUM ('a', 'b', 'c')", "CREATE TABLE t (k e PRIMARY KEY)")
    run("INSERT INTO t VALUES ('a'), ('b'), ('c')")
    with stream(postgres, postgres_database, snapshotChunkRows=1) as engine:
        engine.read(*engine.next())
        offset = engine.offset
        run("ALTER TYPE e RENAME VALUE 'b' TO 'x'")
        with pytest.raises(
            SchemaMismatchError, match=r"label of the key of table `public\.t` was renamed"
        ) as e:
            read_all(postgres, engine)
        assert "RENAME VALUE" in e.value.hint
        run("ALTER TYPE e RENAME VALUE 'x' TO 'b'")
        engine.offset = offset  # a batch that was planned is repeated
        assert read_all(postgres, engine)[0] == [{"k": "c"}]


def test_catalog_is_asked_once_for_all_tables(postgres, postgres_database, run, monkeypatch):
    names = [f"t{n}" for n in range(20)]
    run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    asked = []
    captured = catalog.captured
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
        run(*(f"INSERT INTO {name} VALUES (1)" for name in names))
        monkeypatch.setattr(
            sessions.catalog, "captured", lambda *g, **n: asked.append(1) or captured(*g, **n)
        )
        engine.plan._captured._read_at = 1e18  # only tasks read the catalog now
        _, changes, _ = read_all(postgres, engine)
    assert len(changes) == 20
    assert len(asked) <= 1


def test_database_without_an_encoding_is_warned_of_and_bad_text_explained(postgres):
    postgres.execute(
        "CREATE DATABASE bytes_only ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    try:
        postgres.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "SET client_encoding = 'SQL_ASCII'",
            r"INSERT INTO t VALUES (1, E'\xe9')",
            database="bytes_only",
        )
        options = options_for(postgres, "bytes_only", "public.*")
        assert "encoding" in {f.check for f in preflight.check(options) if f.severity is Severity.WARNING}
        with (
            stream(postgres, "bytes_only") as engine,
            pytest.raises(SourceError, match="a text is not valid in the encoding") as raised,
        ):
            read_all(postgres, engine)
        assert "public.t" in raised.value.message
    finally:
        postgres.drop_database("bytes_only")


def test_check_says_what_a_standby_needs_and_the_stream_reads_it():
    with postgres_of("18") as primary:
        primary.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
        with standby_of(primary, copies_slots=False, hot_standby_feedback="on") as standby:
            options = options_for(standby, "shop", "public.*")
            found = {f.check: f for f in preflight.check(options)}
            assert "pg_log_standby_snapshot" in found["server's role"].remedy
            finding = found["publication tailrace"]
            assert finding.severity is Severity.ERROR
            primary.execute(finding.remedy.split(";")[0], database="shop")
            standby.wait_until("SELECT count(*) FROM pg_publication", bool, database="shop")
            assert not [f for f in preflight.check(options) if f.severity is Severity.ERROR]
            stopping = threading.Event()

            def write():
                while not stopping.wait(0.2):
                    primary.execute("SELECT pg_log_standby_snapshot()", database="shop")

            writer = threading.Thread(target=write)
            writer.start()
            try:
                with stream(standby, "shop") as engine:
                    rows, _, _ = read_all(standby, engine)
                    primary.execute("INSERT INTO t VALUES (2)", database="shop")
                    standby.wait_until("SELECT count(*) FROM t", lambda n: n == 2, database="shop")
                    _, changes, _ = read_all(standby, engine)
            finally:
                stopping.set()
                writer.join()
            assert rows == [{"id": 1}]
            assert [after for _, _, after, _ in changes] == [{"id": 2}]
