"""Delta versions by tasks: the same rows as by MERGE, and which files a merge opens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings, ReaderFeatures, WriteMode
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sinks.delta import data_files
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.transaction import DeltaTransaction
from tailrace.sinks.route import Router
from tests.e2e.test_delta_upsert import files_of, operations
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, DECIMAL, INT, TEXT, Change, Row, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), ("n", INT), key=("id",))


@dataclass(frozen=True)
class Subject:
    """A table whose rows change.

    Args:
        before: its schema at first.
        after: its schema for a while, with wider types and one more column.
        key: makes the key of a row of a number.
    """

    before: TableSchema
    after: TableSchema
    key: Callable[[int], Row]


def subject(
    key: Sequence[tuple[str, Any]], wider: Sequence[tuple[str, Any]], of: Callable[[int], Row]
) -> Subject:
    names = tuple(name for name, _ in key)
    return Subject(
        table(*key, ("name", TEXT), ("n", INT), key=names),
        table(*wider, ("name", TEXT), ("n", BIGINT), ("later", TEXT), key=names),
        of,
    )


SUBJECTS = {
    "number": subject([("id", INT)], [("id", BIGINT)], lambda i: {"id": i}),
    "text": subject([("id", TEXT)], [("id", TEXT)], lambda i: {"id": f"Straße {i} 'ключ' \\"}),
    "several, with odd names": subject(
        [("row", TEXT), ("changes.row", DECIMAL)],
        [("row", TEXT), ("changes.row", DECIMAL)],
        lambda i: {"row": "ab"[i % 2], "changes.row": Decimal(i // 2)},
    ),
}


@dataclass
class Source:
    """Changes a table at random; the log has them all.

    Args:
        subject: the table.
        draw: the dice.
    """

    subject: Subject
    draw: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    _written: int = 0

    def row(self, schema: TableSchema, number: int) -> Row:
        """A row with new values."""
        draw = self.draw
        values = {"name": draw.choice([None, "", "x", "y"]), "n": draw.choice([None, 1, -1])}
        later = {"later": draw.choice([None, "z"])} if schema is self.subject.after else {}
        return {**self.subject.key(number), **values, **later}

    def log(self, schema: TableSchema, many: int) -> ChangeBatch:
        """The log of some changes: several of a key, some at the same time, some at an unknown one."""
        log: list[Change] = []
        for _ in range(many):
            number = self.draw.randrange(20)
            before = self.rows.get(number)
            if before is not None and self.draw.random() < 0.3:
                log.append(("d", self.rows.pop(number), None))
            else:
                self.rows[number] = self.row(schema, number)
                log.append(("c" if before is None else "u", before, self.rows[number]))
        return self._timed(changes(schema, log, first=self._written))

    def snapshot(self) -> ChangeBatch:
        """The rows of half of the keys."""
        schema = self.subject.before
        self.rows = {number: self.row(schema, number) for number in range(0, 20, 2)}
        return self._timed(changes(schema, [("r", None, row) for row in self.rows.values()]))

    def _timed(self, batch: ChangeBatch) -> ChangeBatch:
        base = 1_700_000_000_000_000
        times = [
            self.draw.choice([0, *[base + (self._written + i) // 4 for _ in range(5)]])
            for i in range(len(batch))
        ]
        self._written += len(batch)
        at = batch.origin.schema.get_field_index("ts_us")
        origin = batch.origin.set_column(at, batch.origin.schema.field(at), pa.array(times, pa.int64()))
        return replace(batch, origin=origin)


class Versions:
    """A table of versions.

    Args:
        spark: a session.
        path: the sink's path.
        interval: `merge-interval`.
    """

    def __init__(self, spark: SparkSession, path: Path, interval: int = 0) -> None:
        self._spark, self.path, self._number = spark, path, 0
        settings = DeltaSettings(
            str(path), WriteMode.SCD2, merge_interval=interval, reader_features=ReaderFeatures.LATEST
        )
        self._sink = DeltaSink(settings, Router([]))

    def write(self, kind: str, *parts: ChangeBatch) -> None:
        """Write the next batch."""
        self._sink.write(cell_batch(self._spark, self._number, [(kind, part) for part in parts]))
        self._number += 1

    def again(self) -> None:
        """Have the last batch come again next."""
        self._number -= 1

    def do(self, statement: str) -> None:
        """Run a statement on the table `{t}`."""
        self._spark.sql(statement.format(t=f"delta.`{self.path}/shop.t`"))

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, in the order of their changes; of the snapshot, in that of their values."""
        found = self._spark.read.format("delta").load(str(self.path / "shop.t")).collect()
        rows = [tuple(sorted(row.asDict().items())) for row in found]
        return sorted(rows, key=lambda row: (dict(row)["_seq"], repr(row)))

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


#: What others do to the table before a batch, by the number of its step.
OTHERS = {
    3: "OPTIMIZE {t}",
    5: "ALTER TABLE {t} ADD COLUMN own STRING",
    6: "UPDATE {t} SET own = 'theirs' WHERE name = 'x'",
    7: "DELETE FROM {t} WHERE name = ''",
}


def as_merged(
    spark: SparkSession,
    path: Path,
    subject: Subject,
    *,
    seed: int,
    steps: Sequence[int] = range(2, 10),
    interval: int = 0,
) -> None:
    """Have tasks and MERGE write the same batches, and compare."""
    draw = random.Random(seed)
    source = Source(subject, draw)
    with (
        closing(Versions(spark, path / "tasks", interval)) as by_tasks,
        closing(Versions(spark, path / "merge", interval)) as by_merge,
    ):
        first = source.snapshot()
        for target in (by_tasks, by_merge):
            target.write("snapshot", first)
        # which is left to MERGE
        by_merge.do("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        for number in steps:
            schema = subject.after if 5 <= number < 9 else subject.before
            parts = [source.log(schema, draw.choice([1, 30])) for _ in range(2)]
            draw.shuffle(parts)
            for target in (by_tasks, by_merge):
                if number in OTHERS:
                    target.do(OTHERS[number])
                target.write("log", *parts)
            if not interval:
                assert by_tasks.rows() == by_merge.rows(), number
    assert by_tasks.rows() == by_merge.rows()
    assert "MERGE" not in operations(spark, path / "tasks")
    assert operations(spark, path / "merge").count("MERGE") == (2 if interval else len(steps))


@pytest.fixture(params=["driver", "tasks"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where files are read and written."""
    if request.param == "tasks":
        monkeypatch.setattr(data_files, "_SMALL_BYTES", 0)
    return str(request.param)


@pytest.mark.parametrize("place", ["tasks"], indirect=True)
def test_tasks_write_the_versions_that_merge_writes(spark: SparkSession, tmp_path: Path, place: str) -> None:
    as_merged(spark, tmp_path, SUBJECTS["number"], seed=1, steps=(3, 5, 6))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place"),
    [("number", "driver"), ("text", "tasks"), ("several, with odd names", "driver")],
    indirect=["place"],
)
def test_tasks_write_the_versions_that_merge_writes_of_keys_of_any_kind(
    spark: SparkSession, tmp_path: Path, name: str, place: str
) -> None:
    as_merged(spark, tmp_path, SUBJECTS[name], seed=sorted(SUBJECTS).index(name))


@pytest.mark.slow
def test_tasks_write_the_versions_that_merge_writes_of_changes_that_waited(
    spark: SparkSession, tmp_path: Path
) -> None:
    as_merged(spark, tmp_path, SUBJECTS["text"], seed=7, interval=3600)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101])
def test_tasks_write_the_versions_that_merge_writes_of_other_changes(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    as_merged(spark, tmp_path, SUBJECTS["number"], seed=seed)


def row(id_: int, name: str) -> Row:
    return {"id": id_, "name": name, "n": None}


def renamed(number: int, ids: Sequence[int]) -> ChangeBatch:
    """The n-th change of some rows."""
    log = [("u", row(id_, f"{number - 1}"), row(id_, f"{number}")) for id_ in ids]
    return changes(SCHEMA, log, first=1000 * number)


@pytest.fixture
def versions(spark: SparkSession, tmp_path: Path) -> Iterator[Versions]:
    """Forty rows, as first versions."""
    with closing(Versions(spark, tmp_path)) as target:
        target.write("snapshot", changes(SCHEMA, [("r", None, row(id_, "0")) for id_ in range(40)]))
        yield target


def is_ended(file: Mapping[str, Any]) -> bool:
    """Whether all versions in a data file have ended, by its statistics."""
    return bool(json.loads(file["stats"])["nullCount"]["_valid_to"] == 0)


def test_files_of_ended_versions_are_not_opened(
    spark: SparkSession, tmp_path: Path, versions: Versions, place: str
) -> None:
    for number in (1, 2):
        versions.write("log", renamed(number, range(10)))
    ended = [tmp_path / "shop.t" / file["path"] for file in files_of(spark, tmp_path) if is_ended(file)]
    assert len(ended) == 2
    for file in ended:
        file.rename(file.with_suffix(".away"))
    versions.write("log", renamed(3, range(20)))
    for file in ended:
        file.with_suffix(".away").rename(file)
    found = [dict(version) for version in versions.rows()]
    assert [version["name"] for version in found if version["id"] == 5] == ["0", "1", "2", "3"]
    assert sum(version["_is_current"] for version in found) == 40


def test_table_of_versions_that_is_changed_often_keeps_few_files(
    spark: SparkSession, tmp_path: Path, versions: Versions
) -> None:
    files = []
    for number in range(1, 18):
        versions.write("log", renamed(number, range(3)))
        files.append(len(files_of(spark, tmp_path)))
    assert max(files) == 8
    assert min(files[10:]) == 2  # one with current versions, one with ended ones
    assert len(versions.rows()) == 40 + 3 * 17


def test_ended_version_keeps_the_value_of_a_column_that_another_writer_adds_meanwhile(
    spark: SparkSession, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ["ALTER TABLE {t} ADD COLUMN own STRING", "UPDATE {t} SET own = 'theirs' WHERE id = 1"]

    def begin(self: DeltaTable) -> DeltaTransaction:
        while theirs:
            versions.do(theirs.pop(0))
        return plain(self)

    plain = DeltaTable.begin
    monkeypatch.setattr(DeltaTable, "begin", begin)
    versions.write("log", renamed(1, [1]))
    assert theirs == []
    found = [dict(version) for version in versions.rows() if dict(version)["id"] == 1]
    assert [(v["name"], v["own"], v["_is_current"]) for v in found] == [
        ("0", "theirs", False),
        ("1", None, True),
    ]


def test_batch_of_versions_that_comes_again_changes_nothing(versions: Versions) -> None:
    versions.write("log", renamed(1, range(10)))
    held = versions.rows()
    versions.again()
    versions.write("log", renamed(1, range(10)))
    assert versions.rows() == held
