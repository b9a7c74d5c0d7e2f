"""An Iceberg table's files read by tasks: the same rows as pyiceberg finds in the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

from tailrace.errors import StateError
from tailrace.verify.checksum import BUCKETS, Checksums, Shards
from tailrace.verify.iceberg import table_version
from tailrace.verify.portion import KeyRanges


class _Deletes(ManifestWriterV2):
    """A manifest of delete files, which pyiceberg does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")


@pytest.fixture
def table(catalog: Catalog) -> Table:
    catalog.create_namespace("s")
    schema = pa.schema([("id", pa.int32()), ("old", pa.string()), ("v", pa.int32())])
    made = catalog.create_table("s.t", schema)
    made.append(rows(0, 200, schema))
    made.append(rows(200, 1000, schema))
    with made.update_schema() as update:
        update.rename_column("old", "new")
        update.update_column("v", LongType())
        update.add_column("more", LongType())
    made.append(rows(1000, 1300, pa.schema([("id", pa.int32()), ("new", pa.string()), ("v", pa.int64())])))
    return made


def rows(first: int, end: int, schema: pa.Schema) -> pa.Table:
    numbers = range(first, end)
    return pa.table([list(numbers), [f"t{i % 2}" for i in numbers], [i * 3 for i in numbers]], schema=schema)


def delete(
    table: Table, content: DataFileContent, file: pa.Table, path: Path, keys: list[int] | None
) -> None:
    """Commit a delete file, as other programs do."""
    pq.write_table(file, path)
    data_file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(file),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=keys,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        place = table.io.new_output(f"file://{path}.avro")
        with _Deletes(table.spec(), table.schema(), place, append.snapshot_id, "null") as writer:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=append.snapshot_id, data_file=data_file
            )
            writer.add_entry(entry)
        manifests = [*append._existing_manifests(), writer.to_manifest_file()]
        append._existing_manifests = lambda: manifests  # type: ignore[method-assign]


def test_rows_without_deleted_ones_with_renamed_and_widened_columns(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    (file,) = (task.file for task in table.scan().plan_files() if task.file.record_count == 800)
    gone = pa.table({"file_path": [file.file_path] * 50, "pos": pa.array(range(0, 100, 2), pa.int64())})
    delete(table, DataFileContent.POSITION_DELETES, gone, tmp_path / "gone.parquet", None)
    expected = table.scan().to_arrow().sort_by("id")
    assert expected.num_rows == 1250
    found = table_version(spark, "t", table, table.current_snapshot())
    assert found.columns.names == ["id", "new", "v", "more"]
    expected = expected.cast(found.columns)
    key, names = ("id",), found.columns.names
    sums = found.checksums(names, key)
    assert sums.rows == 1250
    assert not len(sums.differing(Checksums.of(expected.to_batches(), key)))
    assert found.rows(names, key, np.arange(BUCKETS)).sort_by("id") == expected
    shard = found.only(Shards("new", ("t1",)))
    assert shard.checksums(["id"], key).rows == 600 + 50
    assert shard.checksums(["id"], key, KeyRanges("id", ((1000, 1099),))).rows == 50


def test_earlier_snapshot_has_the_columns_of_its_time(spark: SparkSession, table: Table) -> None:
    first = table.snapshots()[0]
    found = table_version(spark, "t", table, first)
    assert found.columns.names == ["id", "old", "v"]
    assert found.checksums(["id", "old"], ("id",)).rows == 200
    assert table_version(spark, "t", table, None).checksums(["id"], ("id",)).rows == 0


def test_equality_deletes_are_refused(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    gone = pa.table({"id": pa.array([1], pa.int32())})
    delete(table, DataFileContent.EQUALITY_DELETES, gone, tmp_path / "gone.parquet", [1])
    with pytest.raises(StateError, match="cannot be compared") as refused:
        table_version(spark, "t", table, table.current_snapshot())
    assert refused.value.code == "TR-8109"
