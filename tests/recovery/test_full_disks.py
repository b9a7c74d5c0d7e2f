"""Targets whose disk is full: an error that passes, and all of the batch, once, when there is room again."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings
from tailrace.config.secret import Secret
from tailrace.config.sinks import (
    DeltaSettings,
    IcebergSettings,
    MySqlSettings,
    ParquetSettings,
    PostgresSettings,
    WriteMode,
)
from tailrace.errors import TailraceError
from tailrace.model.types import ColumnType, Kind
from tailrace.pipeline.supervisor import _as_ours
from tailrace.sinks.base import CellBatch, Sink, StreamId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import start_kafka, start_mysql, start_postgres
from tailrace_dev.servers.server import DevServer
from tests.support.cells import cell_batch
from tests.support.changes import INT, changes, table
from tests.support.sinks.iceberg import table_rows
from tests.support.sinks.replica import Target
from tests.support.topics import messages

pytestmark = pytest.mark.slow

LONG = ColumnType(Kind.STRING, "text", length=65_535)
SCHEMA = table(("id", INT), ("name", LONG), key=("id",))
STREAM = StreamId("full", str(uuid.uuid4()))
ROUTER = Router([])
#: What is left of the disk, and bytes of a batch: rows that no compression makes smaller.
LEFT, ROWS, ROW_BYTES = 3 << 20, 8_000, 3_000


@dataclass(frozen=True)
class Disk:
    """A small file system."""

    path: Path

    def fill(self) -> None:
        """Leave LEFT bytes of it."""
        with (self.path / "ballast").open("wb") as ballast:
            left = shutil.disk_usage(self.path).free - LEFT
            for start in range(0, left, 1 << 20):
                ballast.write(bytes(min(1 << 20, left - start)))

    def make_room(self) -> None:
        (self.path / "ballast").unlink()


@dataclass(frozen=True)
class Case:
    """A sink with its target on the disk.

    Args:
        sink: a new one.
        ids: those of the rows that readers see.
        recover: what the target needs beside room.
    """

    sink: Callable[[], Sink]
    ids: Callable[[], list[int]]
    recover: Callable[[], object] = lambda: None


@pytest.fixture
def disk() -> Iterator[Disk]:
    if shutil.which("mount") is None or os.getuid() != 0:
        pytest.skip("only root may mount a small disk")
    path = Path(tempfile.mkdtemp(prefix="tailrace-disk-"))  # where a server that is not root reaches it
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700m", "none", str(path)], check=False)
    if mounted.returncode:
        path.rmdir()
        pytest.skip("no file system can be mounted here")
    path.chmod(0o755)
    yield Disk(path)
    subprocess.run(["umount", "-l", str(path)], check=True)
    path.rmdir()


def delta(mode: WriteMode, merge_interval: int = 0) -> Callable[..., Case]:
    def make(disk: Disk, spark: SparkSession, _: ExitStack) -> Case:
        settings = DeltaSettings(str(disk.path), mode, merge_interval=merge_interval)

        def ids() -> list[int]:
            found = spark.read.format("delta").load(str(disk.path / "shop.t"))
            return [row["id"] for row in found.select("id").collect()]

        return Case(lambda: DeltaSink(settings, ROUTER), ids)

    return make


def iceberg(disk: Disk, _: SparkSession, __: ExitStack) -> Case:
    settings = IcebergSettings(str(disk.path))
    return Case(
        lambda: IcebergSink(settings, ROUTER),
        lambda: table_rows(disk.path, "shop.t").column("id").to_pylist(),
    )


def parquet(disk: Disk, spark: SparkSession, _: ExitStack) -> Case:
    def ids() -> list[int]:
        return [row["id"] for row in spark.read.parquet(str(disk.path / "shop.t")).collect()]

    return Case(lambda: FileSink(ParquetSettings(str(disk.path)), ROUTER), ids)


def kafka(disk: Disk, _: SparkSession, stack: ExitStack) -> Case:
    options = {"log.dirs": str(disk.path / "log"), "log.segment.bytes": "16777216"}
    server = stack.enter_context(start_kafka(options=options))
    settings = KafkaSettings(server.bootstrap, "full", topic_partitions=2, parallelism=2)

    def ids() -> list[int]:
        return [json.loads(m.value or b"")["after"]["id"] for m in messages(server, "full.shop.t")]

    def recover() -> None:
        server.kill()
        server.start()

    return Case(lambda: KafkaSink(settings, ROUTER, "mysql"), ids, recover)


def mysql(disk: Disk, _: SparkSession, stack: ExitStack) -> Case:
    server = stack.enter_context(start_mysql())
    _move(server, disk)
    url = f"mysql://{server.host}:{server.port}"
    settings = MySqlSettings(url, server.user, Secret(server.password), tls_mode="disabled")
    target = Target(server, settings, "tailrace")
    return Case(lambda: ReplicaSink(settings, ROUTER), lambda: [r["id"] for r in target.rows("shop.t")])


def postgres(disk: Disk, _: SparkSession, stack: ExitStack) -> Case:
    server = stack.enter_context(start_postgres("18"))
    _move(server, disk)
    url = f"postgresql://{server.host}:{server.port}/postgres"
    settings = PostgresSettings(url, server.user, Secret(server.password))
    target = Target(server, settings, "public")
    return Case(lambda: ReplicaSink(settings, ROUTER), lambda: [r["id"] for r in target.rows("shop.t")])


def _move(server: DevServer, disk: Disk) -> None:
    """Put a server's data on the disk."""
    server.stop()
    data = server.data.resolve()
    subprocess.run(["cp", "-a", str(data), str(disk.path / "data")], check=True)
    shutil.rmtree(data)
    data.symlink_to(disk.path / "data")
    server.start()


CASES = {
    "delta-upsert": delta(WriteMode.UPSERT),
    "delta-upsert-waiting": delta(WriteMode.UPSERT, 3600),
    "delta-scd2": delta(WriteMode.SCD2),
    "delta-changelog": delta(WriteMode.CHANGELOG),
    "iceberg": iceberg,
    "parquet": parquet,
    "kafka": kafka,
    "mysql": mysql,
    "postgres": postgres,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_full_disk_loses_nothing(disk: Disk, spark: SparkSession, name: str) -> None:
    with ExitStack() as stack:
        case = CASES[name](disk, spark, stack)
        write(case, batch(spark, 0, "snapshot", range(10)))
        disk.fill()
        large = batch(spark, 1, "log", range(10, ROWS))
        with pytest.raises(TailraceError) as error:
            write(case, large)
        assert error.value.retryable, error.value
        disk.make_room()
        case.recover()
        write(case, large)
        assert sorted(case.ids()) == list(range(ROWS))


def batch(spark: SparkSession, number: int, kind: str, ids: range) -> CellBatch:
    draw = random.Random(number)
    op = "r" if kind == "snapshot" else "c"
    step = 500
    cells = []
    for start in range(ids.start, ids.stop, step):
        rows = [
            (op, None, {"id": i, "name": draw.randbytes(ROW_BYTES // 2).hex()})
            for i in range(start, min(start + step, ids.stop))
        ]
        cells.append((kind, changes(SCHEMA, rows, first=start)))
    return cell_batch(spark, number, cells, STREAM)


def write(case: Case, cells: CellBatch) -> None:
    """As a pipeline does it, whose errors are ours."""
    sink = case.sink()
    try:
        sink.write(cells)
    except Exception as error:
        raise _as_ours(error, None, error) from error
    finally:
        sink.close()
