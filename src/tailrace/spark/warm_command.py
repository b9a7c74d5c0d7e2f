"""`tailrace warm`: fill the cache, for images of containers and machines without internet."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from tailrace.spark import RELEASE, local_files
from tailrace.spark.class_archive import make_archive
from tailrace.spark.jars import cached_jars
from tailrace.spark.object_stores import s3_jars
from tailrace.spark.session import prefetch_jars


@click.command()
def warm() -> None:
    """Download and prepare now what a first start would: jars of Delta and S3, an archive of Spark's classes.

    Everything is kept in the cache (TAILRACE_CACHE), which may be read-only afterwards.
    """
    for done, work in _STEPS:
        begun = time.monotonic()
        work()
        click.echo(f"{done} ({time.monotonic() - begun:.1f} s)")


_STEPS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("Delta's jars are in the cache", prefetch_jars),
    ("those of S3 too", lambda: cached_jars(*s3_jars(RELEASE))),
    ("the classes that write local files are compiled", local_files.jar),
    ("Spark's classes are archived", make_archive),
)
