"""What `tailrace check` says of a PostgreSQL server, and what a stream leaves on it."""

from __future__ import annotations

import pytest

from tailrace.errors import ConfigError, PreflightError
from tailrace.sources import registry
from tailrace.sources.postgres.checks.preflight import check, require
from tailrace.sources.preflight import Severity
from tailrace_dev.servers import start_postgres
from tests.support.engine import Engine
from tests.support.postgres import options_for


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    return execute


@pytest.fixture
def user(postgres, postgres_database):
    name = f"u_{postgres_database[2:]}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{postgres.password}'")
    yield name
    postgres.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}", database=postgres_database)


def options_of(postgres, database, user="postgres", **given):
    return options_for(postgres, database, "public.*", **{"user": user, **given})


def found(options, severity=Severity.ERROR):
    return {f.check: f for f in check(options) if f.severity is severity}


def test_server_that_is_set_up_has_no_errors(postgres, postgres_database, run):
    run("ALTER TABLE t REPLICA IDENTITY FULL")
    findings = check(options_of(postgres, postgres_database))
    assert {f.severity for f in findings} == {Severity.OK}, findings


def test_remedies_of_a_bare_user_make_capture_possible(postgres, postgres_database, run, user):
    options = options_of(postgres, postgres_database, user)
    errors = found(options)
    assert set(errors) == {"privilege REPLICATION", "table public.t", "publication tailrace"}
    for finding in errors.values():
        run(*(s for s in finding.remedy.split("; ") if not s.startswith("--")))
    assert not found(options)
    with Engine(options) as engine:
        assert engine.next() is not None


def test_every_missing_precondition_is_named_at_once(tmp_path):
    with start_postgres("16", options={"wal_level": "replica", "max_replication_slots": "1"}) as server:
        server.execute("CREATE TABLE t (a int)", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        server.execute(
            f"CREATE ROLE reader LOGIN REPLICATION PASSWORD '{server.password}'",
            "GRANT SELECT ON t TO reader",
        )
        with pytest.raises(PreflightError) as error:
            require(options_for(server, "postgres", "public.*", user="reader"))
    for part in (
        "wal_level: found replica, needed logical",
        "max_replication_slots: found 1, of which 1 are free",
        "row-level security hides rows",
        "replica identity default, key none",
    ):
        assert part in error.value.detail
    assert "ALTER SYSTEM SET wal_level = 'logical'" in error.value.hint


def test_old_transaction_and_small_slot_limit_are_warned_of(postgres, postgres_database, run, monkeypatch):
    monkeypatch.setattr("tailrace.sources.postgres.checks.preflight._LONG_S", 0)
    with postgres.connect(database=postgres_database, autocommit=False) as other:
        other.cursor().execute("INSERT INTO t VALUES (1, 1)")
        assert "transactions that write" in found(options_of(postgres, postgres_database), Severity.WARNING)
        other.rollback()


def test_slot_of_another_kind_is_refused(postgres, postgres_database, run):
    options = options_of(postgres, postgres_database)
    run(f"SELECT pg_create_physical_replication_slot('{options.slot}')")
    assert f"replication slot {options.slot}" in found(options)
    run(f"SELECT pg_drop_replication_slot('{options.slot}')")


def test_drop_removes_slot_and_publication_and_leaves_those_of_others(postgres, postgres_database, run):
    options = options_of(postgres, postgres_database)
    with Engine(options) as engine:
        engine.next()
    assert registry.drop(options) == [
        f"dropped replication slot {options.slot}",
        "dropped publication tailrace",
    ]
    assert registry.drop(options) == []
    run("CREATE PUBLICATION theirs FOR TABLE t")
    assert registry.drop(options_of(postgres, postgres_database, publicationName="theirs")) == []
    assert run("SELECT count(*) FROM pg_publication") == [[1]]


def test_options_of_other_databases_are_refused(postgres, postgres_database):
    with pytest.raises(ConfigError, match="`serverId` has no effect on postgresql"):
        options_of(postgres, postgres_database, serverId=7)
    with pytest.raises(ConfigError, match="`logParallelism` has no effect on postgresql"):
        options_of(postgres, postgres_database, logParallelism=2)
    with pytest.raises(ConfigError, match="`url` names no database"):
        options_for(postgres, "", "public.*")
