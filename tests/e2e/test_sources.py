"""Several sources in one pipeline: shards on three servers, in one Delta table and in tables of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tailrace.cli import cli
from tailrace.config.load import parse_pipelines
from tailrace.errors import TailraceError
from tailrace.failpoints import VARIABLE
from tailrace.pipeline.run_sources import run_sources
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.e2e.test_mariadb import _Quiet
from tests.support.databases import fresh_database
from tests.support.topics import messages

_ROUTES = """
  - {source-table: '.*\\.orders', sink-table: orders, shard-column: _shard}
  - {source-table: '.*\\.own', sink-table: '{source}_own'}
"""


@dataclass(frozen=True)
class _Shard:
    """A database on a server: `@` in SQL is its prefix."""

    schema: str
    run: Callable[..., Any]
    source: str

    def __call__(self, *statements: str) -> Any:
        return self.run(*(statement.replace("@", f"{self.schema}.") for statement in statements))


@pytest.fixture
def shards(mysql: Any, mariadb: Any, postgres: Any, postgres_database: str) -> Iterator[Mapping[str, _Shard]]:
    """A database on each server, by the source's name."""
    with ExitStack() as stack:
        found = {}
        for name, server in (("east", mysql), ("west", mariadb)):
            database = stack.enter_context(fresh_database(server))
            found[name] = _Shard(
                database,
                server.execute,
                f"{{name: {name}, url: 'mysql://{server.host}:{server.port}', user: {server.user},"
                f" password: '{server.password}', tables: '{database}\\..*'}}",
            )
        found["north"] = _Shard(
            "public",
            lambda *sql: postgres.execute(*sql, database=postgres_database),
            f"{{name: north, url: 'postgresql://{postgres.host}:{postgres.port}/{postgres_database}',"
            f" user: postgres, password: '{postgres.password}', tables: 'public\\..*',"
            f" slot-name: slot_{postgres_database}}}",
        )
        for name, shard in found.items():
            wide = "BIGINT" if name == "west" else "INT"
            shard(
                f"CREATE TABLE @orders (id INT PRIMARY KEY, a {wide}, {name} INT)",
                "INSERT INTO @orders VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30)",
                "CREATE TABLE @own (id INT PRIMARY KEY)",
                "INSERT INTO @own VALUES (7)",
            )
        yield found


def _file(shards: Mapping[str, _Shard], path: Path, *, names: tuple[str, ...] = (), more: str = "") -> str:
    sources = "\n".join(f"  - {shards[name].source}" for name in names or shards)
    return (
        f"sources:\n{sources}\n"
        f"sink: {{type: delta, path: {path / 'lake'}, mode: upsert{more}}}\n"
        f"route:{_ROUTES}"
        f"pipeline: {{trigger: available-now, checkpoint: {path / 'checkpoint'}, restarts: 3, name: shop}}\n"
    )


def _run(spark: SparkSession, text: str) -> None:
    pipelines = parse_pipelines(text)
    watchers = {pipeline.source_name: _Quiet() for pipeline in pipelines}
    run_sources(pipelines, watchers, threading.Event(), session=spark)


def _expected(shards: Mapping[str, _Shard]) -> dict[tuple[str, int], dict[str, Any]]:
    found = {}
    for name, shard in shards.items():
        if name == "north":
            query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders'"
        else:
            query = (
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders'"
                f" AND table_schema = '{shard.schema}'"
            )
        columns = [row[0] for row in shard(query)]
        for row in shard(f"SELECT {', '.join(columns)} FROM @orders"):
            values = dict(zip(columns, row, strict=True))
            found[f"{name}.{shard.schema}.orders", values["id"]] = {
                column: value for column, value in values.items() if value is not None
            }
    return found


def _orders(spark: SparkSession, path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = [row.asDict() for row in spark.read.format("delta").load(str(path / "lake" / "orders")).collect()]
    found = {
        (row["_shard"], row["id"]): {
            name: value for name, value in row.items() if value is not None and name != "_shard"
        }
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.mark.slow
def test_shards_on_several_servers_are_one_table(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path
) -> None:
    """With columns that only some have, DDL shard by shard, a reading of one shard, and a source left out."""
    text = _file(shards, tmp_path)
    _run(spark, text)
    assert _orders(spark, tmp_path) == _expected(shards)
    for name in shards:
        own = spark.read.format("delta").load(str(tmp_path / "lake" / f"{name}_own"))
        assert [row["id"] for row in own.collect()] == [7]

    # one shard after the other gets a column, and one loses a column that the others have
    shards["east"](
        "ALTER TABLE @orders ADD COLUMN b INT",
        "INSERT INTO @orders VALUES (4, 4, 40, 400)",
        "DELETE FROM @orders WHERE id = 1",
        "UPDATE @orders SET a = 22 WHERE id = 2",
    )
    shards["north"]("UPDATE @orders SET a = 33 WHERE id = 1")
    _run(spark, text)
    assert _orders(spark, tmp_path) == _expected(shards)
    shards["north"]("ALTER TABLE @orders ADD COLUMN b INT", "INSERT INTO @orders VALUES (5, 5, 50, 500)")
    shards["west"]("DELETE FROM @orders WHERE id = 3", "UPDATE @orders SET west = 21 WHERE id = 2")
    _run(spark, _file(shards, tmp_path, names=("east", "north")))
    expected = _expected(shards)
    assert {key: row for key, row in _orders(spark, tmp_path).items() if "west." not in key[0]} == {
        key: row for key, row in expected.items() if "west." not in key[0]
    }

    # a reading of one source's table leaves the rows of others alone
    checkpoint = f"{tmp_path}/checkpoint/sources/east"
    RequestDirectory(requests_path(checkpoint)).add([f"{shards['east'].schema}.orders"])
    shards["east"]("DELETE FROM @orders WHERE id = 3")
    for _ in range(2):
        _run(spark, text)
    assert _orders(spark, tmp_path) == _expected(shards)


def test_rows_that_nothing_tells_apart_are_refused(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path
) -> None:
    text = _file(shards, tmp_path).replace(", shard-column: _shard", "")
    with pytest.raises(TailraceError, match="would be mixed in one target") as raised:
        _run(spark, text)
    assert raised.value.code == "TR-1223"
    assert not (tmp_path / "lake" / "orders").exists()


def test_a_source_that_has_left_keeps_its_rows_apart(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path
) -> None:
    _run(spark, _file(shards, tmp_path, names=("east",)))
    before = _orders(spark, tmp_path)
    with pytest.raises(TailraceError, match="has rows of other sources") as raised:
        _run(spark, _file(shards, tmp_path, names=("west",)).replace(", shard-column: _shard", ""))
    assert raised.value.code == "TR-7021"
    assert _orders(spark, tmp_path) == before


def test_the_others_go_on_when_one_source_fails(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path
) -> None:
    text = _file(shards, tmp_path)
    port = shards["west"].source.partition("://")[2].partition("'")[0]
    with pytest.raises(TailraceError) as raised:
        _run(spark, text.replace(port, "127.0.0.1:1"))
    assert raised.value.retryable
    expected = {key: row for key, row in _expected(shards).items() if "west." not in key[0]}
    assert _orders(spark, tmp_path) == expected
    _run(spark, text)
    assert _orders(spark, tmp_path) == _expected(shards)
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    _commands(file, shards)


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", ["sink.table", "sink.committed"])
def test_a_killed_pipeline_goes_on_where_each_source_was(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path, failpoint: str
) -> None:
    """`tailrace run`, killed with SIGKILL in the first batch and in one of changes."""
    file = tmp_path / "shop.yaml"
    file.write_text(_file(shards, tmp_path, more=", merge-interval: 0"))
    for turn in range(2):
        killed = _tailrace(file, {VARIABLE: f"{failpoint}=self@{tmp_path / f'token{turn}'}"})
        assert killed.returncode == -9, killed.stderr
        assert _tailrace(file, {}).returncode == 0
        assert _orders(spark, tmp_path) == _expected(shards)
        for number, shard in enumerate(shards.values()):
            shard(
                "UPDATE @orders SET a = a + 100 WHERE id = 2",
                "DELETE FROM @orders WHERE id = 1",
                f"INSERT INTO @orders VALUES ({10 + turn}, 1, {number})",
            )


def _commands(file: Path, shards: Mapping[str, _Shard]) -> None:
    """What commands say about a file with several sources."""
    call = CliRunner().invoke
    found = json.loads(call(cli, ["status", str(file), "--json"]).stdout)["sources"]
    assert found.keys() == shards.keys()
    for name, status in found.items():
        assert {table["state"] for table in status["tables"]} == {"streaming"}
        (sink,) = status["sinks"]
        assert {target["name"] for target in sink["targets"]} == {"orders", f"{name}_own"}
        assert sink["visible_batch"] == status["batch"]["id"]
    checked = call(cli, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert [line for line in checked.output.splitlines() if line.startswith("source ")][:1]
    refused = call(cli, ["resync", str(file), "public.orders"]).exception
    assert isinstance(refused, TailraceError)
    assert refused.code == "TR-1320"
    asked = call(cli, ["resync", str(file), "public.orders", "--source", "north"])
    assert asked.exit_code == 0, asked.output


def _tailrace(file: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "run", str(file)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@dataclass(frozen=True)
class _Targets:
    """A database, also the prefix of topics, and the settings of sinks that write there."""

    database: str
    mysql: Any
    kafka: Any

    @property
    def sinks(self) -> Mapping[str, str]:
        server = self.mysql
        return {
            "replica": f"{{type: mysql, url: '{server.url}/{self.database}', user: {server.user},"
            f" password: '{server.password}'}}",
            "kafka": f"{{type: kafka, bootstrap-servers: '{self.kafka.bootstrap}',"
            f" topic-prefix: {self.database}}}",
        }


@pytest.fixture
def targets(mysql: Any, kafka: Any, database: str) -> _Targets:
    """Where a replica and topics are written."""
    return _Targets(database, mysql, kafka)


def test_replicas_and_topics_of_several_sources(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path, targets: _Targets
) -> None:
    """A replica takes one source for each table; a topic takes both, with keys that name the source."""
    names, database = ("east", "west"), targets.database

    def file(target: str, kind: str) -> str:
        text = _file(shards, tmp_path / kind, names=names)
        start, end = text.index("sink: "), text.index("pipeline: ")
        return (
            f"{text[:start]}sink: {targets.sinks[kind]}\nroute: [{{source-table: '.*\\.orders', {target}}},"
            f" {{source-table: '.*', sink-table: '{database}.{{source}}_own'}}]\n{text[end:]}"
        )

    with pytest.raises(TailraceError, match="take the rows of one source"):
        _run(spark, file(f"sink-table: {database}.orders, shard-column: _shard", "replica"))
    own = file(f"sink-table: '{database}.{{source}}_orders'", "replica")
    shared = file("sink-table: orders, shard-column: _shard", "kafka")
    for turn in range(2):
        _run(spark, own)
        _run(spark, shared)
        for name in names:
            query = "SELECT id, a, " + name + " FROM {} ORDER BY id"
            copied = targets.mysql.execute(query.format(f"{database}.{name}_orders"))
            assert copied == shards[name](query.format("@orders"))
            shards[name](
                "DELETE FROM @orders WHERE id = 1", f"UPDATE @orders SET a = {turn + 50} WHERE id = 2"
            )
    found: dict[tuple[str, int], int] = {}
    for message in messages(targets.kafka, f"{database}.orders"):
        key = json.loads(message.key or b"")
        assert key.keys() == {"id", "_shard"}
        place = key["_shard"], key["id"]
        found[place] = found.get(place, 0) + 1
    # read, updated or deleted, and a tombstone: each once
    tables = [f"{name}.{shards[name].schema}.orders" for name in names]
    assert found == {(table, id_): count for table in tables for id_, count in ((1, 3), (2, 2), (3, 1))}


@pytest.mark.slow
def test_a_shared_target_that_was_dropped_is_filled_again_by_all_sources(
    spark: SparkSession, shards: Mapping[str, _Shard], tmp_path: Path
) -> None:
    """The source that writes first makes it anew; the others find that they are not in it."""
    text = _file(shards, tmp_path, more=", merge-interval: 3600")  # changes are pending first
    _run(spark, text)
    shutil.rmtree(tmp_path / "lake" / "orders")
    for turn in range(3):
        for shard in shards.values():
            shard(f"UPDATE @orders SET a = {turn + 7} WHERE id = 2")
        _run(spark, text)
    assert _orders(spark, tmp_path) == _expected(shards)
