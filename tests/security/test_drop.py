"""`tailrace drop`, and a new stream, do not touch objects that no stream created."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.errors import ConfigError
from tailrace.sources import registry
from tailrace.sources.postgres.replication import slot
from tests.support.engine import Engine
from tests.support.postgres import options_for


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    return execute


@pytest.fixture
def options(postgres, postgres_database):
    return options_for(postgres, postgres_database, "public.*")


def begin(options) -> None:
    """Run a stream's first batch."""
    with Engine(options) as engine:
        assert engine.next() is not None


def slots(run) -> list[str]:
    return [row[0] for row in run("SELECT slot_name FROM pg_replication_slots WHERE NOT temporary")]


def made_by_hand(options) -> str:
    return f"SELECT pg_create_logical_replication_slot('{options.slot}', 'pgoutput')"


def assert_slot_stays(options, run, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        registry.drop(options)
    assert found in refused.value.detail
    assert f"SELECT pg_drop_replication_slot('{options.slot}')" in refused.value.hint
    assert slots(run) == [options.slot]


def test_drop_removes_what_the_stream_made(options, run):
    begin(options)
    assert registry.drop(options) == [
        f"dropped replication slot {options.slot}",
        "dropped publication tailrace",
    ]
    assert registry.drop(options) == []
    assert slots(run) == []


def test_drop_leaves_a_physical_slot_of_the_same_name(options, run):
    run(f"SELECT pg_create_physical_replication_slot('{options.slot}')")
    assert_slot_stays(options, run, "found a physical one")
    with pytest.raises(ConfigError, match="not this pipeline's"):
        registry.drop(options, unmarked=True)
    run(f"SELECT pg_drop_replication_slot('{options.slot}')")


def test_drop_leaves_a_slot_of_another_plugin(options, run, monkeypatch):
    run(made_by_hand(options))  # the only plugin that every server has
    monkeypatch.setattr(slot, "PLUGIN", "wal2json")
    assert_slot_stays(options, run, "plugin `pgoutput`")


def test_drop_leaves_a_slot_of_another_database(postgres, options):
    postgres.execute(made_by_hand(options))
    try:
        assert_slot_stays(options, postgres.execute, "of database `postgres`")
    finally:
        postgres.execute(f"SELECT pg_drop_replication_slot('{options.slot}')")


def test_drop_leaves_a_slot_made_by_hand(options, run):
    run(made_by_hand(options))
    assert_slot_stays(options, run, "created by hand")
    run("CREATE PUBLICATION tailrace FOR TABLE t")
    assert_slot_stays(options, run, "created by hand")


def test_drop_leaves_a_slot_made_by_hand_beside_a_publication_of_a_stream(options, run):
    begin(options)
    run(f"SELECT pg_drop_replication_slot('{options.slot}')")
    assert registry.drop(options) == ["dropped publication tailrace"]
    begin(options)
    other = options_for_slot(options, "by_hand")
    run(made_by_hand(other))
    with pytest.raises(ConfigError, match="`by_hand` has no mark"):
        registry.drop(other)


def options_for_slot(options, name: str):
    return replace(options, slot_name=name)


def test_slot_of_an_earlier_version_is_dropped_where_that_is_demanded(
    options, run, postgres, postgres_database, tmp_path
):
    begin(options)
    run("COMMENT ON PUBLICATION tailrace IS 'made by tailrace'")  # as earlier versions wrote it
    assert_slot_stays(options, run, "by an earlier version of Tailrace")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: {postgres.user},"
        f" password: {postgres.password}, tables: 'public.*', slot-name: {options.slot},"
        " publication-name: tailrace}\n"
        f"sink: {{type: json, path: '{tmp_path}'}}\n"
    )
    dropped = CliRunner().invoke(cli, ["drop", "--unmarked", str(file)], catch_exceptions=False)
    assert dropped.output.splitlines() == [
        f"dropped replication slot {options.slot}",
        "dropped publication tailrace",
    ]


def test_mark_of_another_cluster_does_not_count(options, run):
    begin(options)
    ((comment,),) = run("SELECT obj_description(oid, 'pg_publication') FROM pg_publication")
    system = run("SELECT system_identifier::text FROM pg_control_system()")[0][0]
    run(f"COMMENT ON PUBLICATION tailrace IS '{comment.replace(system, '1')}'")
    assert_slot_stays(options, run, "created by hand")


def test_publication_made_by_hand_stays(options, run):
    run("CREATE PUBLICATION tailrace FOR TABLE t", "COMMENT ON PUBLICATION tailrace IS 'made by hand'")
    begin(options)
    assert registry.drop(options, unmarked=True) == [f"dropped replication slot {options.slot}"]
    assert run("SELECT count(*) FROM pg_publication") == [[1]]


def test_publication_stays_while_another_stream_has_a_slot_by_it(options, run):
    other = options_for_slot(options, f"{options.slot}_2")
    begin(options)
    begin(other)
    assert registry.drop(options) == [f"dropped replication slot {options.slot}"]
    assert registry.drop(other) == [f"dropped replication slot {other.slot}", "dropped publication tailrace"]


@pytest.mark.parametrize("position", ["initial", "latest"])
def test_new_stream_does_not_take_over_a_slot_made_by_hand(postgres, postgres_database, run, position):
    options = options_for(postgres, postgres_database, "public.*", startingPosition=position)
    run(made_by_hand(options))
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{options.slot}'"
    before = run(query)
    with (
        Engine(options) as engine,
        pytest.raises(ConfigError, match="this stream did not create it") as refused,
    ):
        engine.next()
    assert "pg_drop_replication_slot" in refused.value.hint
    assert run(query) == before


def test_new_stream_reads_a_slot_made_by_hand_from_where_it_begins_where_that_is_demanded(
    postgres, postgres_database, run
):
    options = options_for(postgres, postgres_database, "public.*", startingPosition="earliest")
    run("CREATE PUBLICATION tailrace FOR TABLE t", made_by_hand(options), "INSERT INTO t VALUES (2, 2)")
    begin(options)


def test_stream_that_crashed_before_its_first_batch_finds_its_own_slot(options, run):
    begin(options)  # its offset is thrown away, as by a crash
    begin(options)
    assert slots(run) == [options.slot]
