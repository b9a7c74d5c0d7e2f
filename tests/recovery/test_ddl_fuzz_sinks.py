"""Random schema changes among random changes of rows, through real sinks: in the end targets equal the table.

As `test_ddl_fuzz`, with a sink instead of the model of one: Spark writes the batches, some twice, after an
error at a random step of the first attempt. A change that the target cannot hold must be an error that parks
the table: the seed ends there.

TAILRACE_SEED=1234 runs that seed alone.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import (
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    OnIncompatibleType,
    WriteMode,
)
from tailrace.enumerator import captured_tables
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import ChangeBatch
from tailrace.sinks.base import CellBatch
from tailrace.sinks.clickhouse.sink import ClickHouseSink
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.duckdb.sink import DuckSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.opensearch.sink import OpenSearchSink
from tailrace.sinks.route import Router
from tailrace.verify.target import target_after
from tests.support import postgres as postgres_support
from tests.support.cells import CELL_SCHEMA, STREAM, cell_row
from tests.support.databases import named_rows
from tests.support.ddl import MySqlTable, PostgresTable, RandomTable
from tests.support.engine import Engine, options_for
from tests.support.rereading import read
from tests.support.sinks import clickhouse, duckdb, opensearch, replica
from tests.support.sinks.case import Row
from tests.support.sinks.iceberg import table_rows

#: Seeds of the slow tests; a test run has one of them for each sink.
SEEDS = range(20)
STEPS = 12
PRODUCTS = ("mysql", "mariadb", "postgres")
#: Sinks with no test but slow ones: Delta's changes wait unless the settings say otherwise, and the contract
#: of sinks has row versions.
SLOW = ("delta", "delta, scd2", "mariadb", "opensearch", "clickhouse", "duckdb", "duckdb, changelog")
#: The target's name: not the source's, which may be on the same server.
TARGET = "shop.t"
#: Lakes whose targets have no column that the table no longer has; others keep history.
WITHOUT_FORMER = ("delta", "delta, changes that wait", "iceberg", "duckdb")
#: Sinks that hold changes.
LOGS = ("delta, changelog", "duckdb, changelog")
#: Steps of a sink at which its first attempt fails; some are of other sinks.
FAILPOINTS = ("sink.altered", "sink.table", "sink.merged", "sink.seen", "sink.reread", "none")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is searched at every batch."""
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)


class Pipeline:
    """A stream of one table into a sink, batch by batch.

    Args:
        engine: the stream.
        name: its table.
        open_sink: opens the sink, as a new process does.
        spark: the session.
        monkeypatch: arms failpoints.
        directory: for their files.
        random: of their choice.
    """

    def __init__(  # noqa: PLR0917
        self,
        engine: Engine,
        name: str,
        open_sink: Callable[[Router], Any],
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        directory: Path,
        random: random.Random,
    ) -> None:
        self.engine = engine
        self._open = open_sink
        self._spark = spark
        self._monkeypatch = monkeypatch
        self._directory = directory
        self._random = random
        self._router = Router([RouteRule(re.escape(name), TARGET)])
        self._policy = engine.options.schema_policy
        self._batch = 0
        self._sink: Any = None

    def step(self) -> bool:
        """Write the next batch; whether there was one."""
        batch = self.engine.next()
        if batch is not None:
            self.write(batch)
        return batch is not None

    def fail(self, batch: tuple[StreamOffset, StreamOffset]) -> str:
        """Write a batch up to a random step, which is returned; the next writing of it counts."""
        point = self._random.choice(FAILPOINTS)
        armed = self._directory / f"failed-{self._batch}"
        if point != "none":
            self._monkeypatch.setenv(VARIABLE, f"{point}=raise@{armed}")
        try:
            self._write(read(self.engine, batch), batch[1])
        except InjectedError:
            pass
        finally:
            self._monkeypatch.delenv(VARIABLE, raising=False)
            self.close()
        return point

    def write(self, batch: tuple[StreamOffset, StreamOffset]) -> None:
        """Write a batch."""
        self._write(read(self.engine, batch), batch[1])
        self._batch += 1

    def _write(self, parts: tuple[list[ChangeBatch], list[ChangeBatch]], end: StreamOffset) -> None:
        if self._sink is None:
            self._sink = self._open(self._router)
        cells = [cell_row(batch.kind, batch) for part in parts for batch in part if len(batch)]
        frame = self._spark.createDataFrame(cells, CELL_SCHEMA)
        tables = {batch.table.id for part in parts for batch in part}
        self._sink.claim(tables)
        self._sink.write(CellBatch(STREAM, self._batch, frame, end.to_json(), policy=self._policy))

    def drain(self) -> None:
        """Write all that a stream with the trigger AvailableNow reads."""
        self.engine.plan.hold()
        while self.step():
            pass
        self.engine.read_beyond()

    def close(self) -> None:
        """Close the sink; the next batch opens it anew."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None


def _delta(mode: WriteMode, merge_interval: int | None = 0) -> Callable[[Any], Any]:
    def make(request: Any) -> Any:
        spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path") / "target"
        settings = DeltaSettings(
            str(path), mode, merge_interval=merge_interval, on_incompatible_type=OnIncompatibleType.NEW_COLUMN
        )

        def rows(key: tuple[str, ...]) -> list[Row]:
            target = target_after(spark, str(path), TARGET, mode=mode, key=key, batch=1_000_000)
            if target is None:
                return []
            return [row.asDict() for row in target.frame.select(*target.columns.names).collect()]

        return (lambda router: DeltaSink(settings, router)), rows

    return make


def _iceberg(request: Any) -> Any:
    path = request.getfixturevalue("tmp_path") / "target"
    settings = IcebergSettings(str(path), on_incompatible_type=OnIncompatibleType.NEW_COLUMN)
    return (lambda router: IcebergSink(settings, router)), lambda _: table_rows(path, TARGET).to_pylist()


def _replica(make_case: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(request: Any) -> Any:
        case = make_case(request)
        return case.open, lambda _: case.rows(TARGET)

    return make


def _opensearch(request: Any) -> Any:
    target = opensearch.cluster(request)
    return (
        lambda router: OpenSearchSink(target.settings, router),
        lambda _: target.typed_rows(TARGET),
    )


def _clickhouse(request: Any) -> Any:
    target = clickhouse.target_of(request)
    return (
        lambda router: ClickHouseSink(target.settings, router),
        lambda _: target.rows(TARGET),
    )


def _duckdb(mode: WriteMode) -> Callable[[Any], Any]:
    def make(request: Any) -> Any:
        settings = DuckDbSettings(database=f"{request.getfixturevalue('tmp_path')}/shop.duckdb", mode=mode)
        return (
            lambda router: DuckSink(settings, router),
            lambda key: duckdb.held_rows(settings, TARGET, key),
        )

    return make


SINKS = {
    "delta": _delta(WriteMode.UPSERT),
    "delta, changes that wait": _delta(WriteMode.UPSERT, 3600),
    "delta, scd2": _delta(WriteMode.SCD2),
    "delta, changelog": _delta(WriteMode.CHANGELOG, None),
    "iceberg": _iceberg,
    "mysql": _replica(replica.mysql),
    "mariadb": _replica(replica.mariadb),
    "postgresql": _replica(replica.postgres),
    "opensearch": _opensearch,
    "clickhouse": _clickhouse,
    "duckdb": _duckdb(WriteMode.UPSERT),
    "duckdb, changelog": _duckdb(WriteMode.CHANGELOG),
}


#: Those that rename and drop columns with their source, whatever types these have.
FOLLOWING = ("mysql", "mariadb", "postgresql", "delta", "delta, changes that wait", "clickhouse", "duckdb")


def cases() -> list[Any]:
    """Parameters: product, sink, seed."""
    given = os.environ.get("TAILRACE_SEED")
    found = []
    for number, (sink, product) in enumerate(itertools.product(SINKS, PRODUCTS)):
        is_due = number // len(PRODUCTS) % len(PRODUCTS) == number % len(PRODUCTS)
        for seed in SEEDS if given is None else [int(given)]:
            is_fast = is_due and seed == 0 and sink not in SLOW
            marks = [] if given is not None or is_fast else [pytest.mark.slow]
            found.append(pytest.param(product, sink, seed, id=f"{product}-{sink}-{seed}", marks=marks))
    return found


@pytest.mark.parametrize(("product", "sink", "seed"), cases())
def test_target_equals_its_table(  # noqa: PLR0917
    request: pytest.FixtureRequest,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    product: str,
    sink: str,
    seed: int,
) -> None:
    server = request.getfixturevalue(product)
    open_sink, rows = SINKS[sink](request)
    follows = sink in FOLLOWING and seed % 2 == 0
    given = {"snapshotChunkRows": 7, "formerColumns": "follow" if follows else "reread"}
    if product == "postgres":
        database = request.getfixturevalue("postgres_database")
        of = {"database": database}
        options = postgres_support.options_for(server, database, r"public\.t", **given)
        name = "public.t"
    else:
        database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
        of = {}
        options = options_for(server, rf"{database}\.t", **given)
        name = f"{database}.t"

    def execute(*statements: str) -> Any:
        if product == "postgres":
            return server.execute(*statements, database=database)
        return server.execute(f"USE `{database}`", *statements)

    table: RandomTable = (PostgresTable if product == "postgres" else MySqlTable)(execute, seed)
    table.create()
    with Engine(options) as engine:
        pipeline = Pipeline(engine, name, open_sink, spark, monkeypatch, tmp_path, random.Random(seed))
        try:
            for _ in range(STEPS):
                _step(table, pipeline)
            for _ in range(2):  # what is found out by the first may have to be read again
                pipeline.drain()
            captured = engine.plan._captured.tables[name]
            columns = [c.name for c in captured.schema.columns]
            quote = '"' if product == "postgres" else "`"
            listed = ", ".join(f"{quote}{column}{quote}" for column in columns)  # * leaves out invisible ones
            with closing(server.connect(**of)) as connection, closing(connection.cursor()) as cursor:
                wanted = named_rows(cursor, f"SELECT {listed} FROM {name}")
            held = rows(captured.schema.key)
            if sink in WITHOUT_FORMER:
                assert {name.partition("__")[0] for row in held for name in row} <= {*columns}
            found = [without_types(row, columns, is_log=sink in LOGS) for row in held]
            assert comparable(found) == comparable(wanted)
        except TailraceError as error:
            if error.table is None:
                error.add_note("\n".join(table.log))
                raise
            print(f"parked: {error.code} {error.message}: {error.detail}")  # noqa: T201
        except BaseException as error:
            error.add_note("\n".join(table.log))
            raise
        finally:
            pipeline.close()


@pytest.mark.slow
def test_array_that_is_dropped_while_its_rows_are_read_is_empty_in_clickhouse(  # noqa: PLR0917
    request: pytest.FixtureRequest,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    postgres: Any,
    postgres_database: str,
) -> None:
    open_sink, rows = SINKS["clickhouse"](request)

    def execute(*statements: str) -> None:
        postgres.execute(*statements, database=postgres_database)

    execute(
        "CREATE TABLE t (id int PRIMARY KEY, l text[] NOT NULL)",
        "INSERT INTO t SELECT i, ARRAY[i::text] FROM generate_series(1, 20) i",
    )
    options = postgres_support.options_for(postgres, postgres_database, r"public\.t", snapshotChunkRows=7)
    with Engine(options) as engine:
        pipeline = Pipeline(engine, "public.t", open_sink, spark, monkeypatch, tmp_path, random.Random(0))
        with closing(pipeline):
            pipeline.step()  # some rows have it: the target's column is an Array
            batch = engine.next()
            assert batch is not None
            execute("ALTER TABLE t DROP COLUMN l")
            pipeline.write(batch)
            held = {row["id"]: row["l"] for row in rows(("id",))}
            assert [] in held.values()
            assert all(value in ([], [str(id_).encode()]) for id_, value in held.items())
            pipeline.drain()
            assert comparable(rows(("id",))) == comparable([{"id": i} for i in range(1, 21)])


@pytest.mark.parametrize(
    "sink",
    ["postgresql", *(pytest.param(s, marks=pytest.mark.slow) for s in ("mysql", "clickhouse", "delta"))],
)
def test_column_that_is_dropped_while_its_rows_are_read_may_be_null_in_targets(  # noqa: PLR0917
    request: pytest.FixtureRequest,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mysql: Any,
    database: str,
    sink: str,
) -> None:
    open_sink, rows = SINKS[sink](request)
    name = f"{database}.t"
    mysql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT NOT NULL, n INT NOT NULL)")
    mysql.execute(f"INSERT INTO {name} VALUES {', '.join(f'({i}, {i}, {i})' for i in range(20))}")
    with Engine(options_for(mysql, re.escape(name), snapshotChunkRows=7)) as engine:
        pipeline = Pipeline(engine, name, open_sink, spark, monkeypatch, tmp_path, random.Random(0))
        with closing(pipeline):
            pipeline.step()  # some rows have it: the target's column is NOT NULL
            batch = engine.next()
            assert batch is not None
            mysql.execute(f"ALTER TABLE {name} DROP COLUMN n")
            pipeline.write(batch)
            pipeline.drain()
            held = [{"id": row["id"], "a": row["a"]} for row in rows(("id",))]
            assert comparable(held) == comparable([{"id": i, "a": i} for i in range(20)])


def without_types(row: Row, columns: list[str], *, is_log: bool) -> Row:
    """A target's row with the source's columns: a column that was retyped is one of several of the target.

    All others are null, and so are columns that the table no longer has, unless the target is a change log.
    """
    found = {name: row.get(name) for name in columns}
    for given, value in row.items():
        name = given.partition("__")[0]
        if given in columns or value is None or (is_log and name not in columns):
            continue
        assert name in columns, f"column {given}, which the table no longer has, keeps a value"
        assert found[name] is None, f"column {name} has two values: {row}"
        found[name] = value
    return found


def comparable(rows: list[Row]) -> list[str]:
    """Rows in a form that does not depend on the target."""
    return sorted(repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value.normalize() + 0)
    return str(value)


def _step(table: RandomTable, pipeline: Pipeline) -> None:
    choice = table.random.choice
    match choice(["rows", "rows", "shape", "batch", "shape in batch", "fail", "restart"]):
        case "rows":
            table.change_rows(6)
        case "shape":
            table.change_shape()
        case "batch":
            table.log.append("-- batch")
            pipeline.step()
        case "restart":
            table.log.append("-- restart")
            pipeline.engine.plan.close()
            pipeline.close()
        case kind:
            batch = pipeline.engine.next()
            if batch is None:
                return
            if kind == "fail":
                table.log.append(f"-- batch fails at {pipeline.fail(batch)}")
            else:
                table.log.append("-- batch planned")
                table.change_shape()
            table.change_rows(2)
            table.log.append("-- batch written")
            pipeline.write(batch)
