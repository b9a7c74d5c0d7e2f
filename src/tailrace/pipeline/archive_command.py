"""The command `tailrace archive`: keeps a server's log in a directory or an object store."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailrace.config.load import load_pipeline
from tailrace.config.option_values import archive_address, byte_count
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError
from tailrace.printable import printable

if TYPE_CHECKING:
    from tailrace.config.options import SourceOptions
    from tailrace.sources.archive.archive import LogArchive
    from tailrace.sources.archive.segment import StoredSegment

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _seconds(_: object, __: object, text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise click.BadParameter("a number with s, m, h or d: 30d")
    return float(match[1]) * _UNITS_S[match[2]]


def _bytes(_: object, __: object, text: str) -> int:
    try:
        return int(byte_count(text))
    except ValueError:
        raise click.BadParameter("bytes > 0, with k, m or g") from None


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="One of the file's `sources`; needed where it has several.")
@click.option(
    "--to",
    "address",
    metavar="DIR|URL",
    help="The archive; default: `source.archive` of the file. Its key is `source.archive-key`.",
)
@click.option(
    "--from",
    "begin",
    type=click.Choice(["earliest", "latest"]),
    help="The log file with which a new archive begins; default: earliest. PostgreSQL's begins at its slot.",
)
@click.option(
    "--segment-size",
    metavar="BYTES",
    default="64m",
    show_default=True,
    callback=_bytes,
    help="Log, with k, m or g, after which a segment is complete.",
)
@click.option(
    "--every",
    metavar="TIME",
    default="60s",
    show_default=True,
    callback=_seconds,
    help="Age, with s, m, h or d, after which a segment is complete.",
)
@click.option(
    "--expire-after",
    metavar="TIME",
    callback=_seconds,
    help="Remove what was archived longer ago, such as 30d; default: keep all.",
)
@click.option("--once", is_flag=True, help="End when the log's end is archived.")
@click.option("--allow-gap", is_flag=True, help="Go on although a part of the log is lost.")
@click.option(
    "--base",
    "keeps_base",
    is_flag=True,
    help="Only keep the captured tables as they are now, for `tailrace restore`; beside a running archiver.",
)
@click.option("--list", "lists", is_flag=True, help="Only print what the archive has, and check all of it.")
def archive(
    pipeline_file: Path,
    *,
    source: str | None,
    address: str | None,
    begin: str | None,
    segment_size: int,
    every: float,
    expire_after: float | None,
    once: bool,
    allow_gap: bool,
    keeps_base: bool,
    lists: bool,
) -> None:
    """Keep the log of the pipeline's server in an archive, until it is stopped (Ctrl-C).

    It reads the log by one connection: MySQL's and MariaDB's with all databases, PostgreSQL's with the
    tables of the publication. Pipelines read the archive with `source.archive` where the server no longer
    has what they need. After a stop or a crash it goes on where the archive ends.
    """
    options = load_pipeline(pipeline_file, source).source
    if options.dialect not in ("mysql", "mariadb", "postgresql"):
        raise ConfigError(
            f"the log of `{options.dialect}` cannot be archived",
            "`tailrace archive` keeps the logs of MySQL, MariaDB and PostgreSQL",
            "keep the server's own archived log for as long as streams may need it",
            code="TR-8218",
        )
    where, key = _archive_of(options, address)
    is_postgres = options.dialect == "postgresql"
    if is_postgres and begin is not None:
        raise click.UsageError(
            "--from is for MySQL and MariaDB: PostgreSQL keeps no log before there is a slot"
        )
    if lists:
        _list(_opened(options, where, key))
        return
    if keeps_base:
        _keep_base(options, where, key)
        return
    from tailrace.pipeline.signals import stop_on_signals  # noqa: PLC0415
    from tailrace.sources.archive.store import Store  # noqa: PLC0415
    from tailrace.sources.archive.writing import ArchivingLimits  # noqa: PLC0415

    def say(segment: StoredSegment) -> None:
        click.echo(printable(_line(segment)))

    limits = ArchivingLimits(segment_bytes=segment_size, seconds=every, expire_s=expire_after)
    with Store(where).locked(), stop_on_signals(lambda: click.echo("stopping", err=True)) as stop:
        if is_postgres:
            from tailrace.sources.postgres.archiving.archiver import WalArchiver  # noqa: PLC0415
            from tailrace.sources.postgres.replication.archive.segment import WalArchive  # noqa: PLC0415

            archive = WalArchive(where, key, create=True)
            click.echo(f"replication slot {archive.slot}")
            WalArchiver(options, archive, limits, allow_gap=allow_gap, on_segment=say).run(stop, once=once)
            return
        from tailrace.sources.archive.archive import Archive  # noqa: PLC0415
        from tailrace.sources.mysql.start.archiving import BinlogArchiver  # noqa: PLC0415

        BinlogArchiver(
            options,
            Archive(where, key, create=True),
            limits,
            begin=begin or "earliest",
            allow_gap=allow_gap,
            on_segment=say,
        ).run(stop, once=once)


def _opened(options: SourceOptions, where: str, key: Secret | None) -> LogArchive[Any]:
    """The archive of a source."""
    if options.dialect == "postgresql":
        from tailrace.sources.postgres.replication.archive.segment import WalArchive  # noqa: PLC0415

        return WalArchive(where, key)
    from tailrace.sources.archive.archive import Archive  # noqa: PLC0415

    return Archive(where, key)


def _keep_base(options: SourceOptions, where: str, key: Secret | None) -> None:
    if options.dialect == "postgresql":
        from tailrace.sources.postgres.archiving import keeping  # noqa: PLC0415
        from tailrace.sources.postgres.replication.archive.segment import WalArchive  # noqa: PLC0415

        base = keeping.keep_base(options, WalArchive(where, key))
        position = base.position["lsn"]
    else:
        from tailrace.pipeline.restore import keep_base  # noqa: PLC0415
        from tailrace.sources.archive.archive import Archive  # noqa: PLC0415

        base = keep_base(options, Archive(where, key, create=True))
        position = f"{base.position['file']}:{base.position['pos']}"
    rows = sum(table.rows for table in base.tables)
    click.echo(printable(f"base {base.number}: {len(base.tables)} tables, {rows} rows as of {position}"))


def _archive_of(options: SourceOptions, address: str | None) -> tuple[str, Secret | None]:
    """The archive's address and key."""
    if address is None and options.archive is None:
        raise click.UsageError("give --to, or `source.archive` in the file")
    if address is None:
        assert options.archive is not None
        return options.archive, options.archive_key
    try:
        return archive_address(address), options.archive_key
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None


def _line(segment: StoredSegment) -> str:
    last = datetime.fromtimestamp(segment.last_us / 1_000_000, UTC) if segment.last_us else None
    upto = f", up to {last:%Y-%m-%dT%H:%M:%S.%fZ}" if last else ""
    start, end = segment.bounds
    return (
        f"segment {segment.number}: {start} to {end.rpartition(':')[2]}, "
        f"{segment.transactions} transactions, {segment.size} bytes{upto}"
    )


def _list(found: LogArchive[Any]) -> None:
    for segment in found.segments:
        if segment.begins and segment.number:
            click.echo("another section:")
        with found.verified(segment):
            click.echo(printable(_line(segment)))
    click.echo(json.dumps({"segments": len(found.segments), "bytes": sum(s.size for s in found.segments)}))
