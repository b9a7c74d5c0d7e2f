"""A YARN cluster of one process (`java/Yarn.java`): Hadoop's own resource and node managers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tailrace.java import java
from tailrace.spark.jars import cached_jars
from tests.support.plugins import JAVA
from tests.support.wait import wait_until

#: Packages, without what Spark's jars have.
_PACKAGES = (
    "org.apache.hadoop:hadoop-client-minicluster:{hadoop}",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",  # Hadoop's cluster asks it for a directory
    "org.bouncycastle:bcpkix-jdk18on:1.82",
)
_PART_OF_SPARK = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")


@contextmanager
def yarn(directory: Path, nodes: int) -> Iterator[Path]:
    """A running cluster.

    Args:
        directory: for its files: logs, and those of containers.
        nodes: node managers, of two cores and 3 GB each.

    Yields:
        The directory of the settings of clients, HADOOP_CONF_DIR.
    """
    spark = Path(pyspark.__path__[0], "jars")
    (api,) = spark.glob("hadoop-client-api-*.jar")
    hadoop = api.stem.rpartition("-")[2]
    packages = [package.format(hadoop=hadoop) for package in _PACKAGES]
    jars = [*cached_jars(f"yarn-{hadoop}", packages, _PART_OF_SPARK, pinned=False), *spark.glob("*.jar")]
    conf = directory / "conf"
    conf.mkdir()
    settings, log = conf / "yarn-site.xml", directory / "yarn.log"
    command = [java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars))]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(JAVA / "Yarn.java"), str(settings), str(nodes)],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: settings.exists() or process.poll() is not None,
            120,
            lambda: log.read_text(errors="replace")[-3000:],
        )
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield conf
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
