"""The Spark session that a pipeline's settings ask for."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.sinks import DeltaSettings, FileSettings, SinkSettings
from tailrace.spark.checkpoint import is_local
from tailrace.spark.launch import SparkLog
from tailrace.spark.session import StartingSession, begin_session


def begin_session_of(
    pipeline: Pipeline, name: str, log_file: Path | SparkLog | None, *, shared: bool = False
) -> StartingSession:
    """Begin to start a Spark session set up for a pipeline.

    Args:
        pipeline: the pipeline.
        name: the application's name.
        log_file: the file for Spark's warnings; None: the terminal.
        shared: whether several streams run in it, which take turns.
    """
    settings = pipeline.settings
    return begin_session(
        name,
        source=pipeline.source.dialect,
        delta=any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
        paths=pipeline.paths,
        master=settings.master,
        parallelism=settings.parallelism,
        log_file=log_file,
        extra_conf={**({"spark.scheduler.mode": "FAIR"} if shared else {}), **settings.spark},
        brief=_is_brief(pipeline) and not shared,  # a stream that joins it later may go on for ever
    )


def _is_brief(pipeline: Pipeline) -> bool:
    """Whether a pipeline ends, and its rows do not pass through Spark's JVM."""
    ends = pipeline.settings.trigger is TriggerMode.AVAILABLE_NOW
    return ends and not any(map(_has_rows, pipeline.sinks))


def _has_rows(sink: SinkSettings) -> bool:
    """Whether a sink's rows pass through Spark's JVM, rather than from Python's tasks to the target."""
    match sink:
        case DeltaSettings():
            return not is_local(sink.path)
        case FileSettings():
            return True
        case _:
            return False


def session_of(
    pipeline: Pipeline, name: str, log_file: Path | SparkLog | None, *, shared: bool = False
) -> SparkSession:
    """The session that `begin_session_of` begins to start."""
    return begin_session_of(pipeline, name, log_file, shared=shared).session()
