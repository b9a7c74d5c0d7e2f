"""The command `tailrace restore`: a table as of a time, as a Parquet file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from tailrace.config.load import load_pipeline
from tailrace.config.moment import microseconds
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.private import open_private


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="One of the file's `sources`; needed where it has several.")
@click.option(
    "--table",
    "name",
    metavar="TABLE",
    required=True,
    help="The table, as `database.table`, of PostgreSQL `schema.table`.",
)
@click.option(
    "--at",
    "moment",
    metavar="TIME",
    required=True,
    help="Transactions that were committed before it count: 2026-01-31T12:00:00Z, or epoch milliseconds.",
)
@click.option(
    "--to",
    "target",
    metavar="FILE.PARQUET",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write, for this user only; it must not exist.",
)
def restore(pipeline_file: Path, *, source: str | None, name: str, moment: str, target: Path) -> None:
    """Write the rows that a table had at a time (MySQL, MariaDB, PostgreSQL) into a Parquet file.

    They are made from a base of the archive `source.archive` and the log from then on, which is read from the
    archive or the server; on MySQL and MariaDB also from the rows that it has now and the log since then. No
    table of the server is written to.
    """
    options = load_pipeline(pipeline_file, source).source
    if options.dialect not in ("mysql", "mariadb", "postgresql"):
        raise ConfigError(
            f"tables of `{options.dialect}` cannot be restored",
            "`tailrace restore` reads the logs of MySQL, MariaDB and PostgreSQL",
            "restore it by the database's own means: Oracle by RMAN",
            code="TR-8210",
        )
    try:
        at_us = microseconds(moment)
    except ValueError:
        raise click.BadParameter("2026-01-31T12:00:00Z or epoch milliseconds", param_hint="--at") from None
    if at_us > time.time_ns() // 1000:
        raise click.BadParameter("a time that has passed", param_hint="--at")
    if "." not in name:
        raise click.BadParameter("database.table, of PostgreSQL schema.table", param_hint="--table")
    if target.exists():
        raise click.BadParameter("the file exists", param_hint="--to")
    import pyarrow as pa  # noqa: PLC0415 - a wrong command line is reported first
    import pyarrow.parquet as pq  # noqa: PLC0415

    if options.dialect == "postgresql":
        from tailrace.pipeline.postgres_restore import restored  # noqa: PLC0415
    else:
        from tailrace.pipeline.restore import restored  # noqa: PLC0415

    found = restored(options, TableId.parse(name), at_us)
    schema = pa.schema(list(found.schema.arrow))
    new = target.with_name(f"{target.name}.{os.getpid()}.new")
    count = 0
    try:
        with (
            open(new, "xb", opener=open_private) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for rows in found.rows:
                writer.write_batch(pa.RecordBatch.from_arrays(rows.flatten(), schema=schema))
                count += len(rows)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    click.echo(printable(f"{count} rows of {name} as of {found.position}, from {found.source}: {target}"))
