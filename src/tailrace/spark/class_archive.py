"""Spark's classes as a JVM has loaded them, in a file: the next JVM maps it instead of loading them anew.

That is a third of what a JVM costs until its first batch (docs/explanation/performance.md). The JVM looks
itself at whether the file is of its own version and class path, and does without it if not.

`python -m tailrace.spark.class_archive` makes the file.

Source: JDK, "Class Data Sharing" (dynamic archives, JEP 350).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import ConfigError
from tailrace.spark.archive import archive_path
from tailrace.spark.jvm import map_in_arrow

#: Longest time that making the file may take, seconds.
_PATIENCE_S = 600
#: How long a file is kept that nobody reads, seconds.
_KEPT_S = 30 * 86400


def make_archive() -> None:
    """Make the file, unless it is there.

    Raises:
        ConfigError: this JVM cannot.
    """
    path = archive_path()
    if path.exists():
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch, path.name)
        command = [sys.executable, "-m", __name__, str(made), scratch]
        run = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        if run.returncode or not made.exists():
            said = [line for line in run.stderr.splitlines() if "Error" in line or "Exception" in line]
            raise ConfigError(
                "the JVM's archive of Spark's classes could not be made",
                said[-1] if said else f"its process ended with {run.returncode}",
                "everything works without it, each start takes some seconds longer",
            )
        made.rename(path)
    for other in path.parent.glob("*.jsa"):  # of a Spark or a JVM that is not used any more
        if time.time() - other.stat().st_atime > _KEPT_S:
            other.unlink()


def _dump(path: Path, scratch: Path) -> None:
    """Have a JVM do what a pipeline does, and write down its classes as it ends."""
    from tailrace.spark.session import (  # noqa: PLC0415 - it asks this module for the options
        spark_session,
        stop_session,
    )

    extra = {"spark.driver.defaultJavaOptions": f"-XX:+UseParallelGC -XX:ArchiveClassesAtExit={path}"}
    session = spark_session("classes", delta=True, log_file=scratch / "log", extra_conf=extra)
    _work(session, str(scratch))
    stop_session(session, _PATIENCE_S)


def _work(session: SparkSession, scratch: str) -> None:
    """A stream by Python tasks into a Delta table, and a MERGE."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def write(batch: DataFrame, _: int) -> None:
        kept = map_in_arrow(batch, same, batch.schema).persist()
        kept.groupBy("id").count().collect()
        kept.write.format("delta").mode("append").save(f"{scratch}/table")
        kept.unpersist()

    session.range(1000).write.parquet(f"{scratch}/source")
    stream = session.readStream.schema("id LONG").parquet(f"{scratch}/source").writeStream
    query = stream.foreachBatch(write).option("checkpointLocation", f"{scratch}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    session.range(500, 1500).createTempView("changes")
    table = f"delta.`{scratch}/table`"
    session.sql(
        f"MERGE INTO {table} t USING changes s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    session.sql(f"SELECT count(*) FROM {table}").collect()


if __name__ == "__main__":
    _dump(*(Path(argument) for argument in sys.argv[1:]))
