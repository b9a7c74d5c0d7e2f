"""The Spark session that all tests share."""

import subprocess
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tailrace.java import java
from tailrace.spark.archive import archive_options
from tailrace.spark.jvm import register_source


def test_spark_writes_and_reads_delta(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3


def test_spark_tries_a_failed_task_again(spark: SparkSession, tmp_path: Path) -> None:
    def fail_once(rows):  # type: ignore[no-untyped-def]
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError
        return [sum(1 for _ in rows)]

    assert spark.sparkContext.parallelize(range(4), 1).mapPartitions(fail_once).collect() == [4]


def test_workers_take_pyspark_from_its_files(spark: SparkSession) -> None:
    """Each process would compile what it takes from a zip file."""

    def place(_):  # type: ignore[no-untyped-def]
        import py4j
        import pyspark

        return [module.__file__ for module in (pyspark, py4j)]

    found = spark.sparkContext.parallelize([0], 1).mapPartitions(place).collect()
    assert [path for path in found if not Path(path).is_file()] == []


def test_source_is_registered_with_each_session_whichever_is_active(spark: SparkSession) -> None:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tailrace_test"

    sessions = [spark, spark.newSession(), spark.newSession()]
    active = SparkSession.getActiveSession()
    for session in (*sessions, *sessions):
        register_source(session, Source)
        manager = session._jsparkSession.sessionState().dataSourceManager()  # type: ignore[attr-defined]
        assert manager.dataSourceExists("tailrace_test")
        assert SparkSession.getActiveSession() == active


def test_jvm_takes_the_archive_of_classes_that_setup_has_made(spark: SparkSession) -> None:
    options = archive_options()
    assert options
    path = spark._jvm.java.lang.System.getProperty("java.class.path")  # type: ignore[union-attr]
    # with -Xshare:on a JVM ends if the archive does not fit
    said = ["-Xshare:on", "-XX:+UseParallelGC", "-cp", path, "-version"]
    found = subprocess.run([java(), *options, *said], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
