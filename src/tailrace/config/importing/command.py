"""The command `tailrace import`: another tool's configuration as a pipeline file, on standard output."""

from __future__ import annotations

from pathlib import Path

import click

from tailrace.config.importing import canal, debezium, debezium_offsets, flink_cdc, flink_sql, seatunnel
from tailrace.config.importing.draft import Draft
from tailrace.config.importing.given import read_bytes, read_text
from tailrace.config.load import parse_pipelines
from tailrace.errors import ConfigError
from tailrace.printable import printable

_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
_strict = click.option(
    "--strict", is_flag=True, help="Fail, and print no file, if a setting has no equivalent."
)


@click.group("import")
def command() -> None:
    """Print a pipeline file that does what another tool's configuration asks for.

    Its comments say what each setting was called, what must be set before it runs, what has no equivalent,
    and what is needless here. Passwords become references to environment variables.
    """


@command.command("debezium")
@_file
@click.option(
    "--offsets",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The stopped connector's offset: the pipeline goes on there, without a snapshot. What Kafka Connect "
    "answers to GET /connectors/NAME/offsets, or the file of Debezium Server.",
)
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="The Kafka brokers, which the worker knows.")
@_strict
def from_debezium(file: Path, offsets: Path | None, bootstrap_servers: str | None, *, strict: bool) -> None:
    """Take over a Debezium connector: JSON of Kafka Connect, or .properties (also of Debezium Server)."""
    made = debezium.draft(debezium.read(read_text(file), file.stem), bootstrap_servers)
    if offsets is not None:
        debezium_offsets.start(made, read_bytes(offsets), made.sink["topic-prefix"].value)
    _print(made, "tailrace import debezium", strict=strict)


@command.command("flink-cdc")
@_file
@_strict
def from_flink_cdc(file: Path, *, strict: bool) -> None:
    """Take over a pipeline of Flink CDC (YAML), or sources in Flink SQL (.sql, CREATE TABLE ... WITH)."""
    read = flink_sql.draft if file.suffix.lower() == ".sql" else flink_cdc.draft
    _print(read(read_text(file), file.stem), "tailrace import flink-cdc", strict=strict)


@command.command("seatunnel")
@_file
@_strict
def from_seatunnel(file: Path, *, strict: bool) -> None:
    """Take over a job of SeaTunnel with a source MySQL-CDC or Postgres-CDC: HOCON or JSON."""
    _print(seatunnel.draft(read_text(file), file.stem), "tailrace import seatunnel", strict=strict)


@command.command("canal")
@_file
@click.option(
    "--server",
    type=click.Path(path_type=Path, dir_okay=False),
    help="canal.properties, which has what all instances share, such as the brokers.",
)
@click.option(
    "--position",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The stopped instance's meta.dat: the pipeline begins at its position.",
)
@_strict
def from_canal(file: Path, server: Path | None, position: Path | None, *, strict: bool) -> None:
    """Take over an instance of Canal: its instance.properties."""
    name = file.absolute().parent.name or file.stem
    of_server = None if server is None else read_text(server)
    made = canal.draft(canal.read(read_text(file), of_server), name)
    if position is not None:
        canal.start(made, read_text(position))
    _print(made, "tailrace import canal", strict=strict)


def _print(made: Draft, what: str, *, strict: bool) -> None:
    text = made.text(what)
    try:
        parse_pipelines(text)
    except ConfigError as error:
        raise ConfigError(
            f"a setting has a value that a pipeline cannot have: {error.message}",
            error.detail,
            error.hint,
            code="TR-1351",
        ) from None
    if strict:
        made.require_complete()
    click.echo(text, nl=False)
    if made.missing:
        count = len(made.missing)
        click.echo(
            f"{count} {'setting has' if count == 1 else 'settings have'} no equivalent: "
            + ", ".join(dict.fromkeys(printable(note.name) for note in made.missing)),
            err=True,
        )
