"""`tailrace verify` and `tailrace repair`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from tailrace.pipeline.file import load_pipeline
from tailrace.printable import printable
from tailrace.repetition import repeatedly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.config.model import Pipeline
    from tailrace.verify.portion import ComparedPart

#: Exit code if a row differs.
EXIT_DIFFERENT = 1
#: Connections that read the source.
_CONNECTIONS = 4
#: What an interrupted command says.
_INTERRUPTED = {
    "verify": "interrupted before the comparison was complete; nothing was changed",
    "repair": "interrupted; the pipeline still reads tables again that were requested",
}


@click.command(context_settings={"show_default": True})
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="One of the file's `sources`; needed where it has several.")
@click.option(
    "--table", "pattern", metavar="PATTERN", help="Only tables whose whole `database.table` name matches."
)
@click.option(
    "--key-range",
    metavar="FIRST..LAST",
    help="Only rows whose key begins with a whole number from FIRST to LAST; one of them may be left out.",
)
@click.option(
    "--sample",
    metavar="PERCENT",
    help="Only about that share of each table's rows, as 1%: ranges of keys that are chosen anew each time.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with a comparison that was interrupted: what was found equal is not read again.",
)
@click.option(
    "--in-parts",
    is_flag=True,
    help="Compare tables of 20 million rows and more in ranges of keys, each as of a batch of its own: for "
    "targets that are databases.",
)
@click.option("--limit", type=click.IntRange(1), default=20, help="Differing rows to print of each kind.")
@click.option(
    "--show-values", is_flag=True, help="Print the values of differing rows, not only keys and columns."
)
@click.option(
    "--parallelism",
    type=click.IntRange(1),
    default=_CONNECTIONS,
    help="Tasks that read the source at the same time.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Read source and target with the pipeline's Spark master; default: a local Spark, which takes "
    "nothing from a running pipeline.",
)
def verify(
    pipeline_file: Path,
    *,
    source: str | None,
    pattern: str | None,
    key_range: str | None,
    sample: str | None,
    resume: bool,
    in_parts: bool,
    limit: int,
    show_values: bool,
    parallelism: int,
    cluster: bool,
) -> None:
    """Compare the source with the target, row by row, as of the last committed batch.

    The result is exact even while the source is being written and the pipeline runs. Exit code 1 if any row
    differs.
    """
    portion = _portion(key_range, sample)
    if portion is not None and (resume or in_parts):
        given_too = "--resume" if resume else "--in-parts"
        raise click.UsageError(f"give {given_too} without --key-range and --sample: it is for whole tables")
    pipeline = load_pipeline(pipeline_file, source)
    pipeline.require_extras()
    from tailrace.verify.in_parts import verify_whole  # noqa: PLC0415 - see `_spark`
    from tailrace.verify.progress import ComparisonView  # noqa: PLC0415
    from tailrace.verify.report import print_report  # noqa: PLC0415
    from tailrace.verify.run import verify as compare  # noqa: PLC0415

    with (
        _spark(pipeline, "verify", connections=parallelism, cluster=cluster) as spark,
        ComparisonView(Console(stderr=True)) as view,
    ):
        given: dict[str, Any] = {
            "pattern": pattern,
            "limit": limit,
            "parallelism": parallelism,
            "progress": view,
        }
        if portion is None:
            report = verify_whole(pipeline, spark, resume=resume, in_parts=in_parts, **given)
        else:
            report = compare(pipeline, spark, portion=portion, **given)
    print_report(report, Console(highlight=False), show_values=show_values)
    if not report.equal:
        raise SystemExit(EXIT_DIFFERENT)


@click.command(context_settings={"show_default": True})
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="One of the file's `sources`; needed where it has several.")
@click.argument("tables", nargs=-1, metavar="[TABLE...]")
@click.option("--dry-run", is_flag=True, help="Only compare, and say what would be read again.")
@click.option(
    "--patience",
    type=click.FloatRange(0),
    default=60,
    help="Seconds that the pipeline may take to begin. Give more than its trigger's interval.",
)
def repair(
    pipeline_file: Path, tables: tuple[str, ...], *, source: str | None, dry_run: bool, patience: float
) -> None:
    """Compare source and target, have what differs read again in place, and compare once more.

    TABLE is `database.table` (PostgreSQL: schema.table); by default, all tables. The pipeline makes the
    correction: it must run, or be started while this command waits. Exit code 1 if any row differs in the
    end, or with `--dry-run` now.
    """
    pipeline = load_pipeline(pipeline_file, source)
    pipeline.require_extras()
    from tailrace.verify.progress import ComparisonView  # noqa: PLC0415 - see `_spark`
    from tailrace.verify.repair import compared, tables_to_read  # noqa: PLC0415
    from tailrace.verify.repair import repair as correct  # noqa: PLC0415
    from tailrace.verify.report import print_report  # noqa: PLC0415

    console = Console(highlight=False)
    with _spark(pipeline, "repair", connections=_CONNECTIONS) as spark:
        with ComparisonView(Console(stderr=True)) as view:
            report = compared(pipeline, spark, tables, progress=view, parallelism=_CONNECTIONS)
        print_report(report, console, show_values=False)
        if not report.equal and dry_run:
            names = ", ".join(map(printable, tables_to_read(report)))
            click.echo(f"would be read again: {names}")
        elif not report.equal:
            report = correct(
                pipeline, spark, report, patience_s=patience, say=click.echo, parallelism=_CONNECTIONS
            )
            print_report(report, console, show_values=False)
    if not report.equal:
        raise SystemExit(EXIT_DIFFERENT)


def _portion(keys: str | None, sample: str | None) -> ComparedPart | None:
    """The part of the rows that options ask for."""
    from tailrace.verify.portion import Keys, Sample  # noqa: PLC0415 - needs Arrow

    if keys is not None and sample is not None:
        raise click.UsageError("give --key-range or --sample, not both")
    try:
        return Sample.parse(sample) if sample is not None else None if keys is None else Keys.parse(keys)
    except ValueError as error:
        hint = "--key-range" if sample is None else "--sample"
        raise click.BadParameter(str(error), param_hint=hint) from None


@contextmanager
def _spark(
    pipeline: Pipeline, command: str, *, connections: int, cluster: bool = False
) -> Iterator[SparkSession]:
    """A session for a comparison, ended afterwards; Spark's errors become ours where they hold one."""
    # Importing Spark's modules takes a second: a wrong file is reported first.
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from tailrace.pipeline.run import default_log_file  # noqa: PLC0415
    from tailrace.pipeline.signals import end_on_signals  # noqa: PLC0415
    from tailrace.spark import log_records  # noqa: PLC0415
    from tailrace.spark.session import stop_session  # noqa: PLC0415
    from tailrace.spark.task_errors import missing_package, parse_error  # noqa: PLC0415
    from tailrace.verify.session import comparing_session  # noqa: PLC0415

    beside = default_log_file(pipeline)
    log_file = beside.with_name(f"{beside.stem}-{command}.log")
    # without a handler, py4j makes one that prints, if a call fails while the JVM ends
    logging.basicConfig(level=logging.WARNING, handlers=[log_records.handler(log_file, None)])
    with end_on_signals(_INTERRUPTED[command]):
        spark = comparing_session(
            pipeline,
            command,
            connections=connections,
            log_file=log_file,
            cluster=cluster,
        )
        try:
            with _cluster_watched(spark):
                yield spark
        except (PySparkException, Py4JJavaError) as error:
            ours = parse_error(str(error)) or missing_package(str(error))
            if ours is None:
                raise
            raise ours from error
        finally:
            stop_session(spark)


@contextmanager
def _cluster_watched(spark: SparkSession) -> Iterator[None]:
    """Tell the user while the comparison waits for executors."""
    from tailrace.pipeline.cluster_watch import LOOK_S, ClusterWatch  # noqa: PLC0415 - see `verify`

    watch = ClusterWatch(spark, lambda text: click.echo(printable(text), err=True))
    with repeatedly(watch.look, LOOK_S):
        yield
