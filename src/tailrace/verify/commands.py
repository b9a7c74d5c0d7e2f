"""`tailrace verify`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from tailrace.config.load import load_pipeline
from tailrace.config.sinks import DeltaSettings
from tailrace.printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Exit code if a row differs.
EXIT_DIFFERENT = 1


@click.command(context_settings={"show_default": True})
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--table", "pattern", metavar="PATTERN", help="Only tables whose whole `database.table` name matches."
)
@click.option("--limit", type=click.IntRange(1), default=20, help="Differing rows to print of each kind.")
@click.option(
    "--show-values", is_flag=True, help="Print the values of differing rows, not only keys and columns."
)
@click.option("--parallelism", type=click.IntRange(1), default=4, help="Connections that read the source.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Read the target with the pipeline's Spark master; default: a local Spark, which takes nothing from "
    "a running pipeline.",
)
def verify(
    pipeline_file: Path,
    *,
    pattern: str | None,
    limit: int,
    show_values: bool,
    parallelism: int,
    cluster: bool,
) -> None:
    """Compare the source with the target, row by row, as of the last committed batch.

    The result is exact even while the source is being written and the pipeline runs. Exit code 1 if any row
    differs.
    """
    pipeline = load_pipeline(pipeline_file)
    pipeline.require_extras()
    # Importing Spark's modules takes a second: report a wrong file first.
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from tailrace.pipeline.run import default_log_file  # noqa: PLC0415
    from tailrace.pipeline.signals import end_on_signals  # noqa: PLC0415
    from tailrace.spark.session import local_master, spark_session, stop_session  # noqa: PLC0415
    from tailrace.spark.task_errors import missing_package, parse_error  # noqa: PLC0415
    from tailrace.verify.report import print_report  # noqa: PLC0415
    from tailrace.verify.run import verify as compare  # noqa: PLC0415

    settings = pipeline.settings
    log_file = default_log_file(pipeline)
    with end_on_signals("interrupted before the comparison was complete; nothing was changed"):
        spark = spark_session(
            f"{settings.name} verify",
            source=pipeline.source.dialect,
            delta=any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
            master=settings.master if cluster else local_master(settings.parallelism),
            parallelism=settings.parallelism,
            log_file=log_file.with_name(f"{log_file.stem}-verify.log"),
            extra_conf=settings.spark,
        )
        try:
            with _cluster_watched(spark), _RowCounter() as counter:
                report = compare(
                    pipeline,
                    spark,
                    pattern=pattern,
                    limit=limit,
                    parallelism=parallelism,
                    on_rows=counter.add,
                )
        except (PySparkException, Py4JJavaError) as error:
            ours = parse_error(str(error)) or missing_package(str(error))
            if ours is None:
                raise
            raise ours from error
        finally:
            stop_session(spark)
    print_report(report, Console(highlight=False), show_values=show_values)
    if not report.equal:
        raise SystemExit(EXIT_DIFFERENT)


@contextmanager
def _cluster_watched(spark: SparkSession) -> Iterator[None]:
    """Tell the user while the comparison waits for executors."""
    from tailrace.pipeline.cluster_watch import LOOK_S, ClusterWatch  # noqa: PLC0415 - see `verify`

    watch = ClusterWatch(spark, lambda text: click.echo(printable(text), err=True))
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            watch.look()

    thread = threading.Thread(target=look, name="cluster", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _RowCounter:
    """A progress line with the number of rows, if standard error is a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("comparing: {task.completed:,.0f} source rows read"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("")
        self._lock = threading.Lock()

    def __enter__(self) -> _RowCounter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def add(self, rows: int) -> None:
        """Add `rows` to the count."""
        with self._lock:
            self._progress.advance(self._task, rows)
