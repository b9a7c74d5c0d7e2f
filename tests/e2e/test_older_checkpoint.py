"""A copy of a checkpoint that is restored after further batches: targets are ahead of it."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tailrace.cli import cli
from tailrace.config.load import load_pipeline
from tailrace.errors import ConfigError, StateError
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.iceberg import open_table


class Copied:
    """A pipeline of one table into one sink."""

    def __init__(self, spark: SparkSession, mysql: Any, database: str, path: Path, sink: str) -> None:
        self.spark, self.mysql, self.table, self.path = spark, mysql, f"{database}.t", path
        self.checkpoint, self.kept = path / "checkpoint", path / "kept"
        self.file = path / "pipeline.yaml"
        self.file.write_text(
            f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user},"
            f" password: '{mysql.password}', tables: '{self.table}'}}\n"
            f"sink: {sink}\n"
            f"route: [{{source-table: '{database}[.](.*)', sink-table: $1}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: {self.checkpoint}, restarts: 0}}\n"
        )
        mysql.execute(
            f"CREATE TABLE {self.table} (id INT PRIMARY KEY, a INT)",
            f"INSERT INTO {self.table} VALUES (1, 1), (2, 2), (3, 3)",
        )

    def run(self) -> None:
        pipeline = load_pipeline(self.file)
        with closing(make_sinks(pipeline)) as sink:
            read = lambda: read_cells(self.spark, pipeline)  # noqa: E731
            Supervisor(read, pipeline, sink, _Quiet(), threading.Event()).run()

    def change(self, *statements: str) -> None:
        self.mysql.execute(*(text.format(self.table) for text in statements))

    def keep(self) -> None:
        shutil.copytree(self.checkpoint, self.kept)

    def put_back(self) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.kept, self.checkpoint)

    def source_rows(self) -> list[tuple[int, int]]:
        return sorted((int(i), int(a)) for i, a in self.mysql.execute(f"SELECT id, a FROM {self.table}"))

    def command(self, *arguments: str) -> str:
        return CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout


def _target(kind: str, spark: SparkSession, mysql: Any, database: str, path: Path) -> tuple[str, Any]:
    """The settings of a sink, and what reads its rows."""
    lake = path / "lake"
    match kind:
        case "delta":

            def read() -> list[tuple[int, int]]:
                found = spark.read.format("delta").load(str(lake / "t")).collect()
                return sorted((row["id"], row["a"]) for row in found)

            return f"{{type: delta, path: {lake}, mode: upsert, merge-interval: 0}}", read
        case "iceberg":

            def read() -> list[tuple[int, int]]:
                with open_table(lake, "default.t") as held:
                    return sorted((row["id"], row["a"]) for row in held.scan().to_arrow().to_pylist())

            return f"{{type: iceberg, path: {lake}, mode: upsert}}", read
        case _:
            replica = f"{database}_replica"

            def read() -> list[tuple[int, int]]:
                return sorted((int(i), int(a)) for i, a in mysql.execute(f"SELECT id, a FROM {replica}.t"))

            address = f"url: 'mysql://{mysql.host}:{mysql.port}/{replica}', user: {mysql.user}"
            return f"{{type: mysql, {address}, password: '{mysql.password}'}}", read


@pytest.mark.parametrize(
    "kind", ["delta", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("iceberg", "mysql"))]
)
def test_older_checkpoint_is_refused_until_the_stream_goes_on_behind_its_targets(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kind: str
) -> None:
    """Its next batch would have the number of one that the target has; then all tables are read again."""
    sink, rows = _target(kind, spark, mysql, database, tmp_path)
    pipeline = Copied(spark, mysql, database, tmp_path, sink)
    pipeline.run()
    pipeline.keep()
    for statement in ("UPDATE {} SET a = 20 WHERE id = 2", "DELETE FROM {} WHERE id = 1"):
        pipeline.change(statement)
        pipeline.run()
    had = rows()
    pipeline.put_back()
    pipeline.change("INSERT INTO {} VALUES (4, 4)", "DELETE FROM {} WHERE id = 3")
    for _ in range(2):  # an attempt leaves no trace that would let the next one pass
        with pytest.raises(StateError, match="older than target"):
            pipeline.run()
    assert rows() == had
    offset = tmp_path / "offset.json"
    offset.write_text(pipeline.command("offsets", "show", str(pipeline.file)))
    told = pipeline.command("offsets", "set", str(pipeline.file), f"@{offset}")
    assert f"{pipeline.table} will be read again" in told
    pipeline.change("INSERT INTO {} VALUES (5, 5)")
    pipeline.run()
    assert rows() == pipeline.source_rows() == [(2, 20), (4, 4), (5, 5)]
    pipeline.change("DELETE FROM {} WHERE id = 5")
    pipeline.run()
    assert rows() == pipeline.source_rows()
    mysql.execute(f"DROP DATABASE IF EXISTS {database}_replica")


def test_stream_into_change_logs_does_not_go_on_behind_its_targets(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    pipeline = Copied(spark, mysql, database, tmp_path, f"{{type: parquet, path: {lake}}}")
    pipeline.run()
    pipeline.keep()
    pipeline.change("INSERT INTO {} VALUES (4, 4)")
    pipeline.run()
    pipeline.put_back()
    pipeline.change("INSERT INTO {} VALUES (5, 5)")
    with pytest.raises(StateError, match="older than target"):
        pipeline.run()
    offset = tmp_path / "offset.json"
    offset.write_text(pipeline.command("offsets", "show", str(pipeline.file)))
    with pytest.raises(ConfigError, match="second time"):
        pipeline.command("offsets", "set", str(pipeline.file), f"@{offset}")
    assert spark.read.parquet(str(lake / "t")).count() == 4
