"""An archive of Spark's loaded classes, which the next JVM maps instead of loading the classes again.

Loading them is a third of a JVM's cost until its first batch (docs/explanation/performance.md). The JVM
checks that the archive matches its own version and class path, and ignores it otherwise.

`python -m tailrace.spark.class_archive PATH DIRECTORY` writes an archive; DIRECTORY holds temporary files.

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

#: Timeout of writing the archive, seconds.
_TIMEOUT_S = 600
#: Archives that have not been read for this long are deleted, seconds.
_KEPT_S = 30 * 86400


def make_archive() -> None:
    """Write the archive, unless it exists.

    Raises:
        ConfigError: this JVM cannot write one.
    """
    path = archive_path()
    if path.exists():
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch, path.name)
        command = [sys.executable, "-m", __name__, str(made), scratch]
        run = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if run.returncode or not made.exists():
            errors = [line for line in run.stderr.splitlines() if "Error" in line or "Exception" in line]
            raise ConfigError(
                "cannot write the JVM's archive of Spark's classes",
                errors[-1] if errors else f"its process exited with code {run.returncode}",
                "everything works without it, but each start takes some seconds longer",
                code="TR-1207",
            )
        made.rename(path)
    for other in path.parent.glob("*.jsa"):  # of a Spark or a JVM that is no longer used
        if time.time() - other.stat().st_atime > _KEPT_S:
            other.unlink()


def _dump(path: Path, scratch: Path) -> None:
    """Let a JVM do the work of a pipeline and archive its classes when it exits."""
    from tailrace.spark.session import RAW_LOCAL_FILES, spark_session, stop_session  # noqa: PLC0415 - loads much

    # a JVM with more on its class path can use the archive, one with less cannot
    extra = {
        "spark.driver.defaultJavaOptions": f"-XX:+UseParallelGC -XX:ArchiveClassesAtExit={path}",
        **RAW_LOCAL_FILES,
    }
    session = spark_session("classes", delta=True, log_file=scratch / "log", extra_conf=extra)
    _work(session, str(scratch))
    stop_session(session, _TIMEOUT_S)


def _work(session: SparkSession, scratch: str) -> None:
    """Run a stream through Python tasks into a Delta table, and a MERGE."""

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
