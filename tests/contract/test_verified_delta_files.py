"""A Delta table's files read by tasks themselves: the same rows as Spark finds in the table."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.config.sinks import WriteMode
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE
from tailrace.sinks.delta.pending import changes_path
from tailrace.sinks.delta.transaction import delta_state
from tailrace.spark.task_errors import parse_error
from tailrace.verify import delta_files
from tailrace.verify.checksum import BUCKETS, Shards
from tailrace.verify.target import TableVersion, target_after

ROWS = """
    id, CAST(id * 7 % 13 AS INT) AS n, CAST(id / 3 AS DOUBLE) AS d, CAST(id AS DECIMAL(20, 4)) AS p,
    IF(id % 5 = 0, NULL, concat('text ', id)) AS s, CAST(s AS BINARY) AS b, id % 2 = 0 AS f,
    DATE '1500-03-01' + CAST(id AS INT) AS day, timestamp_micros(-id * 86400000001) AS at,
    CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS local, array(s, 'x') AS list
"""


class Table:
    """A table below a sink's path."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.path = spark, root, root / "t"

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("TABLE_", f"delta.`{self.path}`"))

    def after(self, mode: WriteMode = WriteMode.UPSERT) -> TableVersion:
        found = target_after(self.spark, str(self.root), "t", mode=mode, key=("id",), batch=10**6)
        assert found is not None
        return found

    def require_equal(self, found: TableVersion | None = None) -> None:
        """The files have the rows that Spark finds."""
        found = found or self.after()
        assert found.files is not None
        by_spark = TableVersion(found.frame, found.version, found.columns)
        names, buckets = found.columns.names, np.arange(0, BUCKETS, 3)
        ours, theirs = (each.checksums(names, ("id",)) for each in (found, by_spark))
        assert ours.rows == theirs.rows > 0
        assert not len(ours.differing(theirs))
        ours, theirs = (each.rows(names, ("id",), buckets).sort_by("id") for each in (found, by_spark))
        assert ours.num_rows > 0
        assert ours == theirs


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def created(table: Table, rows: int = 200, **properties: str) -> None:
    tags = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    having = f"TBLPROPERTIES ({tags})" if tags else ""
    table.sql(f"CREATE TABLE TABLE_ USING delta {having} AS SELECT {ROWS} FROM range(0, {rows}, 1, 1)")


def test_rows_with_deletion_vectors_and_later_columns(table: Table) -> None:
    created(table, enableDeletionVectors="true")
    table.sql(
        "DELETE FROM TABLE_ WHERE id % 7 = 3",
        "ALTER TABLE TABLE_ ADD COLUMN more STRING",
        f"INSERT INTO TABLE_ SELECT *, 'new' FROM (SELECT {ROWS} FROM range(200, 300))",
        "DELETE FROM TABLE_ WHERE id % 11 = 5",
    )
    table.require_equal()


def test_columns_with_other_names_in_files_and_widened_types(table: Table) -> None:
    created(table, **{"columnMapping.mode": "name", "enableTypeWidening": "true"})
    table.sql(
        "ALTER TABLE TABLE_ RENAME COLUMN s TO `a.b c`",
        "ALTER TABLE TABLE_ DROP COLUMN d",
        "ALTER TABLE TABLE_ ADD COLUMN d STRING",
        "ALTER TABLE TABLE_ ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE TABLE_ ALTER COLUMN p TYPE DECIMAL(30, 6)",
        "INSERT INTO TABLE_ (id, n, d, `a.b c`) VALUES (1000, 1 << 40, 'text', NULL)",
    )
    table.require_equal()


def test_current_versions_of_rows(table: Table) -> None:
    having = "CAST(NULL AS TIMESTAMP) AS _valid_from, CAST(NULL AS TIMESTAMP) AS _valid_to"
    table.sql(
        f"CREATE TABLE TABLE_ USING delta AS SELECT {ROWS}, {having}, id % 3 = 0 AS _is_current, 1L AS _seq"
        " FROM range(200)"
    )
    table.require_equal(table.after(WriteMode.SCD2))


def test_rows_of_one_shard(table: Table) -> None:
    table.sql(
        f"CREATE TABLE TABLE_ USING delta AS SELECT {ROWS}, concat('s', id % 3) AS shard FROM range(200)"
    )
    table.require_equal(table.after().only(Shards("shard", ("s0", "s2"))))


def test_large_files_are_read_in_parts(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table.spark.sql(f"SELECT {ROWS} FROM range(3000)").toArrow()
    table.path.mkdir()
    file = table.path / "rows.parquet"
    pq.write_table(rows, file, row_group_size=400)
    size = file.stat().st_size
    table.sql(
        f"CONVERT TO DELTA parquet.`{table.path}`",
        "ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM TABLE_ WHERE id % 1000 = 999",
    )
    monkeypatch.setattr(delta_files, "_PART_BYTES", size // 5)
    found = table.after()
    assert found.files is not None
    assert found.files.parts.count() > 3
    table.require_equal(found)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE: id 3 again, id 900 new, id 5 gone",
        "a column that pending changes have not",
    ],
)
def test_pending_changes_are_applied(table: Table, change: str) -> None:
    created(table)
    pending = changes_path(str(table.root), "t")
    fields = (
        "CAST({op} AS TINYINT) AS _op, {seq} AS _seq, CAST(NULL AS ARRAY<STRING>) AS _absent, 7L AS _batch"
    )
    new = " UNION ALL ".join(
        f"SELECT {ROWS}, {fields.format(op=op, seq=seq)} FROM range({id_}, {id_ + 1})"
        for op, seq, id_ in (
            *((OP_UPDATE, "2L", 3), (OP_DELETE, "1L", 3), (OP_CREATE, "3L", 900), (OP_DELETE, "4L", 5)),
        )
    )
    table.spark.sql(f"CREATE TABLE delta.`{pending}` USING delta AS {new}")
    if change.startswith("a column"):
        table.sql("ALTER TABLE TABLE_ ADD COLUMN more STRING")
    found = table.after()
    assert found.files is not None
    assert found.files.pending is not None
    table.require_equal(found)


def test_partitioned_table_is_read_by_spark(table: Table) -> None:
    table.sql(f"CREATE TABLE TABLE_ USING delta PARTITIONED BY (n) AS SELECT {ROWS} FROM range(20)")
    assert table.after().files is None
    assert table.after().checksums(["id", "n"], ("id",)).rows == 20


def test_file_of_the_julian_calendar_is_refused(table: Table) -> None:
    created(table)
    (file,) = table.path.glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), file)
    found = table.after()
    with pytest.raises(PySparkException) as raised:
        found.checksums(["id"], ("id",))
    told = parse_error(str(raised.value))
    assert told is not None
    assert told.code == "TR-8107"


def test_table_that_another_process_has_created_is_found(spark: SparkSession, tmp_path: Path) -> None:
    made, path = tmp_path / "made", tmp_path / "table"
    spark.range(3).write.format("delta").save(str(made))
    assert delta_state(spark, str(path)) is None
    shutil.copytree(made, path)
    found = delta_state(spark, str(path))
    assert found is not None, "Delta remembers that there was none"
    assert found.version == 0
    shutil.rmtree(path)
    assert delta_state(spark, str(path)) is None
