"""A Delta table through the log's own classes: what CREATE TABLE makes, and others' changes meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tailrace.errors import StateError
from tailrace.sinks.delta.checkpoints import Checkpoints
from tailrace.sinks.delta.conflict import retried
from tailrace.sinks.delta.rows import NewRows, StagedFiles
from tailrace.sinks.delta.table import DeltaTable, TableDefinition
from tailrace.sinks.delta.transaction import (
    CommitMark,
    DeltaTransaction,
    TableChangedError,
    delta_conflict,
)
from tailrace.sinks.tables.parquet import DataFile, write_rows
from tailrace.spark.sql import OwnSessions

COLUMNS = pa.schema([("id", pa.int32()), ("v", pa.string())])
ROWS = pa.RecordBatch.from_pylist([{"id": 1, "v": "a"}], schema=COLUMNS)
MARK = CommitMark("app", 1, "query", "{}")


def actions(path: str) -> dict[str, Any]:
    """The first commit's actions by kind, without what is another for each table."""
    lines = Path(path, "_delta_log", f"{0:020}.json").read_text().splitlines()
    found = {kind: action for line in lines for kind, action in json.loads(line).items()}
    for kind, names in {"metaData": ["id", "createdTime"], "commitInfo": ["timestamp", "txnId"]}.items():
        for name in names:
            del found[kind][name]
    del found["commitInfo"]["operationParameters"]["properties"]  # in another order; the metadata has them
    named: dict[str, Any] = json.loads(_without_ids(json.dumps(found)))
    return named


def _without_ids(text: str) -> str:
    """Physical names are random."""
    metadata = json.loads(text)["metaData"]
    for field in json.loads(metadata["schemaString"])["fields"]:
        if physical := field["metadata"].get("delta.columnMapping.physicalName"):
            text = text.replace(physical, f"physical {field['name']}")
    return text


@pytest.mark.parametrize(
    ("columns", "definition", "sql"),
    [
        (COLUMNS, {}, ""),
        (pa.schema([*COLUMNS, ("at", pa.timestamp("us"))]), {}, ""),
        (COLUMNS, {"partition_by": "id"}, "PARTITIONED BY (id)"),
        (COLUMNS, {"cluster_by": ["v", "id"]}, "CLUSTER BY (v, id)"),
        (
            pa.schema([("id", pa.int32()), ("a b", pa.string())]),
            {"cluster_by": ["a b"]},
            "CLUSTER BY (`a b`)",
        ),
    ],
    ids=["plain", "a type that is a feature", "partitioned", "clustered", "clustered and mapped"],
)
def test_new_table_is_as_create_table_makes_it(
    spark: SparkSession, tmp_path: Path, columns: pa.Schema, definition: dict[str, Any], sql: str
) -> None:
    ours = DeltaTable(OwnSessions(spark), str(tmp_path / "ours"))
    properties = {"delta.enableDeletionVectors": "true", "tailrace.x": "it's ${env:HOME}"}
    ours.create(TableDefinition(columns, properties, **definition))
    if any(" " in name for name in columns.names):
        properties["delta.columnMapping.mode"] = "name"
    types = {"id": "INT", "v": "STRING", "at": "TIMESTAMP_NTZ", "a b": "STRING"}
    listed = ", ".join(f"`{name}` {types[name]}" for name in columns.names)
    tags = ", ".join(f"'{name}' = \"{value}\"" for name, value in properties.items())
    theirs = tmp_path / "theirs"
    spark.sql(f"CREATE TABLE delta.`{theirs}` ({listed}) USING delta {sql} TBLPROPERTIES ({tags})")
    assert actions(ours.path) == actions(str(theirs))
    spark.sql(f"INSERT INTO {ours.sql} VALUES ({', '.join(['NULL'] * len(columns))})")
    assert spark.read.format("delta").load(ours.path).count() == 1


def test_table_is_created_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may create it at the same time: what that raises is tried again."""
    table = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    table.create(TableDefinition(COLUMNS, {}))
    monkeypatch.setattr("tailrace.sinks.delta.table.require_empty", lambda *_: None)  # it was, a moment ago
    with pytest.raises(TableChangedError, match="has created"):
        table.create(TableDefinition(COLUMNS, {}))
    state = table.state()
    assert state is not None
    assert state.version == 0


class _Altering:
    """Rows whose files are written while another writer changes the table, the first time."""

    def __init__(self, spark: SparkSession, table: DeltaTable, statement: str) -> None:
        self._spark, self._table, self._statement = spark, table, statement
        self.attempts = 0

    def into(self, directory: str) -> Sequence[DataFile]:
        self.attempts += 1
        if self.attempts == 1:
            for statement in self._statement.split(";"):
                self._spark.sql(statement.replace("TARGET", self._table.sql))
        return write_rows([ROWS], COLUMNS, directory)

    def frame(self) -> Any:
        self.attempts += 1
        return self._spark.createDataFrame(pa.Table.from_batches([ROWS]))


@pytest.mark.parametrize("renames", [False, True], ids=["columns may be renamed", "one is, and back"])
def test_files_written_while_columns_get_names_in_files_are_committed_if_those_are_the_same(
    spark: SparkSession, tmp_path: Path, renames: bool
) -> None:
    table = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    table.create(TableDefinition(COLUMNS, {}))
    table.append_rows(ROWS, CommitMark("app", 0, "query", "{}"))
    statement = "ALTER TABLE TARGET SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    if renames:
        statement += "".join(f"; ALTER TABLE TARGET RENAME COLUMN {a} TO {b}" for a, b in ("vw", "wv"))
    rows = _Altering(spark, table, statement)

    def work() -> None:
        table.state()
        table.append(rows, MARK)  # type: ignore[arg-type]

    retried("t", work)
    assert rows.attempts == 1 + renames  # Delta knows that the former change makes no difference
    assert not table.is_direct()
    held = spark.read.format("delta").load(table.path).select("id", "v").collect()
    assert [tuple(row) for row in held] == [(1, "a"), (1, "a")]


def test_another_column_ends_the_attempt(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    table.create(TableDefinition(COLUMNS, {}))
    table.state()
    rows: Any = _Altering(spark, table, "ALTER TABLE TARGET ADD COLUMN more INT")
    with pytest.raises(Py4JJavaError) as failed:
        table.append(rows, MARK)
    assert "MetadataChangedException" in str(delta_conflict(failed.value))


def test_state_is_that_of_a_table_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    """It has the same version as the one before."""
    table, seen = DeltaTable(OwnSessions(spark), str(tmp_path / "t")), []
    for name in "ab":
        shutil.rmtree(table.path, ignore_errors=True)
        spark.sql(f"CREATE TABLE {table.sql} (id INT) USING delta TBLPROPERTIES ('x' = '{name}')")
        state = table.state()
        assert state is not None
        seen.append((state.properties["x"], state.version))
    assert seen == [("a", 0), ("b", 0)]


def test_state_is_read_by_any_thread_where_a_version_has_no_checksum(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A process killed after a commit leaves none: the state is then a Spark job over a checkpoint."""
    table = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    table.create(TableDefinition(COLUMNS, {"delta.checkpointInterval": "2"}))
    for number in range(3):
        table.append_rows(ROWS, replace(MARK, version=number))
    log = Path(table.path, "_delta_log")
    assert list(log.glob("*.checkpoint.parquet"))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    other = DeltaTable(OwnSessions(spark), table.path)
    with ThreadPoolExecutor(1) as pool:  # in the JVM too, the thread is a new one
        state = pool.submit(other.state).result()
    assert state is not None
    assert state.transactions == {MARK.app: 2}


def _staged(directory: Path) -> NewRows:
    """Rows that tasks have put into files already."""
    directory.mkdir()
    files = StagedFiles(str(directory), write_rows([ROWS], COLUMNS, str(directory)), COLUMNS)
    return NewRows(lambda: pytest.fail("the rows are read again"), lambda rows: rows, COLUMNS, files)


def _planned(spark: SparkSession, path: Path) -> DeltaTable:
    table = DeltaTable(OwnSessions(spark), str(path))
    table.plan(TableDefinition(COLUMNS, {"tailrace.x": "y"}, cluster_by=["id"]))
    return table


def test_planned_table_is_made_with_its_first_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = _planned(spark, tmp_path / "t")
    assert not Path(table.path).exists()
    planned = table.state()
    assert planned is not None
    assert planned.properties["tailrace.x"] == "y"
    table.append(_staged(tmp_path / "staged"), MARK)
    state = table.state()
    assert state is not None
    assert (state.version, dict(state.transactions)) == (0, {MARK.app: MARK.version})
    assert state.properties["tailrace.x"] == "y"
    log = Path(table.path, "_delta_log")
    assert sorted(p.name for p in log.iterdir() if not p.name.startswith(".") and p.is_file()) == [
        f"{0:020}.crc",
        f"{0:020}.json",
    ]
    assert not (log / ".tailrace-files.tmp").exists()
    table.append(_staged(tmp_path / "again"), MARK)  # a batch that comes again
    table.append_rows(ROWS, replace(MARK, version=2))
    assert spark.read.format("delta").load(table.path).count() == 2
    assert "clustering" in (log / f"{0:020}.json").read_text()


def test_files_of_a_table_made_with_rows_are_found_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    table = _planned(spark, tmp_path / "t")
    table.append(_staged(tmp_path / "staged"), MARK)
    tracker, tracked = spark.sparkContext.statusTracker(), f"test {tmp_path}"
    spark.sparkContext.setJobGroup(tracked, "")
    try:
        found = table.begin().files()
        assert [(file["path"], file["stats"]) for file in found] == [
            (path.name, found[0]["stats"]) for path in Path(table.path).glob("*.parquet")
        ]
        table.append_rows(ROWS, replace(MARK, version=2))
        assert len(table.begin().files()) == 2
    finally:
        spark.sparkContext._jsc.clearJobGroup()  # type: ignore[union-attr]
    assert list(tracker.getJobIdsForGroup(tracked)) == []
    checksum = json.loads(Path(table.path, "_delta_log", f"{1:020}.crc").read_text())
    assert len(checksum["allFiles"]) == checksum["numFiles"] == 2
    verified = "spark.databricks.delta.allFilesInCrc.verificationMode.enabled"
    spark.conf.set(verified, "true")
    try:
        table.append_rows(ROWS, replace(MARK, version=3))
    finally:
        spark.conf.unset(verified)
    assert spark.read.format("delta").load(table.path).count() == 3


@pytest.mark.parametrize("use", ["begin", "set", "read", "sql", "make", "marked"])
def test_planned_table_is_made_for_anything_else(spark: SparkSession, tmp_path: Path, use: str) -> None:
    table = _planned(spark, tmp_path / "t")
    match use:
        case "set":
            table.set("a", "b")
        case "sql":
            assert table.sql
        case "marked":
            with table.marked(MARK):
                pass
        case _:
            getattr(table, use)()
    assert Path(table.path, "_delta_log", f"{0:020}.json").exists()
    table.append(_staged(tmp_path / "staged"), MARK)
    assert spark.read.format("delta").load(table.path).count() == 1


def test_table_is_made_where_its_maker_was_killed_after_it_had_put_files_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _planned(spark, tmp_path / "t")
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTransaction, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            table.append(_staged(tmp_path / "staged"), MARK)
    left = list(Path(table.path).glob("*.parquet"))
    assert len(left) == 1
    again = _planned(spark, tmp_path / "t")
    assert not left[0].exists()
    again.append(_staged(tmp_path / "again"), MARK)
    assert len(list(Path(table.path).glob("*.parquet"))) == 1


def test_files_of_somebody_else_stay_where_the_maker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "t" / "theirs.parquet").write_text("x")
    (log / ".tailrace-files.tmp").write_text("ours.parquet\n../secret\n")
    with pytest.raises(StateError, match=r"theirs\.parquet"):
        _planned(spark, tmp_path / "t")
    assert (tmp_path / "secret").exists()
    assert (tmp_path / "t" / "theirs.parquet").exists()


def test_a_commit_takes_few_calls_to_the_jvm_however_many_files_it_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 0.1 ms on both sides: what a batch into many small tables costs most."""
    table = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    table.create(TableDefinition(COLUMNS, {}))

    def append(number: int, count: int) -> None:
        mark = replace(MARK, version=number)
        assert table.state() is not None
        transaction = table.begin()
        assert not transaction.has(mark)
        before = len(transaction.files())
        added = [file for _ in range(count) for file in write_rows([ROWS], COLUMNS, table.path)]
        transaction.commit([file.action({}) for file in added], mark)
        state = table.held()
        assert state is not None
        assert (state.version, state.transactions["app"]) == (number, number)
        assert len(table.begin().files()) == before + count

    append(1, 1)  # asks for classes
    calls: list[str] = []
    send = ClientServerConnection.send_command

    def counted(self: ClientServerConnection, command: str) -> Any:
        calls.append(command.partition("\n")[0])
        return send(self, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    append(2, 20)
    assert 0 < len([call for call in calls if call != "m"]) <= 40, calls  # "m": an object is let go
    assert table.state() == DeltaTable(OwnSessions(spark), table.path).state()


def test_checkpoint_is_written_by_the_one_who_is_told_not_with_the_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    sessions = OwnSessions(spark)
    checkpoints = Checkpoints(sessions)
    table = DeltaTable(sessions, str(tmp_path / "t"), checkpoints)
    table.create(TableDefinition(COLUMNS, {"delta.checkpointInterval": "3"}))
    log, found = Path(table.path, "_delta_log"), list[int]()
    for number in range(1, 7):
        table.state()
        table.append_rows(ROWS, replace(MARK, version=number))
        written = list(log.glob("*.checkpoint.parquet"))
        checkpoints.write()
        now = list(log.glob("*.checkpoint.parquet"))
        found += [number] * (len(now) - len(written))
        assert len(written) == len(found) - (number in found)  # none came with the commit
    assert len(found) == 2
    assert found[1] - found[0] == 3
    assert spark.read.format("delta").load(table.path).count() == 6
    by_delta = DeltaTable(sessions, table.path)
    for number in range(7, 10):
        by_delta.append_rows(ROWS, replace(MARK, version=number))
    assert (log / f"{9:020}.checkpoint.parquet").exists()


class _Due(Checkpoints):
    """Notes what would be written."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(OwnSessions(spark))

    def after(self, version: int) -> list[str]:
        for number in range(20):
            self.committed(f"/lake/t{number}", version, 50)
        due = list(self._due)
        self._due.clear()
        return due


def test_checkpoints_of_a_long_process_are_due_one_after_the_other(spark: SparkSession) -> None:
    checkpoints = _Due(spark)
    due = {version: checkpoints.after(version) for version in range(1, 501)}
    assert max(map(len, due.values())) <= 6
    for number in range(20):
        versions = [version for version in due if f"/lake/t{number}" in due[version]]
        assert 25 < versions[0] <= 50
        assert {b - a for a, b in pairwise(versions)} == {50}


def test_checkpoints_of_a_short_process_are_due_by_the_rule_of_delta(spark: SparkSession) -> None:
    for version in range(1, 100):
        assert len(_Due(spark).after(version)) == (20 if version == 50 else 0)


def test_checkpoint_of_a_table_that_is_gone_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    sessions = OwnSessions(spark)
    checkpoints = Checkpoints(sessions)
    table = DeltaTable(sessions, str(tmp_path / "t"), checkpoints)
    table.create(TableDefinition(COLUMNS, {"delta.checkpointInterval": "1"}))
    table.append_rows(ROWS, MARK)
    shutil.rmtree(table.path)
    checkpoints.write()
    assert not list(tmp_path.glob("t/_delta_log/*.checkpoint.parquet"))
