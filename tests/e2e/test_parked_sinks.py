"""A sink that cannot go on is parked, the others flow, and once resumed its targets equal their tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace.failpoints import VARIABLE
from tailrace.pipeline.parked_sinks import parked_sinks, request_resume
from tailrace.pipeline.status import status
from tests.e2e.test_parking import Running, mysql_source, rows_of, source_rows
from tests.support.pipelines import delta_rows


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
