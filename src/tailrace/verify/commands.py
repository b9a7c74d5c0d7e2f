"""`tailrace verify`."""

from __future__ import annotations

import threading
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from tailrace.config.load import load_pipeline
from tailrace.config.sinks import DeltaSettings

#: Exit code if a row differs.
EXIT_DIFFERENT = 1


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--table", "pattern", metavar="PATTERN", help="Only tables whose whole `database.table` name matches."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Differing rows to print of each kind.",
)
@click.option(
    "--show-values", is_flag=True, help="Print the values of differing rows, not only keys and columns."
)
@click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Connections that read the source.",
)
def verify(pipeline_file: Path, pattern: str | None, limit: int, show_values: bool, parallelism: int) -> None:
    """Compare the source with the target, row by row, as of the last committed batch.

    The result is exact even while the source is being written and the pipeline runs. Exit code 1 if any row
    differs.
    """
    pipeline = load_pipeline(pipeline_file)
    pipeline.require_extras()
    # Importing Spark's modules takes a second: report a wrong file first.
    from tailrace.pipeline.run import default_log_file  # noqa: PLC0415
    from tailrace.spark.session import spark_session, stop_session  # noqa: PLC0415
    from tailrace.verify.report import print_report  # noqa: PLC0415
    from tailrace.verify.run import verify as compare  # noqa: PLC0415

    log_file = default_log_file(pipeline)
    spark = spark_session(
        f"{pipeline.settings.name} verify",
        source=pipeline.source.dialect,
        delta=any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
        master=pipeline.settings.master,
        parallelism=pipeline.settings.parallelism,
        log_file=log_file.with_name(f"{log_file.stem}-verify.log"),
        extra_conf=pipeline.settings.spark,
    )
    try:
        with _RowCounter() as counter:
            report = compare(
                pipeline,
                spark,
                pattern=pattern,
                limit=limit,
                parallelism=parallelism,
                on_rows=counter.add,
            )
    finally:
        stop_session(spark)
    print_report(report, Console(highlight=False), show_values=show_values)
    if not report.equal:
        raise SystemExit(EXIT_DIFFERENT)


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
