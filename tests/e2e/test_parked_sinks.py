"""A sink that cannot go on is parked, the others flow, and once resumed its targets equal their tables."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from tailrace.cli import EXIT_DONE
from tailrace.errors import TailraceError
from tailrace.failpoints import VARIABLE
from tailrace.pipeline.parked_sinks import parked_sinks, request_resume
from tailrace.pipeline.status import status
from tailrace_dev.servers import KafkaServer
from tests.e2e.test_parking import Running, mysql_source, rows_of, source_rows
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.topics import messages


def two_lakes(path: Path, **more: Any) -> list[dict[str, Any]]:
    common = {"type": "delta", "mode": "upsert", "merge-interval": 0}
    return [
        {**common, "path": str(path / "one"), "name": "one"},
        {**common, "path": str(path / "two"), "name": "two", "on-error": "park", **more},
    ]


def break_lake(path: Path, table: str) -> Path:
    """Make a target unusable; returns where its files went."""
    kept = path / f"{table}.kept"
    shutil.move(path / table, kept)
    (path / table).write_text("no directory")
    return kept


def mend_lake(path: Path, table: str) -> None:
    (path / table).unlink()
    shutil.move(path / f"{table}.kept", path / table)


class Stage:
    """A pipeline of two tables, run to its end, after crashes at failpoints."""

    def __init__(self, spark: SparkSession, mysql: Any, database: str, path: Path, patch: Any) -> None:
        self.spark, self.mysql, self.path, self.patch = spark, mysql, path, patch
        self.tables = [f"{database}.{name}" for name in "tu"]
        mysql.execute(
            *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in self.tables),
            *(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)" for table in self.tables),
        )

    def begin(self, sink: Any, **sections: Any) -> None:
        source = mysql_source(self.mysql, ",".join(self.tables))
        self.pipeline = Running(self.spark, self.path, source=source, sink=sink, **sections)
        assert self.run() is None

    @property
    def checkpoint(self) -> str:
        return self.pipeline.pipeline.checkpoint

    def run(self, *crashes: str) -> TailraceError | None:
        for number, point in enumerate(crashes):
            self.patch.setenv(VARIABLE, f"{point}=raise@{self.path / f'token{number}-{point}'}")
            with pytest.raises(Exception, match=r".*"):
                self.pipeline.run()
            self.patch.delenv(VARIABLE)
        return self.pipeline.run()

    def resume(self, sink: int) -> None:
        request_resume(self.checkpoint, self.pipeline.pipeline.sinks[sink])

    def held(self, name: str) -> list[list[tuple[Any, ...]]]:
        return [rows_of(self.spark, self.path / name / table) for table in self.tables]

    def present(self) -> list[list[tuple[Any, ...]]]:
        return [source_rows(self.mysql, table) for table in self.tables]


@pytest.fixture
def stage(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    return Stage(spark, mysql, database, tmp_path, monkeypatch)


@pytest.mark.slow  # that one table of it is parked is not
def test_sink_that_refuses_is_parked_and_equals_its_tables_once_resumed(stage: Stage, tmp_path: Path) -> None:
    """Although the process ends right after the sink was parked, resumed, and given its first batch again."""
    one, two = stage.tables
    execute = stage.mysql.execute
    stage.begin(two_lakes(tmp_path))
    first = stage.present()
    break_lake(tmp_path / "two", one)
    execute(
        f"UPDATE {one} SET v = 20 WHERE id = 2",
        f"DELETE FROM {two} WHERE id = 1",
        f"INSERT INTO {two} VALUES (4, 4)",
    )
    error = stage.run("park.sink")
    assert error is not None
    assert error.code == "TR-7611"
    assert stage.held("one") == stage.present()
    (entry,) = parked_sinks(stage.checkpoint)
    shown = status(stage.pipeline.pipeline).sinks[1]
    assert (shown.name, [e.id for e in shown.parked], shown.received) == ("two", [entry.id], entry.batch - 1)
    mend_lake(tmp_path / "two", one)
    execute(f"DELETE FROM {one} WHERE id = 1", f"INSERT INTO {one} VALUES (5, 5)")
    assert stage.run() is not None, "a sink whose cause is fixed resumes by itself"
    assert stage.held("one") == stage.present()
    assert stage.held("two")[0] == first[0]
    stage.resume(1)
    execute(f"UPDATE {two} SET v = 30 WHERE id = 3")
    assert stage.run("resume.sink", "sink.committed") is None
    assert parked_sinks(stage.checkpoint) == []
    assert stage.held("one") == stage.held("two") == stage.present()


def test_table_that_one_sink_refuses_is_parked_in_that_sink_alone(stage: Stage, tmp_path: Path) -> None:
    one, two = stage.tables
    files = {"type": "json", "path": str(tmp_path / "log")}
    stage.begin([files, two_lakes(tmp_path)[1]])
    stage.mysql.execute(
        f"ALTER TABLE {one} MODIFY v VARCHAR(20)",
        f"INSERT INTO {one} VALUES (4, 'four')",
        f"UPDATE {two} SET v = 20 WHERE id = 2",
    )
    error = stage.run()
    assert error is not None
    assert error.code == "TR-7611"
    (entry,) = parked_sinks(stage.checkpoint)
    assert (entry.table, entry.reason.code) == (one, "TR-7001")
    assert stage.held("two") == [[(1, 1), (2, 2), (3, 3)], stage.present()[1]]
    written = "".join(path.read_text() for path in (tmp_path / "log").rglob("*.json"))
    assert "four" in written, "the other sink has the table"
    stage.mysql.execute(
        f"DELETE FROM {one} WHERE id IN (1, 4)", f"ALTER TABLE {one} MODIFY v INT", f"UPDATE {one} SET v = 7"
    )
    stage.resume(1)
    assert stage.run() is None
    assert stage.held("two") == stage.present()


@pytest.mark.slow
def test_shard_that_its_target_cannot_follow_is_parked_alone(stage: Stage, tmp_path: Path) -> None:
    """The other shard of the same target flows, also where changes wait for a merge."""
    one, two = stage.tables
    route = [{"source-table": ".*", "sink-table": "all.rows", "shard-column": "_shard"}]
    stage.begin({"type": "delta", "path": str(tmp_path / "lake"), "mode": "upsert"}, route=route)

    def held() -> list[tuple[Any, ...]]:
        rows = delta_rows(stage.spark, tmp_path / "lake" / "all.rows")
        return sorted((row["_shard"], row["id"], row["v"]) for row in rows)

    def present() -> list[tuple[Any, ...]]:
        rows = zip(stage.tables, stage.present(), strict=True)
        return sorted((table, *row) for table, found in rows for row in found)

    assert held() == present()
    stage.mysql.execute(
        f"ALTER TABLE {one} MODIFY v VARCHAR(20)",
        f"INSERT INTO {one} VALUES (4, 'four')",
        f"UPDATE {two} SET v = 20 WHERE id = 2",
        f"DELETE FROM {two} WHERE id = 1",
    )
    error = stage.run()
    assert error is not None
    assert stage.pipeline.parked.keys() == {one}
    assert held() == [(one, 1, 1), (one, 2, 2), (one, 3, 3), (two, 2, 20), (two, 3, 3)]
    stage.mysql.execute(f"DELETE FROM {one} WHERE id IN (1, 4)", f"ALTER TABLE {one} MODIFY v INT")
    stage.pipeline.request("resume", one)
    assert stage.run() is None
    assert held() == present()


@pytest.mark.slow
def test_topics_and_files_are_parked_and_receive_the_rows_once_resumed(
    stage: Stage, tmp_path: Path, kafka: KafkaServer
) -> None:
    one, two = stage.tables
    prefix = f"p{uuid.uuid4().hex[:8]}"
    topics = {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix}
    files = {"type": "json", "path": str(tmp_path / "log")}
    parks = {"on-error": "park"}
    stage.begin([two_lakes(tmp_path)[0], {**topics, **parks}, {**files, **parks}])

    def told(table: str) -> list[list[tuple[str, int, int]]]:
        """The changes of a table in its topic and in its files."""
        values = [json.loads(m.value) for m in messages(kafka, f"{prefix}.{table}") if m.value is not None]
        of_topic = [(v["op"], v["after"]["id"], v["after"]["v"]) for v in values]
        lines = [
            line for f in (tmp_path / "log" / table).rglob("*.json") for line in f.read_text().split("\n")
        ]
        rows = [json.loads(line) for line in lines if '"_op"' in line]
        return [sorted(of_topic), sorted((r["_op"], r["id"], r["v"]) for r in rows)]

    first = [("r", n, n) for n in (1, 2, 3)]
    assert told(one) == told(two) == [first] * 2
    limit(kafka, f"{prefix}.{two}", 100)
    break_lake(tmp_path / "log", one)
    stage.mysql.execute(*(f"UPDATE {table} SET v = 20 WHERE id = 2" for table in stage.tables))
    assert stage.run() is not None
    assert stage.held("one") == stage.present()
    parked = {(entry.sink.partition(":")[0], entry.table) for entry in parked_sinks(stage.checkpoint)}
    assert ("kafka", two) in parked
    assert ("json", None) in parked or ("json", one) in parked
    assert told(one)[0] == sorted([*first, ("u", 2, 20)]), "the other topic flows"
    assert told(two)[0] == first

    limit(kafka, f"{prefix}.{two}", 1_000_000)
    mend_lake(tmp_path / "log", one)
    for sink in (1, 2):
        stage.resume(sink)
    assert stage.run() is None
    assert parked_sinks(stage.checkpoint) == []
    assert stage.held("one") == stage.present()
    again = [("r", 1, 1), ("r", 2, 20), ("r", 3, 3)]
    for table in stage.tables:
        for changes in told(table):
            missing = [change for change in again if change not in changes]
            assert not missing, (table, changes)
    stage.mysql.execute(*(f"INSERT INTO {table} VALUES (4, 4)" for table in stage.tables))
    assert stage.run() is None
    assert all(changes.count(("c", 4, 4)) == 1 for table in stage.tables for changes in told(table))


def limit(kafka: KafkaServer, topic: str, size: int) -> None:
    """Set the size of the largest message that a topic takes."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.slow  # each run of a process takes ten seconds
def test_parking_and_resuming_a_sink_are_exact_though_the_process_is_killed(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
    )
    run = PipelineProcess(tmp_path, mysql, table, sink=two_lakes(tmp_path))

    def held() -> list[list[tuple[Any, ...]]]:
        return [rows_of(spark, tmp_path / name / table) for name in ("one", "two")]

    assert run.run() == EXIT_DONE, run.output()
    first = source_rows(mysql, table)
    assert held() == [first] * 2
    break_lake(tmp_path / "two", table)
    mysql.execute(f"UPDATE {table} SET v = 20 WHERE id = 2", f"DELETE FROM {table} WHERE id = 1")
    run.run(failpoint="park.sink", victim="self")
    assert [entry.batch for entry in parked_sinks(str(run.targets / "_tailrace" / "checkpoint"))] == [1]
    mend_lake(tmp_path / "two", table)
    assert run.command("resume", "--sink", "two") == 0, run.output()
    mysql.execute(f"INSERT INTO {table} VALUES (4, 4)", f"DELETE FROM {table} WHERE id = 3")
    run.run(failpoint="resume.sink", victim="self")
    assert held()[1] == first, "the batches before are not given to the sink"
    mysql.execute(f"INSERT INTO {table} VALUES (5, 5)")
    assert run.run() == EXIT_DONE, run.output()
    assert held() == [source_rows(mysql, table)] * 2
