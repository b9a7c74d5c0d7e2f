"""The engine on one page: what `tailrace run` does, in the order in which data meets it.

file -> settings        config.load
server fit?             sources.preflight
Spark                   spark.session
source -> batches       spark.source, driven by spark.query
batches -> rows         spark.transform, by the file's rules
rows -> targets         sinks, named by transform.route
progress                observe
"""

from __future__ import annotations

import threading
from pathlib import Path

from tailrace.cache import cache_dir
from tailrace.config.model import Pipeline
from tailrace.config.sinks import DeltaSettings
from tailrace.pipeline.supervisor import Supervisor, Watcher, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.sources import registry
from tailrace.spark.session import spark_session, stop_session


def run(pipeline: Pipeline, watcher: Watcher, stop: threading.Event, log_file: Path | None = None) -> None:
    """Run a pipeline until everything is read (`trigger: available-now`) or `stop` is set.

    Args:
        pipeline: what to run.
        watcher: is told how it goes.
        stop: set it to stop after the running batch.
        log_file: where Spark's warnings go; None: to the terminal.

    Raises:
        PreflightError: the server is not set up for capture.
        TailraceError: why the stream cannot go on.
    """
    registry.source(pipeline.source).require()
    settings = pipeline.settings
    session = spark_session(
        settings.name,
        delta=any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
        master=settings.master,
        parallelism=settings.parallelism,
        log_file=log_file,
        extra_conf=settings.spark,
    )
    sink = make_sinks(pipeline)
    try:
        Supervisor(lambda: read_cells(session, pipeline), pipeline, sink, watcher, stop).run()
    finally:
        sink.close()
        stop_session(session)


def default_log_file(pipeline: Pipeline) -> Path:
    """Beside the checkpoint where that is local, else in the cache."""
    if "://" in pipeline.checkpoint:
        return cache_dir("log") / f"{pipeline.settings.name}.log"
    return Path(pipeline.checkpoint.removeprefix("file:")).parent / "tailrace.log"
