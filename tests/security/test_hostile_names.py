"""Databases full of names that attack, run through a real pipeline into every sink."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.formats.connect.topics import legal
from tailrace.model.paths import file_name
from tailrace.model.table import TableId
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.iceberg.names import identifier
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.route import Router
from tailrace.sources import registry
from tailrace.verify.run import verify
from tailrace_dev.servers import KafkaServer, MySqlServer, PostgresServer
from tests.e2e.test_pipeline import Watching
from tests.support.sinks.iceberg import SYSTEM
from tests.support.topics import messages

SECRET = "hunter2-of-the-driver"
EXPANDED = "${system:tailrace.test.secret}"
#: Columns of every table, and of one of them.
FEW = [EXPANDED, "v.w"]
MANY = [
    *FEW,
    "../x",
    "b`t",
    "%2e%2e",
    "line\nbreak",
    "\x1b[31mred\x1b]0;title\x07",
    "[red]x[/red]",
    "'; DROP TABLE victim; --",
    '"dq"',
    "_hidden",
    "a b,c;d(e)=f{g}",
    "100%s",
    "back\\slash",
    "$$",
    "Ünïcode-名",
    "\u202ereversed",
    "l" * 63,
]
#: Tables and their columns, all of them names that MySQL and PostgreSQL both take.
TABLES = {
    EXPANDED: FEW,
    "../../../../[red]\x1b[31mx\u202e:*? %2e `'; DROP\n$$": MANY,
}
#: ... and such as only PostgreSQL takes.
POSTGRES_TABLES = {
    EXPANDED: FEW,
    "../../../../😀[red]\x1b[31mx\u202e:*? 'q' $$": MANY,
}
KEY = "k.`e"
DOUBLE = '"'


def quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, 2 * quote) + quote


@dataclass(frozen=True)
class Attacked:
    """A server with a database full of such names.

    Args:
        server: the server.
        schema: the database (MySQL) or schema (PostgreSQL) with the tables.
        quote: the quote character of names.
        source: the pipeline's `source`.
        database: the database of statements.
        tables: the tables and their columns.
    """

    server: Any
    schema: str
    quote: str
    source: dict[str, Any]
    database: str | None
    tables: dict[str, list[str]]

    def name(self, table: str) -> str:
        return f"{quoted(self.schema, self.quote)}.{quoted(table, self.quote)}"

    @property
    def plain(self) -> str:
        """The schema's name, for a replica: its targets' databases end at the first dot."""
        return self.schema.replace(".", "_")

    def q(self, name: str) -> str:
        return quoted(name, self.quote)

    def run(self, *statements: str) -> None:
        with closing(self.server.connect(database=self.database)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def fill(self) -> None:
        key = self.q(KEY)
        for table, names in self.tables.items():
            columns = ", ".join(f"{self.q(name)} varchar(40)" for name in names)
            self.run(
                f"CREATE TABLE {self.name(table)} ({key} int NOT NULL PRIMARY KEY, {columns})",
                *(self._insert(table, number) for number in range(4)),
            )

    def change(self) -> None:
        column, key = self.q("v.w"), self.q(KEY)
        for table in self.tables:
            self.run(
                f"UPDATE {self.name(table)} SET {column} = 'changed' WHERE {key} = 1",
                f"DELETE FROM {self.name(table)} WHERE {key} = 2",
                self._insert(table, 7),
            )

    def rows(self, name: str) -> dict[int, dict[str, Any]]:
        with closing(self.server.connect(database=self.database)) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM {name}")
            names = [column[0] for column in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row[KEY]: row for row in found}

    def _insert(self, table: str, number: int) -> str:
        values = ", ".join(f"'{i}-{number}'" for i in range(len(self.tables[table])))
        return f"INSERT INTO {self.name(table)} VALUES ({number}, {values})"


@pytest.fixture
def secret(spark: SparkSession) -> SparkSession:
    """A session as in a notebook: variables in statements are replaced."""
    spark._jvm.java.lang.System.setProperty("tailrace.test.secret", SECRET)
    session = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "true")
    assert session.sql(f"SELECT 1 AS `{EXPANDED}`").columns == [SECRET]
    return session


@pytest.fixture
def in_mysql(mysql: MySqlServer) -> Iterator[Attacked]:
    schema = f"n.{uuid.uuid4().hex[:8]}"
    mysql.execute(f"CREATE DATABASE `{schema}`")
    source = {
        "url": f"mysql://{mysql.host}:{mysql.port}",
        "user": mysql.user,
        "password": mysql.password,
        "tables": rf"{re.escape(schema)}\..*",
        "tls-mode": "disabled",
    }
    yield Attacked(mysql, schema, "`", source, None, TABLES)
    plain = schema.replace(".", "_")
    names = [f"`{schema}`", f"`copy_{plain}`", f"`notes_{plain}`"]
    mysql.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in names))


@pytest.fixture
def in_postgres(postgres: PostgresServer, postgres_database: str) -> Attacked:
    source = {
        "url": f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
        "user": postgres.user,
        "password": postgres.password,
        "tables": r"n\..*",
        "slot-name": f"slot_{postgres_database}",
        "tls-mode": "disabled",
    }
    attacked = Attacked(postgres, "n", DOUBLE, source, postgres_database, POSTGRES_TABLES)
    attacked.run("CREATE SCHEMA n")
    return attacked


class Run:
    """A pipeline of an attacked server into sinks below `lake`."""

    def __init__(self, session: SparkSession, lake: Path, attacked: Attacked, sinks: list[Any]) -> None:
        self.session = session
        self.lake = lake
        self.attacked = attacked
        self.sinks = sinks
        self.route = [
            {
                "source-table": rf"{re.escape(attacked.schema)}\.(.*)",
                "sink-table": f"copy_{attacked.plain}.$1",
            }
        ]

    @property
    def pipeline(self) -> Pipeline:
        text = {
            "source": self.attacked.source,
            "sink": self.sinks,
            "route": self.route,
            "pipeline": {
                "name": "names",
                "checkpoint": str(self.lake / "checkpoint"),
                "trigger": "available-now",
            },
        }
        return parse_pipeline(yaml.safe_dump(text, allow_unicode=True))

    def __call__(self) -> None:
        pipeline = self.pipeline
        with closing(registry.source(pipeline.source)) as source:
            source.require()
            tables = [table.schema.id for table in source.tables()]
        assert len(tables) == len(self.attacked.tables)
        sink = make_sinks(pipeline)
        try:
            sink.claim(tables)
            read = partial(read_cells, self.session, pipeline)
            Supervisor(read, pipeline, sink, Watching(), threading.Event()).run()
        finally:
            sink.close()

    def target(self, table: str) -> str:
        return f"copy_{self.attacked.plain}.{table}"

    def path(self, sink: str, table: str) -> Path:
        return self.lake / sink / file_name(self.target(table))


def collapsed(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows that a change log results in."""
    held = {row[KEY]: row for row in sorted(rows, key=lambda row: row["_seq"])}
    return {
        key: {name: value for name, value in row.items() if name not in SYSTEM}
        for key, row in held.items()
        if row["_op"] != "d"
    }


def lines_of(directory: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for file in directory.rglob("part-*") for line in file.read_text().splitlines()]
    return [{**dict.fromkeys(names), **row} for row in found]


def in_topic(kafka: KafkaServer, topic: str) -> dict[int, dict[str, Any]]:
    held: dict[int, Any] = {}
    for message in messages(kafka, topic):
        assert message.key is not None
        after = None if message.value is None else json.loads(message.value)["after"]
        held[json.loads(message.key)[KEY]] = after
    return {key: row for key, row in held.items() if row is not None}


def nothing_leaked(root: Path, lake: Path) -> None:
    assert {path.name for path in root.iterdir()} == {lake.name}
    for path in lake.rglob("*"):
        assert SECRET not in str(path)
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_names_of_mysql_reach_every_sink_as_data(
    secret: SparkSession,
    in_mysql: Attacked,
    kafka: KafkaServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lake = tmp_path / "a" / "b" / "c" / "d" / "lake"
    server, prefix = in_mysql.server, f"p{uuid.uuid4().hex[:8]}"
    replica = {
        "type": "mysql",
        "url": f"mysql://{server.host}:{server.port}/notes_{in_mysql.plain}",
        "user": server.user,
        "password": server.password,
        "tls-mode": "disabled",
    }
    sinks = [
        {"type": "delta", "path": str(lake / "upsert"), "mode": "upsert"},
        {"type": "delta", "path": str(lake / "scd2"), "mode": "scd2"},
        {"type": "iceberg", "path": str(lake / "iceberg")},
        {"type": "parquet", "path": str(lake / "parquet")},
        {"type": "json", "path": str(lake / "json")},
        {"type": "kafka", "bootstrap-servers": kafka.bootstrap, "topic-prefix": prefix, "parallelism": 1},
        replica,
        {"type": "console", "rows": 10_000},
    ]
    run = Run(secret, lake, in_mysql, sinks)
    in_mysql.fill()
    run()
    in_mysql.change()
    run()

    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{lake}/iceberg/_tailrace/iceberg.db")
    read = secret.read
    for table, names in TABLES.items():
        wanted = in_mysql.rows(in_mysql.name(table))
        assert set(wanted) == {0, 1, 3, 7}
        target = run.target(table)
        upsert = read.format("delta").load(str(run.path("upsert", table))).collect()
        assert {row[KEY]: row.asDict() for row in upsert} == wanted, table
        scd2 = read.format("delta").load(str(run.path("scd2", table))).where("_is_current").collect()
        assert {row[KEY]: {n: row[n] for n in (KEY, *names)} for row in scd2} == wanted, table
        iceberg: pa.Table = catalog.load_table(identifier(target)).scan().to_arrow()
        assert {row[KEY]: row for row in iceberg.to_pylist()} == wanted, table
        parquet = read.parquet(str(run.path("parquet", table))).collect()
        assert collapsed([row.asDict() for row in parquet]) == wanted, table
        assert collapsed(lines_of(run.path("json", table), names)) == wanted, table
        assert in_topic(kafka, legal(f"{prefix}.{target}")) == wanted, table
        copied = f"{quoted(f'copy_{in_mysql.plain}', '`')}.{quoted(table, '`')}"
        assert in_mysql.rows(copied) == wanted, table
    catalog.close()
    nothing_leaked(tmp_path / "a" / "b" / "c" / "d", lake)
    printed = capfd.readouterr().out
    assert SECRET not in printed
    assert "[red]\\x1b[31mx\\u202e" in printed
    assert not {c for c in printed if c < " " and c != "\n"} | {c for c in printed if c == "\u202e"}
    assert verify(run.pipeline, secret).equal
    router = Router(run.pipeline.routes)
    assert router.path(TableId(in_mysql.schema, "../x")) == f"copy_{in_mysql.plain}...%2Fx"


def test_names_of_postgres_reach_every_sink_as_data(
    secret: SparkSession, in_postgres: Attacked, tmp_path: Path
) -> None:
    lake = tmp_path / "a" / "b" / "c" / "d" / "lake"
    server = in_postgres.server
    replica = {
        "type": "postgresql",
        "url": f"postgresql://{server.host}:{server.port}/{in_postgres.database}",
        "user": server.user,
        "password": server.password,
        "schema": "notes $$ ' \\",
        "tls-mode": "disabled",
    }
    sinks = [
        {"type": "delta", "path": str(lake / "changelog"), "mode": "changelog"},
        {"type": "iceberg", "path": str(lake / "iceberg"), "mode": "changelog"},
        replica,
    ]
    run = Run(secret, lake, in_postgres, sinks)
    in_postgres.fill()
    run()
    in_postgres.change()
    run()

    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{lake}/iceberg/_tailrace/iceberg.db")
    for table in in_postgres.tables:
        wanted = in_postgres.rows(in_postgres.name(table))
        assert set(wanted) == {0, 1, 3, 7}
        target = run.target(table)
        changelog = secret.read.format("delta").load(str(run.path("changelog", table))).collect()
        assert collapsed([row.asDict() for row in changelog]) == wanted, table
        iceberg: pa.Table = catalog.load_table(identifier(target)).scan().to_arrow()
        assert collapsed(iceberg.to_pylist()) == wanted, table
        copied = f"{quoted('copy_n', DOUBLE)}.{quoted(table, DOUBLE)}"
        assert in_postgres.rows(copied) == wanted, table
    catalog.close()
    nothing_leaked(tmp_path / "a" / "b" / "c" / "d", lake)
