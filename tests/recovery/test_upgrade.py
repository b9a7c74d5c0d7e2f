"""A pipeline of an earlier release continues with this one: same file, same checkpoint, same targets.

The earlier release is a commit of this repository, run as a process of its own. It stands for what users
have: its checkpoints, ledgers, markers, table properties and paths. It is killed between the sink's commit
and Spark's, so this release must recognise a batch that the earlier one has written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tailrace.failpoints import VARIABLE
from tailrace_dev.servers import MySqlServer, PostgresServer
from tests.support.topics import messages

# Each case starts three JVMs and compiles kernels of the earlier release, once for a checkout.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_ROOT = Path(__file__).parents[2]
#: The last commit before modules moved to their layers and issue 14 changed what is private.
_RELEASE = "16a99e692e0f7a515a562cd61f38ad43eac7587d"
#: The second table has a name that paths quote.
_TABLES = ("t", "odd name")
_ROWS = 20

State = dict[int, str]
Row = Mapping[str, Any]


@pytest.fixture(scope="session")
def release(pytestconfig: pytest.Config) -> Path:
    """The sources of the earlier release, where their compiled kernels are kept from run to run."""
    directory = pytestconfig.cache.mkdir(f"release-{_RELEASE[:12]}")
    if not (directory / "complete").exists():
        archive = subprocess.run(
            ["git", "-C", str(_ROOT), "archive", _RELEASE, "src"], capture_output=True, check=False
        )
        if archive.returncode:
            pytest.skip("this checkout has no history")
        subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
        (directory / "complete").touch()
    return directory / "src"


@dataclass(frozen=True)
class Shop:
    """Two tables of a server, and statements that change them.

    Args:
        server: the server.
        database: where to connect to.
        quote: what encloses names.
        schema: the tables' database or schema.
        source: the pipeline's `source`, without the user.
        replica: the `sink` that copies the tables to the same server, without the user.
    """

    server: MySqlServer | PostgresServer
    database: str
    quote: str
    schema: str
    source: Mapping[str, Any]
    replica: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The copies' database or schema."""
        return f"copy_{self.schema}"

    def run(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        with closing(self.server.connect(database=self.database)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
        return rows

    def fill(self) -> None:
        for table in _TABLES:
            name = self._name(table, self.schema)
            self.run(
                f"CREATE TABLE {name} (id int NOT NULL PRIMARY KEY, name varchar(20))",
                *(f"INSERT INTO {name} VALUES ({i}, 'first {i}')" for i in range(_ROWS)),
            )

    def change(self, word: str, new: int) -> None:
        """Update every third row, delete one, insert one."""
        for table in _TABLES:
            name = self._name(table, self.schema)
            self.run(
                f"UPDATE {name} SET name = '{word}' WHERE id % 3 = {new % 3}",
                f"DELETE FROM {name} WHERE id = {new}",
                f"INSERT INTO {name} VALUES ({100 + new}, '{word} {new}')",
            )

    def state(self, table: str, schema: str | None = None) -> State:
        return {
            int(i): v for i, v in self.run(f"SELECT id, name FROM {self._name(table, schema or self.schema)}")
        }

    def _name(self, table: str, schema: str) -> str:
        return f"{self.quote}{schema}{self.quote}.{self.quote}{table}{self.quote}"


@pytest.fixture(params=["mysql", "postgres"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    server = request.getfixturevalue(request.param)
    if request.param == "mysql":
        name = f"u_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {name}")
        source = {"url": server.url, "tables": rf"{name}\..*"}
        yield Shop(server, name, "`", name, source, {"type": "mysql", "url": f"{server.url}/notes_{name}"})
        server.execute(*(f"DROP DATABASE IF EXISTS {x}{name}" for x in ("", "copy_", "notes_")))
        return
    database = request.getfixturevalue("postgres_database")
    url = f"{server.url}/{database}"
    source = {"url": url, "tables": r"shop\..*", "slot-name": f"slot_{database}"}
    shop = Shop(server, database, '"', "shop", source, {"type": "postgresql", "url": url})
    shop.run("CREATE SCHEMA shop")
    yield shop


class Target:
    """What a sink has written.

    Args:
        request: the test's.
        shop: its source.
        path: of a lake sink.
    """

    def __init__(self, request: pytest.FixtureRequest, shop: Shop, path: Path) -> None:
        self.shop = shop
        self.path = path
        self.prefix = f"u{uuid.uuid4().hex[:8]}"
        self._request = request

    @property
    def bootstrap(self) -> str:
        return self._request.getfixturevalue("kafka").bootstrap

    def rows(self, format_: str, table: str) -> list[Row]:
        reader = self._request.getfixturevalue("spark").read.format(format_)
        return [row.asDict() for row in reader.load(str(self.path / f"{self.shop.target}.{table}")).collect()]

    def iceberg(self, table: str) -> list[Row]:
        uri = f"sqlite:///{self.path}/_tailrace/iceberg.db"
        with closing(load_catalog("tailrace", type="sql", uri=uri)) as catalog:
            rows: list[Row] = catalog.load_table((self.shop.target, table)).scan().to_arrow().to_pylist()
        return rows

    def topic(self, table: str) -> list[Row]:
        """A topic's events as rows of a change log."""
        name = f"{self.prefix}.{self.shop.target}.{table.replace(' ', '_')}"
        found = messages(self._request.getfixturevalue("kafka"), name)
        events = [json.loads(message.value) for message in found if message.value]
        return [{**(e["after"] or e["before"]), "_op": e["op"], "_seq": n} for n, e in enumerate(events)]


def _state(rows: list[Row]) -> State:
    """The state that a table of rows has; no key may be there twice."""
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def _replayed(changes: list[Row]) -> State:
    """The state that a change log leads to; no change may be there twice."""
    assert len({(row["id"], row["_op"], row["name"]) for row in changes}) == len(changes)
    last = {row["id"]: row for row in sorted(changes, key=lambda row: row["_seq"])}
    return {key: row["name"] for key, row in last.items() if row["_op"] != "d"}


def _current(versions: list[Row]) -> State:
    """The state of a history; no version may be there twice."""
    assert len({(row["id"], row["name"]) for row in versions}) == len(versions)
    return _state([row for row in versions if row["_is_current"]])


@dataclass(frozen=True)
class Sink:
    """A sink, and how its target is read.

    Args:
        settings: the pipeline's `sink`.
        state: the state of a table of the target; fails if a change is there twice.
    """

    settings: Callable[[Target], Mapping[str, Any]]
    state: Callable[[Target, str], State]


def _delta(state: Callable[[list[Row]], State], **settings: Any) -> Sink:
    return Sink(
        lambda target: {"type": "delta", "path": str(target.path), **settings},
        lambda target, table: state(target.rows("delta", table)),
    )


def _files(format_: str) -> Sink:
    return Sink(
        lambda target: {"type": format_, "path": str(target.path)},
        lambda target, table: _replayed(target.rows(format_, table)),
    )


SINKS = {
    "delta upsert": _delta(_state, mode="upsert"),
    "delta pending": _delta(_state, mode="upsert", **{"merge-interval": 3600}),
    "delta scd2": _delta(_current, mode="scd2"),
    "delta changelog": _delta(_replayed, mode="changelog"),
    "iceberg": Sink(
        lambda target: {"type": "iceberg", "path": str(target.path)},
        lambda target, table: _state(target.iceberg(table)),
    ),
    "parquet": _files("parquet"),
    "json": _files("json"),
    "kafka": Sink(
        lambda target: {
            "type": "kafka",
            "bootstrap-servers": target.bootstrap,
            "topic-prefix": target.prefix,
            "parallelism": 1,
        },
        lambda target, table: _replayed(target.topic(table)),
    ),
    "replica": Sink(
        lambda target: {
            **target.shop.replica,
            "user": target.shop.server.user,
            "password": "${env:TEST_PASSWORD}",
        },
        lambda target, table: target.shop.state(table, target.shop.target),
    ),
}


class Pipeline:
    """A pipeline file that both releases run.

    Args:
        shop: the source.
        sinks: the settings of its sinks.
        directory: for the file and the checkpoint.
    """

    def __init__(self, shop: Shop, sinks: list[Mapping[str, Any]], directory: Path) -> None:
        self._file = directory / "pipeline.yaml"
        self._token = directory / "killed"
        self._password = shop.server.password
        source = {**shop.source, "user": shop.server.user, "password": "${env:TEST_PASSWORD}"}
        route = {"source-table": rf"{shop.schema}\.(.*)", "sink-table": f"{shop.target}.$1"}
        settings = {
            "name": "upgrade",
            "checkpoint": str(directory / "checkpoint"),
            "trigger": "available-now",
            "parallelism": 2,
        }
        document = {
            "source": {**source, "snapshot-chunk-rows": 6},
            "sink": [dict(sink) for sink in sinks] if len(sinks) > 1 else dict(sinks[0]),
            "route": [route],
            "pipeline": settings,
        }
        self._file.write_text(yaml.safe_dump(document))

    def run(self, release: Path | None = None, *, kill: bool = False) -> None:
        """Run until everything is read.

        Args:
            release: the sources to run, None: these.
            kill: whether it is killed behind the sink's first commit.
        """
        env = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
        env |= {"TEST_PASSWORD": self._password, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
        if release is not None:
            env["PYTHONPATH"] = str(release)
        if kill:
            self._token.unlink(missing_ok=True)
            env[VARIABLE] = f"sink.committed=self@{self._token}"
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "run", str(self._file)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=900)
        finally:
            with suppress(ProcessLookupError):  # the children of a killed driver
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == (-signal.SIGKILL if kill else 0), output


class Upgrade:
    """A pipeline of an earlier release, and what its sinks have written.

    Args:
        request: the test's.
        shop: the source.
        sinks: names of `SINKS`.
        directory: the test's.
    """

    def __init__(
        self, request: pytest.FixtureRequest, shop: Shop, sinks: Sequence[str], directory: Path
    ) -> None:
        self._shop = shop
        self._targets = {name: Target(request, shop, directory / name) for name in sinks}
        settings = [SINKS[name].settings(target) for name, target in self._targets.items()]
        self._pipeline = Pipeline(shop, settings, directory)
        self.run = self._pipeline.run

    def check(self) -> None:
        """Fail if a target differs from the source, or holds a change twice."""
        for table in _TABLES:
            found = {name: SINKS[name].state(target, table) for name, target in self._targets.items()}
            assert found == dict.fromkeys(self._targets, self._shop.state(table)), table


def _case(source: str, *sinks: str) -> Any:
    what = sinks[0].replace(" ", "-") if len(sinks) == 1 else "all"
    return pytest.param(source, sinks, id=f"{source}-{what}")


@pytest.mark.parametrize(
    ("shop", "sinks"),
    [
        _case(source, *sinks)
        for sinks in (*((name,) for name in SINKS), tuple(SINKS))
        for source in ("mysql", "postgres")
    ],
    indirect=["shop"],
)
def test_pipeline_of_an_earlier_release_continues_with_this_one(
    request: pytest.FixtureRequest, release: Path, shop: Shop, sinks: Sequence[str], tmp_path: Path
) -> None:
    pipeline = Upgrade(request, shop, sinks, tmp_path)
    shop.fill()
    pipeline.run(release)
    shop.change("old", 1)
    pipeline.run(release, kill=True)
    shop.change("new", 2)
    pipeline.run()
    pipeline.check()


@pytest.mark.parametrize("shop", ["mysql", "postgres"], indirect=True)
def test_snapshot_that_an_earlier_release_began_is_finished_by_this_one(
    request: pytest.FixtureRequest, release: Path, shop: Shop, tmp_path: Path
) -> None:
    pipeline = Upgrade(request, shop, ["delta changelog"], tmp_path)
    shop.fill()
    pipeline.run(release, kill=True)
    shop.change("new", 2)
    pipeline.run()
    pipeline.check()
