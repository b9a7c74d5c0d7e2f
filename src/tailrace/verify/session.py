"""The Spark session of a process that compares tables, and does nothing else."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.config.sinks import DeltaSettings
from tailrace.machine import cores
from tailrace.spark.session import local_master, spark_session


def comparing_session(
    pipeline: Pipeline, command: str, *, connections: int, log_file: Path | None, cluster: bool = False
) -> SparkSession:
    """A session for comparisons of `pipeline`.

    Args:
        pipeline: the pipeline.
        command: what the session is for, behind the pipeline's name.
        connections: how many tasks read the source at the same time.
        log_file: see `begin_session`.
        cluster: whether it is one of the pipeline's master; else it is a local one.
    """
    settings = pipeline.settings
    master = settings.master
    conf = {"spark.scheduler.mode": "FAIR"}  # neither source nor targets wait until the others are read
    if not cluster:
        # tasks that read the source mostly wait for its server: they take no core from those of targets
        parallelism = settings.parallelism or cores()
        master = local_master(parallelism + connections)
        conf["spark.default.parallelism"] = str(parallelism)
    return spark_session(
        f"{settings.name} {command}",
        source=pipeline.source.dialect,
        delta=any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
        paths=pipeline.paths,
        master=master,
        parallelism=settings.parallelism,
        log_file=log_file,
        extra_conf={**conf, **settings.spark},
    )
