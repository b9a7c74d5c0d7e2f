"""Delta upserts by tasks: deletion vectors, ours and Spark's, keys of any kind, and when MERGE does it."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings
from tailrace.errors import StateError
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.vectors import read_vector, write_vector
from tailrace.sinks.route import Router
from tailrace.spark.sql import OwnSessions
from tests.support.cells import cell_batch
from tests.support.changes import DECIMAL, INT, TEXT, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
COMPOSITE = table(("shop", TEXT), ("price", DECIMAL), ("n", INT), key=("shop", "price"))


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def write(spark: SparkSession, path: Path, number: int, rows: Any, schema: Any = SCHEMA) -> None:
    """Write batch `number`; the first one is of the snapshot."""
    kind = "log" if number else "snapshot"
    sink = DeltaSink(DeltaSettings(str(path), merge_interval=0), Router([]))
    sink.write(cell_batch(spark, number, [(kind, changes(schema, rows, first=1000 * number))]))
    sink.close()


def held(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in spark.read.format("delta").load(str(path / "shop.t")).collect())


def operations(spark: SparkSession, path: Path) -> list[str]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}/shop.t`").orderBy("version")
    return [r["operation"] for r in history.collect()]


def snapshot(spark: SparkSession, path: Path, n: int) -> None:
    write(spark, path, 0, [("r", None, row(i, f"s{i}")) for i in range(n)])


@pytest.mark.parametrize("rows", [[0], [7, 70_000, 5_000_000_000], np.arange(200_000)])
def test_a_vector_is_read_as_it_was_written(tmp_path, rows):
    vector = BitMap64(np.asarray(rows, np.uint64))
    descriptor = write_vector(vector, str(tmp_path))
    assert read_vector(descriptor, str(tmp_path)) == vector
    assert descriptor["cardinality"] == len(vector)


def test_a_broken_vector_is_refused(tmp_path):
    descriptor = write_vector(BitMap64([1, 2, 3]), str(tmp_path))
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    with pytest.raises(StateError, match="checksum"):
        read_vector(descriptor, str(tmp_path))


def test_rows_that_spark_has_deleted_stay_deleted(spark, tmp_path):
    snapshot(spark, tmp_path, 2000)
    spark.sql(f"DELETE FROM delta.`{tmp_path}/shop.t` WHERE id BETWEEN 100 AND 1500")
    log = [("u", row(3, "s3"), row(3, "x")), ("d", row(4, "s4"), None), ("c", None, row(100, "new"))]
    write(spark, tmp_path, 1, log)
    write(spark, tmp_path, 2, [("u", row(3, "x"), row(3, "y"))])
    expected = [(i, f"s{i}") for i in range(2000) if i not in (3, 4) and not 100 <= i <= 1500]
    assert held(spark, tmp_path) == sorted([*expected, (3, "y"), (100, "new")])
    assert "MERGE" not in operations(spark, tmp_path)


def test_spark_goes_on_with_vectors_of_tasks(spark, tmp_path):
    snapshot(spark, tmp_path, 10)
    write(spark, tmp_path, 1, [("d", row(i, f"s{i}"), None) for i in (1, 2)])
    spark.sql(f"DELETE FROM delta.`{tmp_path}/shop.t` WHERE id = 3")
    spark.sql(f"UPDATE delta.`{tmp_path}/shop.t` SET name = 'z' WHERE id = 4")
    spark.sql(f"OPTIMIZE delta.`{tmp_path}/shop.t`")
    assert held(spark, tmp_path) == [(0, "s0"), (4, "z"), *((i, f"s{i}") for i in range(5, 10))]


def test_a_file_without_rows_left_is_removed(spark, tmp_path):
    snapshot(spark, tmp_path, 3)
    write(spark, tmp_path, 1, [("d", row(i, f"s{i}"), None) for i in range(3)])
    assert held(spark, tmp_path) == []
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path}/shop.t`").collect()[0]
    assert detail["numFiles"] == 0


def test_table_whose_maker_was_killed_is_made(spark, tmp_path):
    """Killed before the first commit had its name: found by random kills."""
    log = tmp_path / "shop.t" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / f".{0:020}.json.46afea45-ea2d-4f35-9205-a91830f67946.tmp").write_text("{}\n")
    snapshot(spark, tmp_path, 3)
    assert len(held(spark, tmp_path)) == 3


def test_log_of_something_else_is_left_alone(spark, tmp_path):
    log = tmp_path / "shop.t" / "_delta_log"
    log.mkdir(parents=True)
    (log / "_last_checkpoint").write_text("{}")
    with pytest.raises(StateError, match="_delta_log"):
        snapshot(spark, tmp_path, 3)
    assert [p.name for p in log.iterdir()] == ["_last_checkpoint"]


def test_directory_of_something_else_is_left_alone(spark, tmp_path):
    """A table there would have VACUUM delete it."""
    other = tmp_path / "shop.t" / "part-0.parquet"
    other.parent.mkdir()
    other.write_text("others' rows")
    with pytest.raises(StateError, match=r"part-0\.parquet"):
        snapshot(spark, tmp_path, 3)
    assert [p.name for p in other.parent.iterdir()] == [other.name]


def test_history_tells_what_a_commit_wrote(spark, tmp_path):
    snapshot(spark, tmp_path, 10)
    write(spark, tmp_path, 1, [("d", row(1, "s1"), None), ("u", row(2, "s2"), row(2, "x"))])
    write(spark, tmp_path, 2, [("d", row(2, "x"), None)])
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/shop.t`").orderBy("version").collect()
    names = ("numOutputRows", "numAddedFiles", "numRemovedFiles")
    told = [tuple(int(r["operationMetrics"][n]) for n in names) for r in history[1:]]
    # the table's rows lie in one file or two; what batch 2 deletes is the only row of its file
    assert [(rows, removed) for rows, _, removed in told] == [(10, 0), (1, 0), (0, 1)]
    assert all(int(r["operationMetrics"]["numOutputBytes"]) > 0 for r in history[1:3])


def test_keys_of_several_columns_tell_rows_apart(spark, tmp_path):
    def sold(shop: str, price: str, n: int) -> dict[str, Any]:
        return {"shop": shop, "price": Decimal(price), "n": n}

    first = [sold("a", "1.00", 1), sold("a", "2.00", 2), sold("b", "1.00", 3)]
    write(spark, tmp_path, 0, [("r", None, r) for r in first], COMPOSITE)
    log = [("u", first[1], sold("a", "2.00", 20)), ("d", first[2], None), ("c", None, sold("b", "2.00", 4))]
    write(spark, tmp_path, 1, log, COMPOSITE)
    assert [(s, str(p), n) for s, p, n in held(spark, tmp_path)] == [
        ("a", "1.00", 1),
        ("a", "2.00", 20),
        ("b", "2.00", 4),
    ]


def test_a_change_data_feed_is_told_of_updates_by_merge(spark, tmp_path):
    snapshot(spark, tmp_path, 3)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    write(spark, tmp_path, 1, [("u", row(1, "s1"), row(1, "x"))])
    assert held(spark, tmp_path) == [(0, "s0"), (1, "x"), (2, "s2")]
    assert operations(spark, tmp_path)[-1] == "MERGE"


def files_of(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    """The table's files, as the contents of their `add` actions."""
    return DeltaTable(OwnSessions(spark), str(path / "shop.t")).begin().files()


class Often:
    """A table that batch after batch changes.

    Args:
        spark: a session.
        path: the sink's path.
    """

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self._path, self._number = spark, path, 0
        self._sink = DeltaSink(DeltaSettings(str(path), merge_interval=0), Router([]))
        self.rows: dict[int, str] = {}

    def __enter__(self) -> Often:
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def write(self, log: dict[int, str | None]) -> None:
        """Write a batch: new values by id; None: the row is deleted."""
        rows: list[Any] = []
        for id_, new in log.items():
            before = row(id_, self.rows[id_]) if id_ in self.rows else None
            after = None if new is None else row(id_, new)
            op = "r" if self._number == 0 else "d" if after is None else "u" if before else "c"
            rows.append((op, before, after))
            if new is None:
                del self.rows[id_]
            else:
                self.rows[id_] = new
        kind = "log" if self._number else "snapshot"
        batch = cell_batch(
            self._spark, self._number, [(kind, changes(SCHEMA, rows, first=1000 * self._number))]
        )
        self._sink.write(batch)
        self._number += 1

    def change(self, draw: random.Random) -> None:
        """Write a batch that updates and deletes some rows, and brings others."""
        number = self._number
        ids = draw.sample(range(60), 3)
        self.write({i: None if i in self.rows and draw.random() < 0.3 else f"{number}" for i in ids})


def test_table_that_is_changed_often_keeps_few_files(spark, tmp_path):
    draw = random.Random(5)
    with Often(spark, tmp_path) as table_:
        table_.write({i: f"s{i}" for i in range(40)})
        files = []
        for _ in range(20):
            table_.change(draw)
            files.append(len(files_of(spark, tmp_path)))
    assert held(spark, tmp_path) == sorted(table_.rows.items())
    assert max(files) == 8
    assert min(files[15:]) == 1
    assert set(operations(spark, tmp_path)) <= {"CREATE TABLE", "STREAMING UPDATE"}


def test_files_that_are_put_together_keep_columns_of_the_user(spark, tmp_path):
    with Often(spark, tmp_path) as table_:
        table_.write({i: f"s{i}" for i in range(40)})
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD COLUMN own STRING")
        spark.sql(f"INSERT INTO delta.`{tmp_path}/shop.t` VALUES (900, 'x', 'theirs')")
        for number in range(17):
            table_.write({100 + number: "n"})
    assert len(files_of(spark, tmp_path)) < 8
    expected = [*((id_, name, None) for id_, name in table_.rows.items()), (900, "x", "theirs")]
    assert held(spark, tmp_path) == sorted(expected)


@pytest.mark.parametrize("kind", ["row ids", "other types", "clustered"])
def test_files_that_must_stay_as_they_are_are_not_put_together(spark, tmp_path, kind):
    """Rows have ids of their own, files other types than the table, or OPTIMIZE has put them in order."""
    name = f"delta.`{tmp_path}/shop.t`"
    with Often(spark, tmp_path) as table_:
        table_.write({i: f"s{i}" for i in range(40)})
        match kind:
            case "row ids":
                spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
            case "other types":
                spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
                spark.sql(f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT")
            case "clustered":
                spark.sql(f"ALTER TABLE {name} CLUSTER BY (id)")
                spark.sql(f"OPTIMIZE {name}")
        before = {file["path"] for file in files_of(spark, tmp_path)}
        for number in range(17):
            table_.write({100 + number: "n"})
    assert held(spark, tmp_path) == sorted(table_.rows.items())
    after = {file["path"] for file in files_of(spark, tmp_path)}
    assert before <= after
    assert (len(after) > 8) == (kind == "row ids")
