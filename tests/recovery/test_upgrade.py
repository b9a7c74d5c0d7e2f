"""A pipeline of an earlier release continues with this one: same file, same checkpoint, same targets.

The earlier release is a commit of this repository, run as a process of its own. It stands for what users
have: its checkpoints, ledgers, markers, table properties and paths.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tailrace_dev.servers import KafkaServer, MySqlServer, PostgresServer
from tests.support.topics import messages

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
#: The last commit before modules moved to their layers and issue 14 changed what is private.
_RELEASE = "16a99e692e0f7a515a562cd61f38ad43eac7587d"
#: Tables of the source; the second one has a name that paths keep as it is.
_TABLES = ("t", "odd name")

State = dict[int, str]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the earlier release."""
    directory = tmp_path_factory.mktemp("release")
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", _RELEASE, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("the repository's history is not there")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory / "src"


class Shop:
    """Two tables of a server, and statements that change them."""

    def __init__(self, server: MySqlServer | PostgresServer, database: str, quote: str, schema: str) -> None:
        self.server = server
        self.database = database
        self.schema = schema
        self._quote = quote

    def run(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        with closing(self.server.connect(database=self.database)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
        return rows

    def name(self, table: str, schema: str | None = None) -> str:
        q = self._quote
        return f"{q}{schema or self.schema}{q}.{q}{table}{q}"

    def fill(self) -> None:
        for table in _TABLES:
            self.run(
                f"CREATE TABLE {self.name(table)} (id int NOT NULL PRIMARY KEY, name varchar(20))",
                *(f"INSERT INTO {self.name(table)} VALUES ({i}, 'first {i}')" for i in range(20)),
            )

    def change(self, word: str, new: int) -> None:
        for table in _TABLES:
            self.run(
                f"UPDATE {self.name(table)} SET name = '{word}' WHERE id % 3 = {new % 3}",
                f"DELETE FROM {self.name(table)} WHERE id = {new}",
                f"INSERT INTO {self.name(table)} VALUES ({100 + new}, '{word} {new}')",
            )

    def state(self, table: str, schema: str | None = None) -> State:
        return {int(i): name for i, name in self.run(f"SELECT id, name FROM {self.name(table, schema)}")}


@pytest.fixture(params=["mysql", "postgres"])
def shop(request: pytest.FixtureRequest) -> Iterator[tuple[Shop, dict[str, Any]]]:
    """The shop and the pipeline's `source`."""
    server = request.getfixturevalue(request.param)
    if request.param == "mysql":
        name = f"u_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {name}")
        source = {"url": server.url, "tables": rf"{name}\..*"}
        yield Shop(server, name, "`", name), source
        server.execute(
            f"DROP DATABASE {name}", *(f"DROP DATABASE IF EXISTS {x}_{name}" for x in ("copy", "notes"))
        )
        return
    database = request.getfixturevalue("postgres_database")
    shop = Shop(server, database, '"', "shop")
    shop.run("CREATE SCHEMA shop")
    yield shop, {"url": f"{server.url}/{database}", "tables": r"shop\..*", "slot-name": f"slot_{database}"}


def _collapsed(rows: list[dict[str, Any]]) -> State:
    last = {row["id"]: row for row in sorted(rows, key=lambda row: row["_seq"])}
    return {key: row["name"] for key, row in last.items() if row["_op"] != "d"}


def _in_topic(kafka: KafkaServer, topic: str) -> State:
    held: dict[int, Any] = {}
    for message in messages(kafka, topic):
        assert message.key is not None
        held[json.loads(message.key)["id"]] = (
            None if message.value is None else json.loads(message.value)["after"]
        )
    return {key: row["name"] for key, row in held.items() if row is not None}


def test_pipeline_of_an_earlier_release_continues_with_this_one(
    spark: SparkSession,
    kafka: KafkaServer,
    release: Path,
    shop: tuple[Shop, dict[str, Any]],
    tmp_path: Path,
) -> None:
    source_shop, source = shop
    server, target = source_shop.server, f"copy_{source_shop.schema}"
    prefix = f"u{uuid.uuid4().hex[:8]}"
    replica = (
        {"type": "mysql", "url": f"{server.url}/notes_{source_shop.schema}"}
        if isinstance(server, MySqlServer)
        else {"type": "postgresql", "url": source["url"]}
    )
    sinks: list[dict[str, Any]] = [
        {"type": "delta", "path": str(tmp_path / "upsert"), "mode": "upsert"},
        {"type": "delta", "path": str(tmp_path / "waiting"), "mode": "upsert", "merge-interval": 3600},
        {"type": "delta", "path": str(tmp_path / "scd2"), "mode": "scd2"},
        {"type": "delta", "path": str(tmp_path / "changelog"), "mode": "changelog"},
        {"type": "iceberg", "path": str(tmp_path / "iceberg")},
        {"type": "parquet", "path": str(tmp_path / "parquet")},
        {"type": "json", "path": str(tmp_path / "json")},
        {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix, "parallelism": 1},
        {**replica, "user": server.user, "password": "${env:TEST_PASSWORD}"},
    ]
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "source": {**source, "user": server.user, "password": "${env:TEST_PASSWORD}"},
                "sink": sinks,
                "route": [{"source-table": rf"{source_shop.schema}\.(.*)", "sink-table": f"{target}.$1"}],
                "pipeline": {
                    "name": "upgrade",
                    "checkpoint": str(tmp_path / "checkpoint"),
                    "trigger": "available-now",
                    "parallelism": 2,
                },
            }
        )
    )

    def run(python_path: str | None) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", "PYTHONPATH")}
        env |= {"TEST_PASSWORD": server.password} | ({"PYTHONPATH": python_path} if python_path else {})
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", "run", str(file)],
            env=env,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    source_shop.fill()
    run(str(release))
    source_shop.change("old", 1)
    run(str(release))
    source_shop.change("new", 2)
    run(os.environ.get("PYTHONPATH"))
    source_shop.change("newer", 3)
    run(os.environ.get("PYTHONPATH"))

    def delta(sink: str, table: str, where: str = "true") -> list[dict[str, Any]]:
        found = spark.read.format("delta").load(str(tmp_path / sink / f"{target}.{table}")).where(where)
        return [row.asDict() for row in found.collect()]

    def lines(table: str) -> list[dict[str, Any]]:
        files = (tmp_path / "json" / f"{target}.{table}").rglob("part-*")
        return [json.loads(line) for found in files for line in found.read_text().splitlines()]

    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/iceberg/_tailrace/iceberg.db")
    kept: Callable[[list[dict[str, Any]]], State] = lambda rows: {row["id"]: row["name"] for row in rows}  # noqa: E731
    for table in _TABLES:
        wanted = source_shop.state(table)
        parquet = spark.read.parquet(str(tmp_path / "parquet" / f"{target}.{table}"))
        assert {
            "upsert": kept(delta("upsert", table)),
            "waiting": kept(delta("waiting", table)),
            "scd2": kept(delta("scd2", table, "_is_current")),
            "changelog": _collapsed(delta("changelog", table)),
            "iceberg": kept(catalog.load_table((target, table)).scan().to_arrow().to_pylist()),
            "parquet": _collapsed([row.asDict() for row in parquet.collect()]),
            "json": _collapsed(lines(table)),
            "kafka": _in_topic(kafka, f"{prefix}.{target}.{table.replace(' ', '_')}"),
            "replica": source_shop.state(table, target),
        } == dict.fromkeys(
            ("upsert", "waiting", "scd2", "changelog", "iceberg", "parquet", "json", "kafka", "replica"),
            wanted,
        )
        assert len(delta("changelog", table)) == len(lines(table)), "no change twice"
    catalog.close()
