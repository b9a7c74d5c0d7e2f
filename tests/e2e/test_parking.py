"""Tables that cannot go on are parked, all others flow, and resumed tables equal their source again."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tailrace.cli import EXIT_DONE, EXIT_PARKED
from tailrace.config.load import parse_pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PreflightError, TablesParkedError, TailraceError
from tailrace.model.parked import Parked
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.e2e.test_mariadb import _Quiet
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.topics import messages


class Watcher(_Quiet):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Running:
    """A pipeline, run in this process until everything is read."""

    def __init__(self, spark: SparkSession, directory: Path, **sections: Any) -> None:
        self._spark = spark
        self.lake = directory / "lake"
        settings = {"name": f"p{uuid.uuid4().hex[:8]}", "trigger": "available-now"}
        settings["checkpoint"] = str(directory / "checkpoint")
        sink = {"type": "delta", "path": str(self.lake), "mode": "upsert", "merge-interval": 0}
        file = {"sink": sink, **sections, "pipeline": {**settings, **sections.pop("pipeline", {})}}
        self.pipeline = parse_pipeline(yaml.safe_dump(file), directory / "pipeline.yaml")
        self.watcher = Watcher()

    def run(self) -> TailraceError | None:
        sink = make_sinks(self.pipeline)
        stop = threading.Event()
        try:
            Supervisor(
                lambda: read_cells(self._spark, self.pipeline), self.pipeline, sink, self.watcher, stop
            ).run()
        except TablesParkedError as error:
            return error
        finally:
            sink.close()
        return None

    def request(self, kind: Any, *tables: str, replay: bool = False) -> None:
        RequestDirectory(requests_path(self.pipeline.checkpoint)).add(tables, kind, replay=replay)

    @property
    def parked(self) -> dict[str, Parked]:
        last = Checkpoint(self.pipeline.checkpoint).last()
        assert last is not None
        return dict(StreamOffset.from_json(last.end).parked)

    def held(self, table: str) -> list[tuple[Any, ...]]:
        return rows_of(self._spark, self.lake / table)


def rows_of(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    rows = delta_rows(spark, path)
    return sorted(tuple(v for n, v in row.items() if not n.startswith("_")) for row in rows)


def source_rows(mysql: Any, table: str) -> list[tuple[Any, ...]]:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return sorted(tuple(row) for row in cursor.fetchall())


def mysql_source(mysql: Any, tables: str, **more: Any) -> dict[str, Any]:
    url = f"mysql://{mysql.host}:{mysql.port}"
    return {"url": url, "user": mysql.user, "password": mysql.password, "tables": tables, **more}


@pytest.fixture
def running(spark: SparkSession, tmp_path: Path) -> Callable[..., Running]:
    return lambda **sections: Running(spark, tmp_path, **sections)


def test_table_that_its_target_cannot_follow_is_parked_and_equals_its_source_once_resumed(
    mysql: Any, database: str, running: Callable[..., Running]
) -> None:
    good, bad = f"{database}.good", f"{database}.bad"
    mysql.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in (good, bad)),
        f"INSERT INTO {good} VALUES (1, 1), (2, 2)",
        f"INSERT INTO {bad} VALUES (1, 1), (2, 2), (3, 3)",
    )
    pipeline = running(source=mysql_source(mysql, f"{database}.*"))
    assert pipeline.run() is None
    mysql.execute(
        f"ALTER TABLE {bad} MODIFY v VARCHAR(20)",
        f"INSERT INTO {bad} VALUES (4, 'four')",
        f"UPDATE {good} SET v = 20 WHERE id = 2",
    )
    error = pipeline.run()
    assert error is not None
    assert f"`{bad}`" in error.message
    assert pipeline.parked.keys() == {bad}
    assert pipeline.parked[bad].reason.code == "TR-7001"
    assert any(f"table `{bad}` is parked" in notice for notice in pipeline.watcher.notices)
    assert pipeline.held(good) == source_rows(mysql, good)
    assert pipeline.held(bad) == [(1, 1), (2, 2), (3, 3)]
    mysql.execute(
        f"DELETE FROM {bad} WHERE id IN (1, 4)",
        f"ALTER TABLE {bad} MODIFY v INT",
        f"UPDATE {bad} SET v = 30 WHERE id = 3",
        f"DELETE FROM {good} WHERE id = 1",
    )
    assert pipeline.run() is not None, "a table whose cause is fixed resumes by itself"
    assert pipeline.held(good) == source_rows(mysql, good)
    pipeline.request("resume", bad)
    assert pipeline.run() is None
    assert pipeline.parked == {}
    assert pipeline.held(bad) == source_rows(mysql, bad)
    mysql.execute(f"INSERT INTO {bad} VALUES (9, 9)", f"DELETE FROM {bad} WHERE id = 2")
    assert pipeline.run() is None
    assert pipeline.held(bad) == source_rows(mysql, bad)


def test_table_with_a_value_that_cannot_be_read_is_parked_in_snapshot_and_log(
    mysql: Any, database: str, running: Callable[..., Running]
) -> None:
    good, bad, worse = (f"{database}.{name}" for name in ("good", "bad", "worse"))
    zero = "SET SESSION sql_mode = ''"
    mysql.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, d DATE)" for table in (good, bad, worse)),
        zero,
        f"INSERT INTO {good} VALUES (1, '2026-01-01')",
        f"INSERT INTO {bad} VALUES (1, '2026-01-01')",
        f"INSERT INTO {worse} VALUES (1, '2026-01-01'), (2, '0000-00-00')",
    )
    pipeline = running(source=mysql_source(mysql, f"{database}.*", **{"zero-dates": "error"}))
    assert pipeline.run() is not None
    assert pipeline.parked.keys() == {worse}
    assert pipeline.parked[worse].had == "part"
    assert pipeline.held(good) == source_rows(mysql, good)
    mysql.execute(
        zero,
        f"INSERT INTO {bad} VALUES (2, '0000-00-00')",
        f"INSERT INTO {good} VALUES (2, '2026-02-02')",
    )
    assert pipeline.run() is not None
    assert {name: p.reason.code for name, p in pipeline.parked.items()} == {bad: "TR-5010", worse: "TR-5010"}
    assert pipeline.held(good) == source_rows(mysql, good)
    mysql.execute(*(f"DELETE FROM {table} WHERE id = 2" for table in (bad, worse)))
    pipeline.request("resume", bad, worse)
    assert pipeline.run() is None
    for table in (good, bad, worse):
        assert pipeline.held(table) == source_rows(mysql, table)


@pytest.mark.slow  # the same with PostgreSQL is not
def test_table_without_a_key_is_parked_at_the_start_and_when_it_appears(
    mysql: Any, database: str, running: Callable[..., Running]
) -> None:
    good, bad, new = (f"{database}.{name}" for name in ("good", "bad", "new"))
    mysql.execute(
        f"CREATE TABLE {good} (id INT PRIMARY KEY)",
        f"CREATE TABLE {bad} (id INT)",
        f"INSERT INTO {good} VALUES (1)",
        f"INSERT INTO {bad} VALUES (1), (2)",
    )
    pipeline = running(source=mysql_source(mysql, f"{database}.*"))
    assert pipeline.run() is not None
    assert {name: p.reason.code for name, p in pipeline.parked.items()} == {bad: "TR-5001"}
    mysql.execute(
        f"CREATE TABLE {new} (id INT)", f"INSERT INTO {new} VALUES (1)", f"INSERT INTO {good} VALUES (2)"
    )
    assert pipeline.run() is not None
    assert pipeline.parked.keys() == {bad, new}
    assert pipeline.held(good) == source_rows(mysql, good)
    mysql.execute(*(f"ALTER TABLE {table} ADD PRIMARY KEY (id)" for table in (bad, new)))
    pipeline.request("resume", bad, new)
    assert pipeline.run() is None
    for table in (good, bad, new):
        assert pipeline.held(table) == source_rows(mysql, table)


def test_only_table_and_one_too_many_end_the_pipeline(
    mysql: Any, database: str, running: Callable[..., Running]
) -> None:
    mysql.execute(*(f"CREATE TABLE {database}.{name} (id INT) ENGINE=MyISAM" for name in "ab"))
    pipeline = running(source=mysql_source(mysql, f"{database}.*"))
    with pytest.raises(PreflightError):
        pipeline.run()


@pytest.fixture
def capturing(postgres: Any, postgres_database: str) -> Iterator[str]:
    """A user that may capture its own tables."""
    name = f"u_{postgres_database}"
    postgres.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'secret'",
        f"GRANT CREATE ON DATABASE {postgres_database} TO {name}",
        f"GRANT CREATE ON SCHEMA public TO {name}",
        database=postgres_database,
    )
    yield name
    postgres.execute(f"REASSIGN OWNED BY {name} TO postgres", database=postgres_database)
    postgres.execute(f"DROP OWNED BY {name}", database=postgres_database)
    postgres.execute(f"DROP ROLE {name}")


def test_tables_that_cannot_be_published_are_parked_and_read_once_they_can(
    postgres: Any, postgres_database: str, capturing: str, running: Callable[..., Running]
) -> None:
    def run(*statements: str) -> list[list[Any]]:
        rows: list[list[Any]] = postgres.execute(*statements, database=postgres_database)
        return rows

    def rows(table: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in run(f"SELECT * FROM {table}"))

    run(
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE foreigner (id int PRIMARY KEY)",
        *(f"INSERT INTO {table} VALUES (1), (2)" for table in ("good", "unlogged", "keyless", "foreigner")),
        *(f"ALTER TABLE {table} OWNER TO {capturing}" for table in ("good", "unlogged", "keyless")),
        f"GRANT SELECT ON foreigner TO {capturing}",
    )
    pipeline = running(
        source={
            "url": f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
            "user": capturing,
            "password": "secret",
            "tables": "public.*",
            "slot-name": f"slot_{postgres_database}",
        }
    )
    assert pipeline.run() is not None
    assert {name: p.reason.code for name, p in pipeline.parked.items()} == {
        "public.foreigner": "TR-2216",
        "public.keyless": "TR-2210",
        "public.unlogged": "TR-2212",
    }
    run("INSERT INTO good VALUES (3)", "CREATE TABLE another (id int PRIMARY KEY)")
    run("INSERT INTO another VALUES (1)", f"GRANT SELECT ON another TO {capturing}")
    assert pipeline.run() is not None
    assert pipeline.held("public.good") == rows("good")
    assert "public.another" in pipeline.parked
    run(
        "ALTER TABLE unlogged SET LOGGED",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
        *(f"ALTER TABLE {table} OWNER TO {capturing}" for table in ("foreigner", "another")),
    )
    pipeline.request("resume", *pipeline.parked)
    assert pipeline.run() is not None
    assert {name: p.reason.code for name, p in pipeline.parked.items()} == {"public.keyless": "TR-5001"}
    run("ALTER TABLE keyless ADD PRIMARY KEY (id)")
    pipeline.request("resume", "public.keyless")
    assert pipeline.run() is None
    run(
        *(f"INSERT INTO {table} VALUES (9)" for table in ("unlogged", "foreigner", "keyless", "another")),
        *(f"DELETE FROM {table} WHERE id = 1" for table in ("unlogged", "foreigner", "keyless", "another")),
    )
    assert pipeline.run() is None
    for table in ("good", "unlogged", "foreigner", "keyless", "another"):
        assert pipeline.held(f"public.{table}") == rows(table)


def test_changes_of_a_parked_table_are_replayed_into_a_topic(
    mysql: Any, kafka: Any, database: str, running: Callable[..., Running]
) -> None:
    good, bad = f"{database}.good", f"{database}.bad"
    prefix = f"t{uuid.uuid4().hex[:8]}"
    mysql.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in (good, bad)),
        *(f"INSERT INTO {table} VALUES (1, 1)" for table in (good, bad)),
    )
    sink = {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix}
    pipeline = running(source=mysql_source(mysql, f"{database}.*"), sink=sink)
    assert pipeline.run() is None
    pipeline.request("park", bad)
    pipeline.run()
    for table in (good, bad):
        mysql.execute(
            f"UPDATE {table} SET v = 2",
            f"INSERT INTO {table} VALUES (2, 2)",
            f"DELETE FROM {table} WHERE id = 1",
        )
    assert pipeline.run() is not None

    def told(table: str) -> list[tuple[str, Any]]:
        found = [json.loads(m.value) for m in messages(kafka, f"{prefix}.{table}") if m.value is not None]
        return [(value["op"], (value["after"] or value["before"])["v"]) for value in found]

    everything = [("r", 1), ("u", 2), ("c", 2), ("d", 2)]
    assert sorted(told(good)) == sorted(everything)
    assert told(bad) == [("r", 1)]
    pipeline.request("resume", bad, replay=True)
    assert pipeline.run() is None
    assert sorted(told(bad)) == sorted(everything)
    mysql.execute(*(f"INSERT INTO {table} VALUES (3, 3)" for table in (good, bad)))
    assert pipeline.run() is None
    for table in (good, bad):
        assert sorted(told(table)) == sorted([*everything, ("c", 3)])


@pytest.mark.slow  # each run of a process takes ten seconds
@pytest.mark.parametrize(
    "kills",
    [
        [("park.requested", "self"), ("batch.planned", "self")],
        [("offset.planned", "self"), ("sink.table", "self")],
        [("sink.committed", "jvm"), ("sink.reread", "self")],
    ],
    ids=lambda kills: "-".join(name for name, _ in kills),
)
def test_parking_and_resuming_are_exact_wherever_the_pipeline_is_killed(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kills: list[tuple[str, str]]
) -> None:
    good, bad = f"{database}.good", f"{database}.bad"
    mysql.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in (good, bad)),
        f"INSERT INTO {good} VALUES (1, 1), (2, 2)",
        f"INSERT INTO {bad} VALUES (1, 1), (2, 2), (3, 3)",
    )
    run = PipelineProcess(tmp_path, mysql, f"{database}.*")
    assert run.run() == EXIT_DONE, run.output()
    mysql.execute(
        f"ALTER TABLE {bad} MODIFY v VARCHAR(20)",
        f"INSERT INTO {bad} VALUES (4, 'four')",
        f"UPDATE {good} SET v = 20 WHERE id = 2",
        f"INSERT INTO {good} VALUES (3, 3)",
    )
    run.run(failpoint=kills[0][0], victim=kills[0][1])
    mysql.execute(f"DELETE FROM {good} WHERE id = 3")
    assert run.run() == EXIT_PARKED, run.output()
    assert f"`{bad}`" in run.output()
    assert rows_of(spark, run.targets / good) == source_rows(mysql, good)
    assert rows_of(spark, run.targets / bad) == [(1, 1), (2, 2), (3, 3)]
    mysql.execute(
        f"DELETE FROM {bad} WHERE id IN (1, 4)",
        f"ALTER TABLE {bad} MODIFY v INT",
        f"UPDATE {bad} SET v = 30 WHERE id = 3",
    )
    assert run.command("resume", bad) == 0, run.output()
    run.run(failpoint=kills[1][0], victim=kills[1][1])
    assert run.run() == EXIT_DONE, run.output()
    for table in (good, bad):
        assert rows_of(spark, run.targets / table) == source_rows(mysql, table)


@pytest.mark.slow
def test_table_whose_transform_names_a_dropped_column_is_parked_and_flows_again(
    mysql: Any, database: str, running: Callable[..., Running]
) -> None:
    good, bad = f"{database}.good", f"{database}.bad"
    mysql.execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in (good, bad)),
        *(f"INSERT INTO {table} VALUES (1, 1), (2, 2)" for table in (good, bad)),
    )
    transform = [{"source-table": rf"{database}\.bad", "projection": "id, v * 10 AS v"}]
    pipeline = running(source=mysql_source(mysql, f"{database}.*"), transform=transform)
    assert pipeline.run() is None
    mysql.execute(
        f"ALTER TABLE {bad} DROP COLUMN v, ADD COLUMN w INT",
        f"INSERT INTO {bad} VALUES (3, 3)",
        f"INSERT INTO {good} VALUES (3, 3)",
    )
    assert pipeline.run() is not None
    assert {name: parked.reason.code for name, parked in pipeline.parked.items()} == {bad: "TR-1501"}
    assert pipeline.held(good) == source_rows(mysql, good)
    mysql.execute(f"UPDATE {good} SET v = 30 WHERE id = 3")
    assert pipeline.run() is not None, "at a later start, too, the other tables flow"
    assert pipeline.held(good) == source_rows(mysql, good)
    mysql.execute(
        f"ALTER TABLE {bad} ADD COLUMN v INT NOT NULL DEFAULT 7, DROP COLUMN w",
        f"UPDATE {bad} SET v = 8 WHERE id = 3",
    )
    pipeline.request("resume", bad)
    assert pipeline.run() is None
    assert pipeline.held(bad) == [(id_, v * 10) for id_, v in source_rows(mysql, bad)]


@pytest.mark.slow  # the hint and the reading as null have faster tests
def test_tables_with_numbers_that_their_types_cannot_hold_are_parked_and_read_as_null_once_asked_for(
    postgres: Any, kafka: Any, postgres_database: str, running: Callable[..., Running]
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    run = partial(postgres.execute, database=postgres_database)
    run(
        "CREATE TABLE good (id int PRIMARY KEY, v numeric)",
        "CREATE TABLE fixed (id int PRIMARY KEY, v numeric(5,2))",
        "CREATE TABLE free (id int PRIMARY KEY, v numeric)",
        "CREATE TABLE folded (id int PRIMARY KEY, v int[])",
    )
    source = {
        "url": f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
        "user": postgres.user,
        "password": postgres.password,
        "tables": "public.*",
        "slot-name": f"slot_{postgres_database}",
    }
    sink = {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix}
    assert running(source=source, sink=sink).run() is None
    run(
        "INSERT INTO good VALUES (1, 1)",
        "INSERT INTO fixed VALUES (1, 'NaN')",
        "INSERT INTO free VALUES (1, 'NaN'), (2, '-Infinity')",
        "INSERT INTO folded VALUES (1, '{{1},{2}}')",
    )
    stopped = running(source=source, sink=sink)
    assert stopped.run() is not None
    found = {
        name: (parked.reason.code, "unfitAsNull" in str(parked.reason.hint))
        for name, parked in stopped.parked.items()
    }
    assert found == {
        "public.fixed": ("TR-5011", True),
        "public.free": ("TR-7604", True),
        "public.folded": ("TR-5011", True),
    }

    def told(table: str) -> list[Any]:
        return [json.loads(m.value)["after"]["v"] for m in messages(kafka, f"{prefix}.public.{table}")]

    assert len(told("good")) == 1
    lenient = running(source={**source, "unfit-as-null": r"public\..*\.v"}, sink=sink)
    lenient.request("resume", *lenient.parked)
    assert lenient.run() is None
    assert {table: told(table) for table in ("fixed", "free", "folded")} == {
        "fixed": [None],
        "free": [None, None],
        "folded": [None],
    }
