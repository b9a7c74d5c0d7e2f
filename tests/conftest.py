"""Fixtures shared by all tests: real servers, started when the first test asks for them."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.devservers import MySqlServer, start_mysql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the one Spark of a test run is started with: two cores, a failed task tried again (the tests of
#: replay need that), and short waits.
_SPARK_CONF = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    """The MySQL server all tests share. Who changes a global setting puts it back."""
    with start_mysql() as server:
        yield server


@pytest.fixture
def database(mysql: MySqlServer) -> Iterator[str]:
    """The name of a fresh, empty database, dropped after the test."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    mysql.execute(f"CREATE DATABASE `{name}`")
    yield name
    mysql.execute(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session all tests share, with Delta."""
    from tailrace.spark.session import spark_session

    directory = tmp_path_factory.mktemp("spark")
    conf = {
        **_SPARK_CONF,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }
    # Read by Spark when it starts its JVM, whoever builds the session.
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        " ".join(f"--conf {key}={value}" for key, value in conf.items()) + " pyspark-shell"
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # Workers that may not write bytecode compile every module at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    session = spark_session("tailrace-tests", delta=True)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
