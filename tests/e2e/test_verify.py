"""Verification against a real server and real Delta tables: equal when they are, exact about what is not."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.enumerator.snapshot import KeyRange
from tailrace.errors import ConfigError, StateError, TailraceError, TransientSourceError
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.sources import registry
from tailrace.spark.checkpoint import Checkpoint
from tailrace.verify import in_parts, kept, run, source
from tailrace.verify.checksum import BUCKETS, Checksums
from tailrace.verify.iceberg import IcebergTargets
from tailrace.verify.portion import Keys, Sample
from tailrace.verify.progress import ReadProgress
from tailrace.verify.range_reader import RangeReader, SourceRange
from tailrace.verify.repair import compared, requested
from tailrace.verify.report import Report, print_report
from tailrace.verify.run import verify
from tailrace.verify.source_tasks import SourceTasks
from tailrace.verify.streamed import StreamedTarget
from tailrace.verify.target import collapse
from tailrace_dev.servers import MySqlServer, PostgresServer
from tests.support.changes import INT, table
from tests.support.databases import fresh_database
from tests.support.sinks.iceberg import open_table

COLUMNS = """
  name VARCHAR(40) COLLATE utf8mb4_0900_ai_ci, part INT,
  i8 TINYINT, u16 SMALLINT UNSIGNED, i24 MEDIUMINT, u64 BIGINT UNSIGNED, f FLOAT, d DOUBLE,
  m DECIMAL(20, 4), big DECIMAL(60, 10), txt TEXT CHARACTER SET latin1, blob_ BLOB, bin_ BINARY(4),
  bit1 BIT(1), bit9 BIT(9), day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL, t TIME(6), y YEAR,
  j JSON, e ENUM('a', 'é'), s SET('x', 'y'), PRIMARY KEY (name, part)
"""
VALUES = """
  ('Élan', {i}, {i} % 100, {i}, -{i}, 18446744073709551615 - {i}, {i} / 3, {i} / 7, {i}.0001,
   12345678901234567890123456789012345678901234567890.5 + {i}, 'très', X'00FF{i:04x}', 'ab',
   {i} % 2, {i} % 512, '2024-02-29', '2025-01-01 00:00:00.000001', '2025-06-01 12:00:00.125',
   '-{h}:59:59.5', 1999, '{{"a": [1, 2.5, null, "{i}"]}}', 'é', 'x,y')
"""


class _Quiet:
    def on_progress(self, progress: Any) -> None: ...

    def on_written(self, batch_id: int, written: Any) -> None: ...

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None: ...

    def on_batch(self, run: Any) -> None: ...

    def on_trouble(self, error: Any) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


def run_once(pipeline: Pipeline, spark: SparkSession) -> None:
    """Run a pipeline to the end of the log."""
    sink = make_sinks(pipeline)
    try:
        Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
    finally:
        sink.close()


class _Noted(ReadProgress):
    """Rows that were read, and parts of tables that are not done, by table."""

    def __init__(self) -> None:
        self.rows, self.open = Counter[str](), dict[str, int]()

    def begin(self, tables: Mapping[str, tuple[int, int]]) -> None:
        self.open |= {name: parts for name, (_, parts) in tables.items()}

    def read(self, table: str, rows: int) -> None:
        self.rows[table] += rows

    def ended(self, table: str) -> None:
        self.open[table] -= 1


class Copy:
    """A table with every type, another one, and a pipeline that has copied both."""

    def __init__(
        self, server: MySqlServer, database: str, spark: SparkSession, path: Path, sink: str
    ) -> None:
        self.server, self.database, self.spark, self.path = server, database, spark, path
        rows = ", ".join(VALUES.format(i=i, h=i % 800) for i in range(1, 400))
        server.execute(
            f"USE {database}",
            "SET NAMES utf8mb4",
            f"CREATE TABLE wide ({COLUMNS})",
            f"INSERT INTO wide VALUES {rows}",
            "INSERT INTO wide (name, part) VALUES ('nothing', 0)",
            "CREATE TABLE small (id INT PRIMARY KEY, v INT)",
            "INSERT INTO small VALUES (1, 1), (2, 2)",
        )
        self.pipeline: Pipeline = parse_pipeline(
            f"source: {{url: '{server.url}', user: {server.user}, password: {server.password},"
            f" tables: '{database}.*', snapshot-chunk-rows: 150}}\n"
            f"sink: {{{sink}}}\n"
            f"route: [{{source-table: '{database}.(.*)', sink-table: $1}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{path / 'checkpoint'}'}}\n"
        )

    @classmethod
    def in_delta(
        cls, server: MySqlServer, database: str, spark: SparkSession, path: Path, mode: str = "upsert"
    ) -> Copy:
        return cls(server, database, spark, path, f"type: delta, path: '{path / 'tables'}', mode: {mode}")

    def run(self) -> None:
        run_once(self.pipeline, self.spark)

    def change(self) -> None:
        self.server.execute(
            f"USE {self.database}",
            "UPDATE wide SET name = 'éLAN', d = 0.1, j = NULL WHERE part < 20",
            "DELETE FROM wide WHERE part BETWEEN 100 AND 110",
            "UPDATE wide SET part = part + 1000 WHERE part BETWEEN 200 AND 210",
        )

    def target(self, table: str) -> str:
        return f"delta.`{self.path / 'tables' / table}`"

    def verify(self, **given: Any) -> Any:
        return verify(self.pipeline, self.spark, **given)


def printed(report: Any, *, show_values: bool) -> str:
    file = io.StringIO()
    print_report(report, Console(width=200, file=file), show_values=show_values)
    return file.getvalue()


@pytest.mark.parametrize(
    "sink",
    [
        "type: delta, mode: changelog",
        "type: iceberg",
        pytest.param("type: iceberg, mode: changelog", marks=pytest.mark.slow),
        pytest.param("type: delta", marks=pytest.mark.slow),  # that of the tests below
    ],
)
def test_target_equals_the_source_as_of_its_batch_whatever_is_written_since(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    copy = Copy(mysql, database, spark, tmp_path, f"{sink}, path: '{tmp_path / 'tables'}'")
    copy.run()
    copy.change()
    copy.run()
    # Not in the target: verify looks at the source as it was before.
    mysql.execute(f"DELETE FROM {database}.wide WHERE part > 5", f"UPDATE {database}.small SET v = v + 1")
    progress = _Noted()
    report = copy.verify(progress=progress)
    assert report.equal
    assert [(t.tables[0].rpartition(".")[2], t.source_rows, t.target_rows) for t in report.targets] == [
        ("small", 2, 2),
        ("wide", 389, 389),
    ]
    assert progress.rows == {f"{database}.small": 2, f"{database}.wide": 389}
    assert progress.open == {f"{database}.small": 0, f"{database}.wide": 0}


def test_every_difference_is_named_by_key_and_columns(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    wide = copy.target("wide")
    spark.sql(f"DELETE FROM {wide} WHERE part IN (7, 8)")
    spark.sql(f"UPDATE {wide} SET m = m + 1, y = NULL WHERE part = 9")
    spark.sql(f"INSERT INTO {wide} (name, part) VALUES ('more', 1)")
    report = copy.verify(limit=1)
    small, found = report.targets
    assert (report.equal, small.equal, found.equal) == (False, True, False)
    d = found.differences
    assert (d.missing, d.extra, d.different) == (2, 1, 1)
    assert {(s.kind, s.key, s.columns) for s in d.shown if s.kind != "missing"} == {
        ("extra", ("more", 1), ()),
        ("different", ("Élan", 9), ("m", "y")),
    }
    text = printed(report, show_values=False)
    assert "different key (Élan, 9): m, y" in text
    assert "and 1 more missing" in text
    assert "9.0001" not in text
    assert "source Decimal('9.0001'), target Decimal('10.0001')" in printed(report, show_values=True)


def test_iceberg_table_is_compared_as_the_batch_left_it(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy(mysql, database, spark, tmp_path, f"type: iceberg, path: '{tmp_path / 'tables'}'")
    copy.run()
    mysql.execute(f"INSERT INTO {database}.small VALUES (3, 3)")
    batch = Checkpoint(copy.pipeline.checkpoint).last_committed()
    assert batch is not None
    copy.run()
    before = IcebergTargets(copy.pipeline.sinks[0], batch.id, spark).target(
        "small", table(("id", INT), ("v", INT), key=("id",)), None
    )
    assert before is not None
    assert before.rows(["id"], ["id"], np.arange(BUCKETS)).column("id").to_pylist() == [1, 2]
    with open_table(tmp_path / "tables", "default.small") as small_table:
        small_table.delete("id = 2")
    (small,) = copy.verify(pattern=r".*\.small").targets
    assert [(d.kind, d.key) for d in small.differences.shown] == [("missing", (2,))]


def test_one_table_can_be_asked_for(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    with pytest.raises(StateError, match="no batch is committed"):
        copy.verify()
    copy.run()
    assert [t.target for t in copy.verify(pattern=r".*\.small").targets] == ["small"]
    with pytest.raises(ConfigError, match="no table"):
        copy.verify(pattern="other")


def test_replica_is_compared_row_by_row_unless_a_batch_was_broken_off(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with fresh_database(mysql) as replica:
        url = f"mysql://{mysql.host}:{mysql.port}/{replica}"
        sink = f"type: mysql, url: '{url}', user: {mysql.user}, password: {mysql.password}"
        copy = Copy(mysql, database, spark, tmp_path, sink)
        copy.run()
        copy.change()
        copy.run()
        mysql.execute(f"DELETE FROM {database}.wide WHERE part > 5")
        report = copy.verify()
        assert [(t.target, t.source_rows, t.equal) for t in report.targets] == [
            ("small", 2, True),
            ("wide", 389, True),
        ]
        mysql.execute(f"UPDATE {replica}.small SET v = 9 WHERE id = 2")
        (small,) = copy.verify(pattern=r".*\.small").targets
        assert [(d.key, d.columns) for d in small.differences.shown] == [((2,), ("v",))]
        mysql.execute(f"UPDATE {replica}._tailrace SET begun = begun + 1 WHERE target = 'small'")
        with pytest.raises(StateError, match="`small` is being written"):
            copy.verify()


@pytest.fixture(params=["mysql", "postgresql"])
def replica_copy(
    request: pytest.FixtureRequest, mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> Iterator[tuple[Copy, Callable[..., Any]]]:
    """A copy in a replica, made once, and what runs statements there; tables are in its default schema."""
    with ExitStack() as stack:
        if request.param == "mysql":
            server, place = mysql, stack.enter_context(fresh_database(mysql))
            analyze = f"ANALYZE TABLE {place}.wide"
        else:
            server, place = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")
            analyze = "ANALYZE wide"
        sink = f"type: {request.param}, url: '{server.scheme}://{server.host}:{server.port}/{place}'"
        copy = Copy(
            mysql, database, spark, tmp_path, f"{sink}, user: {server.user}, password: {server.password}"
        )
        copy.run()

        def execute(*statements: str) -> Any:
            if request.param == "mysql":
                return server.execute(f"USE {place}", *statements)
            return server.execute(*statements, database=place)

        execute(analyze)
        yield copy, execute


def test_replica_is_read_in_ranges_side_by_side_and_in_part_by_its_key(
    replica_copy: tuple[Copy, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, execute = replica_copy
    parts = list[KeyRange]()
    original = StreamedTarget._of_parts

    def noted(self: Any, *given: Any) -> Any:
        parts.extend(part.args[1] for part in self._parts(*given[:2]))
        return original(self, *given)

    monkeypatch.setattr(StreamedTarget, "_of_parts", noted)
    monkeypatch.setattr(source, "READER_ROWS", 100)
    monkeypatch.setattr(run, "cores", lambda: 3)
    report = copy.verify(pattern=r".*\.wide", parallelism=3)
    assert [(t.source_rows, t.target_rows, t.equal) for t in report.targets] == [(400, 400, True)]
    assert len(parts) == 3
    assert (parts[0].after, parts[-1].upto) == (None, None)
    assert [part.upto for part in parts[:-1]] == [part.after for part in parts[1:]]
    execute(
        "UPDATE wide SET d = 0.5 WHERE part IN (5, 150, 390)",
        "DELETE FROM wide WHERE part = 77",
        "UPDATE small SET v = 9 WHERE id = 2",
    )
    (wide,) = copy.verify(pattern=r".*\.wide", parallelism=3).targets
    assert sorted((d.kind, d.key[1]) for d in wide.differences.shown) == [
        ("different", 5),
        ("different", 150),
        ("different", 390),
        ("missing", 77),
    ]
    if "postgresql" in str(copy.pipeline.sinks[0]):  # values that no TIME and no BIT(9) can be
        execute(
            "UPDATE wide SET t = '1 day -23:59:59.5' WHERE part = 8",
            "UPDATE wide SET t = t - interval '1 microsecond', bit9 = ~bit9 WHERE part = 9",
        )
        (wide,) = copy.verify(pattern=r".*\.wide", parallelism=3).targets
        found = {d.key[1]: d.columns for d in wide.differences.shown}
        assert {part: found.get(part) for part in (8, 9)} == {8: ("t",), 9: ("bit9", "t")}
    parts.clear()
    for ids, equal in ((Keys(1, 1), True), (Keys(2, 2), False)):
        assert copy.verify(pattern=r".*\.small", portion=ids).equal is equal
    assert set(parts) == {KeyRange((0,), (1,)), KeyRange((1,), (2,))}


@pytest.mark.parametrize(
    "sink",
    ["delta", *(pytest.param(sink, marks=pytest.mark.slow) for sink in ("changelog", "mysql")), "iceberg"],
)
def test_part_of_the_keys_is_compared_on_both_sides_and_nothing_is_said_of_other_rows(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    mysql.execute(
        f"USE {database}",
        "SET SESSION cte_max_recursion_depth = 10000",
        "CREATE TABLE numbers (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "INSERT INTO numbers WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 8999)"
        " SELECT i * 3, i FROM s",
        "CREATE TABLE parts (a INT, b SMALLINT, v INT, PRIMARY KEY (a, b))",
        "INSERT INTO parts SELECT v DIV 9, v MOD 9, v FROM numbers",
        "ANALYZE TABLE numbers, parts",
    )
    with fresh_database(mysql) as replica:
        place = f"user: {mysql.user}, password: {mysql.password}"
        at = f"path: '{tmp_path / 'tables'}'"
        settings = {
            "delta": f"type: delta, {at}",
            "changelog": f"type: delta, mode: changelog, {at}",
            "iceberg": f"type: iceberg, {at}",
            "mysql": f"type: mysql, url: '{mysql.url}/{replica}', {place}",
        }
        copy = Copy(mysql, database, spark, tmp_path, settings[sink])
        copy.run()
        mysql.execute(f"DELETE FROM {database}.numbers WHERE id > 300")  # not in the target
        if sink in ("delta", "mysql"):
            run_sql = spark.sql if sink == "delta" else mysql.execute
            numbers = copy.target("numbers") if sink == "delta" else f"{replica}.numbers"
            run_sql(f"DELETE FROM {numbers} WHERE id IN (3000, 6000)")
            run_sql(f"INSERT INTO {numbers} VALUES (3001, 1), (9001, 1)")
            run_sql(f"UPDATE {numbers} SET v = 0 WHERE id IN (3003, 12000)")
            (found,) = copy.verify(pattern=r".*\.numbers", portion=Keys(2997, 3003)).targets
            assert sorted((d.kind, d.key) for d in found.differences.shown) == [
                ("different", (3003,)),
                ("extra", (3001,)),
                ("missing", (3000,)),
            ]
            assert (found.source_rows, found.target_rows) == (3, 3)
        report = copy.verify(portion=Keys(None, 99))
        assert report.equal
        assert {t.target: (t.source_rows, t.target_rows) for t in report.targets} == {
            "numbers": (34, 34),
            "parts": (900, 900),
            "small": (2, 2),
        }
        assert [name for name, _ in report.skipped] == [f"{database}.wide"]
        text = printed(report, show_values=False)
        assert "against the target after batch 0: keys ..99" in text.replace(
            f"batch {report.batch}", "batch 0"
        )
        assert "no difference in this part" in text
        assert "no other rows were looked at" in text
        report = copy.verify(pattern=r".*\.parts", portion=Sample(30))
        (parts,) = report.targets
        assert report.equal
        assert 1500 < parts.source_rows == parts.target_rows < 4500
        assert "a sample of 30 %" in printed(report, show_values=False)


def test_source_is_read_in_tasks_and_the_driver_opens_no_session(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    spark.sql(f"DELETE FROM {copy.target('wide')} WHERE part = 3")
    made = list[SourceTasks]()

    def session(_: Any) -> Any:
        raise AssertionError("the driver reads the source")

    def tasks(session: SparkSession) -> SourceTasks:
        made.append(SourceTasks(session))
        return made[-1]

    monkeypatch.setattr(registry, "session", session)
    monkeypatch.setattr(run, "SourceTasks", tasks)
    small, wide = copy.verify().targets
    assert (small.equal, wide.source_rows) == (True, 400)
    assert [(d.kind, d.key) for d in wide.differences.shown] == [("missing", ("Élan", 3))]
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(made[0].group)
    assert len(jobs) == 3, "one for each range, and one for the rows that differ"


class _Altering(ReadProgress):
    """Alters a table right before it is read."""

    def __init__(self, server: MySqlServer, *statements: str) -> None:
        self.server, self.statements = server, statements

    def begin(self, tables: Mapping[str, tuple[int, int]]) -> None:
        statements, self.statements = self.statements, ()
        self.server.execute(*statements)


def test_error_in_a_task_is_that_of_the_source(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()

    def failure() -> TailraceError:
        rename = f"ALTER TABLE {database}.small RENAME COLUMN id TO no"
        with pytest.raises(TailraceError) as error:
            copy.verify(pattern=".*small", progress=_Altering(mysql, rename))
        mysql.execute(f"ALTER TABLE {database}.small RENAME COLUMN no TO id")
        return error.value

    by_task = failure()
    monkeypatch.setattr(run, "SourceTasks", lambda _: None)
    by_driver = failure()
    assert type(by_task) is type(by_driver)
    assert by_task.json_values() == by_driver.json_values()
    assert "Traceback" not in str(by_task)


class _Interrupted(ReadProgress):
    """Ends a comparison after some rows."""

    def __init__(self, rows: int) -> None:
        self.left = rows

    def read(self, table: str, rows: int) -> None:
        self.left -= rows
        if self.left < 0:
            raise InterruptedError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, KeyRange]]:
    """The ranges that tasks are asked for, with their tables; they are small, and each is noted."""
    found: list[tuple[str, KeyRange]] = []

    def checksums(self: SourceTasks, reader: RangeReader, work: SourceRange) -> Checksums:
        found.append((work.name, work.part))
        return of_task(self, reader, work)

    of_task = SourceTasks.checksums
    monkeypatch.setattr(SourceTasks, "checksums", checksums)
    monkeypatch.setattr(source, "RANGE_ROWS", 50)
    monkeypatch.setattr(kept, "_EVERY_S", 0.0)
    return found


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_interrupted_comparison_goes_on_as_of_the_same_batch(
    mysql: MySqlServer,
    database: str,
    spark: SparkSession,
    tmp_path: Path,
    *,
    sink: str,
    asked: list[tuple[str, KeyRange]],
) -> None:
    copy = Copy(mysql, database, spark, tmp_path, f"type: {sink}, path: '{tmp_path / 'tables'}'")
    mysql.execute(f"ANALYZE TABLE {database}.wide")
    copy.run()
    if sink == "delta":
        spark.sql(f"DELETE FROM {copy.target('wide')} WHERE part = 3")
    else:
        with open_table(tmp_path / "tables", "default.wide") as wide:
            wide.delete("part = 3")
    with pytest.raises(InterruptedError):
        copy.verify(progress=_Interrupted(250), resume=False)
    batch = Checkpoint(copy.pipeline.checkpoint).last_committed()
    assert batch is not None
    copy.change()
    copy.run()
    first = set(asked)
    asked.clear()
    progress = _Noted()
    report = copy.verify(progress=progress, resume=True)
    small, wide = report.targets
    assert progress.rows[f"{database}.wide"] == 400 + 400, "once by both, then for the rows that differ"
    assert 3 <= len(first - set(asked)) < len(first | set(asked)), "what was read is not read again"
    assert (report.batch, small.equal, wide.source_rows, wide.target_rows) == (batch.id, True, 400, 399)
    assert [(d.kind, d.key) for d in wide.differences.shown] == [("missing", ("Élan", 3))]
    assert 100 <= report.before <= 252
    assert "before the interruption" in printed(report, show_values=False)
    with pytest.raises(StateError, match="no comparison to go on with"):
        copy.verify(resume=True)
    assert copy.verify(resume=False).batch > batch.id


class _Parts:
    """Comparisons in parts of 100 rows; one of them can be made to fail."""

    def __init__(self, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copy, self.divides, self.fails_at = copy, True, 0
        self.compared = list[tuple[str, str]]()
        monkeypatch.setattr(in_parts, "PART_ROWS", 100)
        monkeypatch.setattr(in_parts, "verify", self._verify)

    def verify(self, *, resume: bool) -> Report:
        self.compared.clear()
        return in_parts.verify_whole(
            self.copy.pipeline, self.copy.spark, resume=resume, in_parts=self.divides
        )

    def _verify(self, *given: Any, **how: Any) -> Report:
        self.compared.append((how["pattern"].rpartition(".")[2], str(how["portion"] or "")))
        if len(self.compared) == self.fails_at:
            raise TransientSourceError("the connection was lost", code="TR-3001")
        return verify(*given, **how)


@pytest.fixture(params=["mysql", "duckdb", pytest.param("duckdb-changelog", marks=pytest.mark.slow)])
def copy_in_database(
    request: pytest.FixtureRequest, mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> Iterator[tuple[Copy, Callable[..., Any]]]:
    """A copy of 1000 rows, and others, in a target that shows no earlier state, and what changes it."""
    mysql.execute(
        f"USE {database}",
        "CREATE TABLE numbers (a INT UNSIGNED, b SMALLINT, v INT, PRIMARY KEY (a, b))",
        "INSERT INTO numbers WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 999)"
        " SELECT i DIV 2, i MOD 2 - 1, i FROM s",
        "ANALYZE TABLE numbers",
    )
    with fresh_database(mysql) as replica:
        path = tmp_path / "copy.duckdb"
        mode = "changelog" if request.param.endswith("changelog") else "upsert"
        sinks = {
            "mysql": f"type: mysql, url: 'mysql://{mysql.host}:{mysql.port}/{replica}',"
            f" user: {mysql.user}, password: {mysql.password}",
            "duckdb": f"type: duckdb, database: '{path}', mode: {mode}",
        }
        copy = Copy(mysql, database, spark, tmp_path, sinks[request.param.partition("-")[0]])
        copy.run()

        def execute(*statements: str) -> None:
            if request.param == "mysql":
                mysql.execute(f"USE {replica}", *statements)
                return
            with duckdb.connect(path) as connection:
                for statement in statements:
                    connection.execute(statement)

        yield copy, execute


def test_comparison_of_a_database_goes_on_with_the_parts_that_are_left(
    copy_in_database: tuple[Copy, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, execute = copy_in_database
    parts = _Parts(copy, monkeypatch)
    with pytest.raises(StateError, match="no comparison to go on with"):
        parts.verify(resume=True)
    report = parts.verify(resume=False)
    every = list(parts.compared)
    numbers = [keys for table, keys in every if table == "numbers"]
    assert 8 <= len(numbers) <= 12
    assert (numbers[0][:7], numbers[-1][-2:]) == ("keys ..", "..")
    assert [table for table, keys in every if not keys] == ["small", "wide"]
    rows = {"numbers": 1000, "small": 2, "wide": 400}
    assert report.equal
    assert {t.target: t.source_rows for t in report.targets} == rows
    assert {t.target: t.target_rows for t in report.targets} == rows
    assert (report.before, report.first_batch) == (0, report.batch)
    with pytest.raises(StateError, match="no comparison to go on with"):
        parts.verify(resume=True)  # it has come to its end
    parts.fails_at = 1
    with pytest.raises(TransientSourceError, match="was lost"):
        parts.verify(resume=False)
    parts.fails_at = 0
    assert parts.verify(resume=True).equal
    of_begin = iter([True])

    def interrupted(_: str) -> None:
        if not next(of_begin, False):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(in_parts, "forget", interrupted)
        with pytest.raises(KeyboardInterrupt):
            parts.verify(resume=False)
    found = parts.verify(resume=True)
    assert (found.equal, found.position, parts.compared) == (True, report.position, [])

    execute("UPDATE numbers SET v = -1 WHERE a = 10 AND b = 0")  # in the first part
    parts.fails_at = 5
    with pytest.raises(TransientSourceError, match="was lost"):
        parts.verify(resume=False)
    parts.fails_at = 0
    copy.server.execute(f"INSERT INTO {copy.database}.small VALUES (3, 3)")
    copy.run()
    report = parts.verify(resume=True)
    assert parts.compared == [every[0], *every[4:]]  # one that differs is compared once more
    (found, small, wide) = report.targets
    assert [(d.kind, d.key) for d in found.differences.shown] == [("different", (10, 0))]
    assert (found.source_rows, found.target_rows, small.equal, wide.equal) == (1000, 1000, True, True)
    assert (small.source_rows, report.before) == (3, sum(_rows_of(keys) for _, keys in every[1:4]))
    assert report.first_batch < report.batch
    text = printed(report, show_values=False)
    assert f"batches {report.first_batch} to {report.batch}, each part as of the same one" in text
    assert f"; {report.before} of them before the interruption" in text

    parts.fails_at = 5
    with pytest.raises(TransientSourceError):
        parts.verify(resume=False)
    parts.fails_at = 0
    copy.server.execute(f"ALTER TABLE {copy.database}.numbers ADD COLUMN more INT DEFAULT 7")
    copy.run()
    report = parts.verify(resume=True)  # nothing that was read without the column counts
    assert [table for table, _ in parts.compared].count("numbers") == len(numbers)
    assert report.before == 0

    execute("UPDATE numbers SET v = -1 WHERE a = 10 AND b = 0")
    parts.divides, parts.fails_at = False, 2
    with pytest.raises(TransientSourceError):
        parts.verify(resume=False)
    assert parts.compared == [("numbers", ""), ("small", "")]
    parts.fails_at = 0
    execute("UPDATE numbers SET v = 21 WHERE a = 10 AND b = 0", "UPDATE small SET v = 9 WHERE id = 1")
    report = parts.verify(resume=True)
    assert parts.compared == [("numbers", ""), ("small", ""), ("wide", "")]  # one that differs once more
    assert [target.equal for target in report.targets] == [True, False, True]


def test_command_prints_its_error_alone_and_logs_the_traceback(
    mysql: MySqlServer, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"source: {{url: '{mysql.url}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{database}.*'}}\n"
        f"sink: {{type: delta, path: '{tmp_path / 'tables'}'}}\n"
        f"pipeline: {{checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    command = [sys.executable, "-m", "tailrace", "verify", str(file), "--resume"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: there is no comparison to go on with [TR-8111]")
    assert "Traceback" not in ended.stderr
    logged = (tmp_path / "tailrace-verify.log").read_text()
    assert "ERROR tailrace: command failed\nTraceback" in logged


@pytest.mark.parametrize("sink", ["delta", "iceberg", "opensearch"])
def test_targets_that_are_not_read_by_ranges_are_not_compared_in_parts(sink: str, tmp_path: Path) -> None:
    place = "url: 'http://localhost:9200'" if sink == "opensearch" else f"path: '{tmp_path}'"
    pipeline = parse_pipeline(
        "source: {url: 'mysql://localhost', user: u, password: p, tables: 'a.b'}\n"
        f"sink: {{type: {sink}, {place}}}\npipeline: {{checkpoint: '{tmp_path}'}}\n"
    )
    with pytest.raises(ConfigError, match="not compared in parts") as refused:
        in_parts.verify_whole(pipeline, None, resume=False, in_parts=True)
    assert refused.value.code == "TR-8112"


def _rows_of(keys: str) -> int:
    first, last = keys.removeprefix("keys ").split("..")
    return 2 * (int(last) - int(first or 0) + 1)


def test_comparison_goes_on_only_while_postgresql_has_the_log(
    postgres: PostgresServer, postgres_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    def execute(*statements: str) -> None:
        postgres.execute(*statements, database=postgres_database)

    execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i - 200, 'row ' || i FROM generate_series(1, 400) i",
        "ANALYZE t",
    )
    pipeline = parse_pipeline(
        f"source: {{url: 'postgresql://{postgres.host}:{postgres.port}/{postgres_database}', user: postgres,"
        f" password: {postgres.password}, tables: public.t, slot-name: slot_{postgres_database}}}\n"
        f"sink: {{type: delta, path: '{tmp_path / 'tables'}'}}\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    run_once(pipeline, spark)
    execute("DELETE FROM t WHERE id < -190")
    found = verify(pipeline, spark, portion=Keys(-199, 0)).targets[0]
    assert (found.equal, found.source_rows) == (True, 200)
    found = verify(pipeline, spark, portion=Sample(50)).targets[0]
    assert found.equal
    assert 100 < found.source_rows <= 200
    for _ in range(2):
        with pytest.raises(InterruptedError):
            verify(pipeline, spark, progress=_Interrupted(0), resume=False)
        assert verify(pipeline, spark, resume=True).equal
        execute("INSERT INTO t VALUES (1000, 'new') ON CONFLICT (id) DO UPDATE SET v = 'newer'")
        run_once(pipeline, spark)
    with pytest.raises(InterruptedError):
        verify(pipeline, spark, progress=_Interrupted(0), resume=False)
    execute("INSERT INTO t VALUES (2000, 'new')")
    run_once(pipeline, spark)
    with pytest.raises(StateError, match="cannot go on") as refused:
        verify(pipeline, spark, resume=True)
    assert refused.value.code == "TR-8113"


def compare_while_written(pipeline: Pipeline, spark: SparkSession, write: Callable[[int], None]) -> Report:
    """Compare a replica while its stream writes it and others write the source; returns the last report.

    The stream runs again and again, in small batches, so comparisons meet it within batches and between.
    """
    stop, batches, report = threading.Event(), set[int](), None
    failures: list[BaseException] = []

    def repeat(work: Callable[[], None], pause_s: float) -> None:
        try:
            while not stop.wait(pause_s):
                work()
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    numbers = iter(range(1_000_000))
    works = ((lambda: run_once(pipeline, spark), 0.0), (lambda: write(next(numbers)), 0.3))
    threads = [threading.Thread(target=repeat, args=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        while len(batches) < 3 and not failures:
            report = verify(pipeline, None, patience_s=120)
            assert report.equal, report
            batches.add(report.batch)
            stop.wait(0.3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    assert report is not None
    return report


def test_replica_is_compared_exactly_while_its_stream_writes_it(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with fresh_database(mysql) as replica:
        url = f"mysql://{mysql.host}:{mysql.port}/{replica}"
        sink = f"type: mysql, url: '{url}', user: {mysql.user}, password: {mysql.password}"
        copy = Copy(mysql, database, spark, tmp_path, sink)
        copy.run()

        def write(i: int) -> None:
            mysql.execute(
                f"USE {database}",
                f"INSERT INTO wide (name, part) VALUES ('new', {1000 + i})",
                f"UPDATE wide SET d = {i} WHERE part IN ({i % 400}, {900 + i})",
                f"DELETE FROM wide WHERE part = {990 + i}",
                f"UPDATE small SET v = {i}",
            )

        report = compare_while_written(copy.pipeline, spark, write)
        assert [t.target for t in report.targets] == ["small", "wide"]


@pytest.mark.slow
def test_postgresql_replica_is_compared_exactly_while_its_stream_writes_it(
    postgres: PostgresServer, postgres_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    def execute(*statements: str) -> None:
        postgres.execute(*statements, database=postgres_database)

    def write(i: int) -> None:
        execute(
            f"INSERT INTO t VALUES ({1000 + i}, 'new')",
            f"UPDATE t SET v = 'v{i}' WHERE id IN ({i % 400}, {900 + i})",
            f"DELETE FROM t WHERE id = {990 + i}",
        )

    execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 400) i",
    )
    server = (
        f"url: 'postgresql://{postgres.host}:{postgres.port}/{postgres_database}', user: postgres,"
        f" password: {postgres.password}"
    )
    pipeline = parse_pipeline(
        f"source: {{{server}, tables: public.t, slot-name: slot_{postgres_database}}}\n"
        f"sink: {{type: postgresql, {server}, schema: copy}}\n"
        "route: [{source-table: public.t, sink-table: t}]\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    run_once(pipeline, spark)
    assert compare_while_written(pipeline, spark, write).targets[0].source_rows > 400


@pytest.mark.parametrize("sink", ["mysql", pytest.param("delta", marks=pytest.mark.slow)])
def test_tables_with_a_shard_column_are_compared_each_with_its_own_rows(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    for name in ("t1", "t2", "t3"):
        mysql.execute(
            f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, v INT UNSIGNED, d DECIMAL(9, 2))",
            f"INSERT INTO {database}.{name} VALUES (1, 1, 1.5), (2, 4294967295, NULL), (3, 3, 3)",
        )
    with fresh_database(mysql) as replica:
        place = f"user: {mysql.user}, password: {mysql.password}"
        url, path = f"url: '{mysql.url}/{replica}'", f"path: '{tmp_path / 'tables'}'"
        pipeline = parse_pipeline(
            f"source: {{url: '{mysql.url}', {place}, tables: '{database}.*'}}\n"
            f"sink: {{type: {sink}, {f'{url}, {place}' if sink == 'mysql' else path}}}\n"
            f"route: [{{source-table: '{database}.t.', sink-table: all, shard-column: _shard}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
        )
        run_once(pipeline, spark)
        mysql.execute(f"UPDATE {database}.t1 SET v = 9 WHERE id = 1", f"DELETE FROM {database}.t2")
        (equal,) = verify(pipeline, spark).targets
        assert (equal.equal, equal.source_rows, equal.left_out) == (True, 9, ())
        run_once(pipeline, spark)
        run_sql = spark.sql if sink == "delta" else mysql.execute
        target = f"delta.`{tmp_path / 'tables' / 'all'}`" if sink == "delta" else f"{replica}.`all`"
        run_sql(f"DELETE FROM {target} WHERE id = 2 AND _shard = '{database}.t3'")
        (all_,) = verify(pipeline, spark).targets
        assert [d.key for d in all_.differences.shown] == [(2, f"{database}.t3")]
        (one,) = verify(pipeline, spark, pattern=f"{database}[.]t1").targets
        assert (one.equal, one.source_rows, one.tables) == (True, 3, (f"{database}.t1",))
        requested(pipeline, compared(pipeline, spark, [f"{database}.t3"]))
        run_once(pipeline, spark)
        assert verify(pipeline, spark).equal


@pytest.mark.parametrize("key", ["id", "_last", "_row"])
def test_change_log_iscollapsed_whatever_its_key_is_called(spark: SparkSession, key: str) -> None:
    changes = [("1", "r", 7, "a"), ("2", "u", 7, "b"), ("1", "r", 8, "c"), ("3", "d", 8, "c")]
    log = spark.createDataFrame(changes, ["_seq", "_op", key, "v"])
    assert [(row[key], row["v"]) for row in collapse(log, [key]).collect()] == [(7, "b")]
