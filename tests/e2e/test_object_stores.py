"""Checkpoint and tables in an object store: the same rows after kills as on a disk."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from tests.support.pipelines import PipelineProcess
from tests.support.s3 import KEY, SECRET, ObjectStore, object_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


_READ_DELTA = """
import json, sys
from tailrace.spark.session import spark_session
path, settings = sys.argv[1], json.loads(sys.argv[2])
session = spark_session("reader", delta=True, paths=[path], extra_conf=settings)
rows = session.read.format("delta").load(path).toJSON().collect()
print(json.dumps([json.loads(row) for row in rows]))
"""


class Lake:
    """A pipeline whose checkpoint and tables are in the store, and how another program reads them."""

    def __init__(self, store: ObjectStore, mysql: Any, database: str, path: Path, kind: str) -> None:
        self.store, self.mysql, self.table = store, mysql, f"{database}.t"
        self.settings = store.settings
        self.root = f"s3://lake/{uuid.uuid4().hex[:8]}"
        self.catalog = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": self.root}
        sink: dict[str, Any] = {
            "delta": {"type": "delta", "mode": "upsert"},
            "changelog": {"type": "delta", "mode": "changelog"},
            "scd2": {"type": "delta", "mode": "scd2"},
            "iceberg": {"type": "iceberg", "mode": "upsert", "catalog": self.catalog},
            "parquet": {"type": "parquet"},
        }[kind]
        self.kind = kind
        self.process = PipelineProcess(
            path,
            mysql,
            self.table,
            sink={**sink, "path": f"{self.root}/tables"},
            pipeline={"checkpoint": f"{self.root}/checkpoint", "spark": store.settings},
            env=store.environment,
        )
        mysql.execute(
            f"CREATE TABLE {self.table} (id INT PRIMARY KEY, a INT, name VARCHAR(20))",
            f"INSERT INTO {self.table} VALUES {', '.join(f'({i}, {i}, NULL)' for i in range(500))}",
        )

    def change(self, *statements: str) -> None:
        self.mysql.execute(*(text.format(self.table) for text in statements))

    def run(self, failpoint: str | None = None) -> None:
        code = self.process.run(failpoint=failpoint)
        assert code == (0 if failpoint is None else -9), self.process.output()

    def source_rows(self) -> list[tuple[int, int]]:
        return sorted((int(i), int(a)) for i, a in self.mysql.execute(f"SELECT id, a FROM {self.table}"))

    def rows(self) -> list[tuple[int, int]]:
        """The present rows, by a reader of its own."""
        read: Callable[[], pa.Table] = {
            "delta": self._delta,
            "changelog": self._delta,
            "scd2": self._delta,
            "iceberg": self._iceberg,
            "parquet": self._parquet,
        }[self.kind]
        held = read().to_pylist()
        if self.kind == "scd2":
            held = [row for row in held if row["_is_current"]]
        if self.kind in ("changelog", "parquet"):
            assert len({(row["_seq"], row["id"]) for row in held}) == len(held), "a change is there twice"
            last = {row["id"]: row for row in sorted(held, key=lambda row: row["_seq"])}
            held = [row for row in last.values() if row["_op"] != "d"]
        found = sorted((row["id"], row["a"]) for row in held)
        assert len(dict(found)) == len(found)
        return found

    def _delta(self) -> pa.Table:
        # deltalake reads no deletion vectors
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _READ_DELTA,
                f"{self.root}/tables/{self.table}",
                json.dumps(self.settings),
            ],
            env={**self.process.environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return pa.Table.from_pylist(json.loads(done.stdout.splitlines()[-1]))

    def _iceberg(self) -> pa.Table:
        properties = {
            "s3.endpoint": f"http://127.0.0.1:{self.store.port}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "eu-central-1",
        }
        return load_catalog("tailrace", **self.catalog, **properties).load_table(self.table).scan().to_arrow()

    def _parquet(self) -> pa.Table:
        path = f"{self.root}/tables/{self.table}".removeprefix("s3://")
        return pq.read_table(path, filesystem=self.store.files())


@pytest.mark.parametrize("kind", ["delta", "changelog", "scd2", "iceberg", "parquet"])
def test_tables_in_an_object_store_are_equal_after_kills(
    store: ObjectStore, mysql: Any, database: str, tmp_path: Path, kind: str
) -> None:
    lake = Lake(store, mysql, database, tmp_path, kind)
    lake.run("sink.table")
    lake.run()
    assert lake.rows() == lake.source_rows()
    lake.change("UPDATE {} SET a = a + 1000 WHERE id < 100", "DELETE FROM {} WHERE id BETWEEN 200 AND 220")
    lake.change("INSERT INTO {} VALUES (900, 1, 'new')", "UPDATE {} SET id = 901 WHERE id = 300")
    lake.run("sink.table")
    lake.run()
    lake.change("ALTER TABLE {} ADD COLUMN more INT", "UPDATE {} SET more = 1, a = 7 WHERE id = 5")
    lake.run()
    assert lake.rows() == lake.source_rows()
    listed = {info.path for info in store.files().get_file_info(_all(lake.root))}
    assert any("/checkpoint/commits/" in path for path in listed)
    assert not (Path.cwd() / "s3:").exists()
    assert not list(tmp_path.rglob("s3:*"))


def _all(root: str) -> Any:
    from pyarrow import fs

    return fs.FileSelector(root.removeprefix("s3://"), recursive=True)
