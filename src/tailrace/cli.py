"""The command line. Exit codes are constants below. An error prints a message; its traceback is logged."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from tailrace import __version__, extras
from tailrace.config.model import Pipeline
from tailrace.config.option_values import byte_count
from tailrace.config.sinks import (
    sink_names,
)
from tailrace.control.client.completion import complete_name_or_file
from tailrace.control.client.connection import client_options
from tailrace.errors import (
    ConfigError,
    PositionLostError,
    PreflightError,
    TablesParkedError,
    TailraceError,
    TransientSourceError,
)
from tailrace.machine import cores
from tailrace.pipeline.file import load_pipeline, load_pipelines
from tailrace.printable import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailrace.control.client.connection import ApiClient

#: Done, or stopped on request.
EXIT_DONE = 0
#: Failed, or `verify` found differences.
EXIT_FAILED = 1
#: The command line or the pipeline file is wrong. Click uses the same for usage errors.
EXIT_CONFIG = 2
#: The server is not set up for capture, or `check` found another precondition that is not met.
EXIT_PREFLIGHT = 3
#: The source is out of reach, or its log no longer holds what the stream needs.
EXIT_SOURCE_LOST = 4
#: Everything is read, except for tables that are parked.
EXIT_PARKED = 5

#: Time between two looks of `status --watch`, seconds.
_WATCH_S = 2.0

#: Commands of other modules, loaded when they are called: name, module, attribute, extra that brings them.
_ELSEWHERE = (
    ("verify", "tailrace.control.client.comparison_commands", "verify", None),
    ("repair", "tailrace.control.client.comparison_commands", "repair", None),
    ("offsets", "tailrace.control.client.offset_commands", "offsets", None),
    ("quarantine", "tailrace.pipeline.quarantine_command", "quarantine", None),
    ("signal", "tailrace.pipeline.signal_command", "signal", None),
    ("import", "tailrace.config.importing.command", "command", None),
    ("archive", "tailrace.pipeline.archive_command", "archive", None),
    ("warm", "tailrace.spark.warm_command", "warm", None),
    ("restore", "tailrace.pipeline.restore_command", "restore", None),
    ("serve", "tailrace.control.serve_command", "serve", "server"),
    ("apply", "tailrace.control.client.commands", "apply", None),
    ("get", "tailrace.control.client.commands", "get", None),
    ("describe", "tailrace.control.client.commands", "describe", None),
    ("logs", "tailrace.control.client.commands", "logs", None),
    ("pause", "tailrace.control.client.commands", "pause", None),
    ("cancel", "tailrace.control.client.commands", "cancel", None),
    ("retry", "tailrace.control.client.commands", "retry", None),
    ("delete", "tailrace.control.client.commands", "delete", None),
    ("export", "tailrace.control.client.commands", "export", None),
    ("token", "tailrace.control.client.commands", "token", None),
    ("job", "tailrace.control.client.job_commands", "job", None),
    ("demo", "tailrace_dev.demo.commands", "demo", "dev"),
    ("dev", "tailrace_dev.servers.commands", "dev", "dev"),
)

_log = logging.getLogger("tailrace")
# Without a log file, tracebacks are dropped rather than shown in the terminal.
_log.addHandler(logging.NullHandler())


class _Commands(click.Group):
    """Commands of this module and of others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        installed = [name for name, *_, extra in _ELSEWHERE if extras.is_installed(extra)]
        return sorted([*super().list_commands(ctx), *installed])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`."""
        for name, module, attribute, extra in _ELSEWHERE:
            if name == cmd_name:
                extras.require(extra, f"command `{name}`")
                command = getattr(importlib.import_module(module), attribute)
                assert isinstance(command, click.Command)
                return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="tailrace")
def cli() -> None:
    """Change data capture as a native Spark stream: tables and their changes, exactly once."""


_pipeline_argument = click.argument(
    "pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False)
)

_pipeline_or_name_argument = click.argument(
    "pipeline_file",
    metavar="PIPELINE.YAML|NAME",
    type=click.Path(path_type=Path, dir_okay=False),
    shell_complete=complete_name_or_file,
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_functions_option = click.option(
    "--functions-path",
    envvar="TAILRACE_FUNCTIONS_PATH",
    type=click.Path(path_type=Path),
    help="Directory, archive or module that has the modules of the file's `functions`; sent to all workers.",
)

_source_option = click.option(
    "--source", metavar="NAME", help="One of the file's `sources`; needed where it has several."
)


@cli.command()
@_pipeline_argument
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for Spark's warnings and tracebacks; default: tailrace.log next to the checkpoint.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the log file; json: an object per line, batches too.",
)
@click.option(
    "--log-max-size",
    metavar="BYTES",
    default="20m",
    show_default=True,
    callback=lambda _, __, text: _size(text),
    help="Size, with k, m or g, from which on the log file is emptied; three former contents are kept.",
)
@_functions_option
def run(
    pipeline_file: Path,
    log_file: Path | None,
    log_format: str,
    log_max_size: int,
    functions_path: Path | None,
) -> None:
    """Run a pipeline until it is stopped (Ctrl-C), or until everything is read (trigger: available-now)."""
    # Spark's modules take a second to import: a wrong file is reported first.
    pipelines = _with_functions(load_pipelines(pipeline_file), functions_path)
    for each in pipelines:
        each.require_extras()
    from tailrace.verify.schedule import Verifications  # noqa: PLC0415

    how: dict[str, Any] = {"is_json": log_format == "json", "log_max_size": log_max_size}
    if pipelines[0].named is not None:
        from tailrace.pipeline.source_views import run_with_views  # noqa: PLC0415

        run_with_views(pipelines, log_file, Verifications, **how)
    else:
        from tailrace.pipeline.run_view import run_with_view  # noqa: PLC0415

        run_with_view(pipelines[0], log_file, Verifications, **how)


def _size(text: str) -> int:
    try:
        return int(byte_count(text))
    except ValueError:
        raise click.BadParameter("bytes > 0, with k, m or g") from None


def _with_functions(pipelines: Iterable[Pipeline], path: Path | None) -> tuple[Pipeline, ...]:
    return tuple(replace(pipeline, functions_path=path) for pipeline in pipelines)


@cli.command()
@_pipeline_argument
@click.option("--sample", is_flag=True, help="Transform rows of each table, twice, and compare: see TR-1520.")
@_functions_option
def check(pipeline_file: Path, functions_path: Path | None, *, sample: bool) -> None:
    """Check every precondition: what was found, what is needed, and the statement that fixes it.

    First the source. If that is in order: the routes, the sinks (can they be reached and written?), the
    transforms (does Spark accept them?) and on a cluster the workers.
    """
    from tailrace.pipeline.tables_in_force import with_tables_if_known  # noqa: PLC0415
    from tailrace.sources import preflight, registry  # noqa: PLC0415

    loaded = _with_functions(load_pipelines(pipeline_file), functions_path)
    pipelines = [with_tables_if_known(pipeline) for pipeline in loaded]
    shared = None
    failed = False
    for pipeline in pipelines:
        pipeline.require_extras()
    if (named := pipelines[0].named) is not None:
        from tailrace.sinks.shared_targets import SharedTargets  # noqa: PLC0415

        shared = SharedTargets(named.checkpoint)
    for pipeline in pipelines:
        if pipeline.named is not None:
            click.echo(f"source {pipeline.source_name}")
        findings = registry.check(pipeline.source)
        click.echo(preflight.render(findings))
        if not preflight.errors(findings):
            from tailrace.pipeline.checks import check as check_rest  # noqa: PLC0415

            for finding in check_rest(pipeline, shared, sample=sample):
                findings.append(finding)
                click.echo(preflight.render([finding]))
        failed = failed or bool(preflight.errors(findings))
    if failed:
        raise SystemExit(EXIT_PREFLIGHT)


@cli.command()
@click.argument(
    "pipeline_file",
    metavar="[PIPELINE.YAML]",
    required=False,
    type=click.Path(path_type=Path, dir_okay=False),
)
def doctor(pipeline_file: Path | None) -> None:
    """Look at what a pipeline runs on: versions, jars, space, ports, clocks, round trips to source and sinks.

    Without a file: this machine alone. What a server must allow is the subject of `tailrace check`.
    """
    from tailrace.pipeline.doctor import diagnose  # noqa: PLC0415
    from tailrace.sources import preflight  # noqa: PLC0415

    failed = False
    for pipeline in [None] if pipeline_file is None else load_pipelines(pipeline_file):
        if pipeline is not None and pipeline.named is not None:
            click.echo(f"source {pipeline.source_name}")
        for finding in diagnose(pipeline):
            failed = failed or bool(preflight.errors([finding]))
            click.echo(preflight.render([finding]))
    if failed:
        raise SystemExit(EXIT_PREFLIGHT)


@cli.command()
@_pipeline_argument
@click.option(
    "--seconds", type=click.FloatRange(1, 600), default=5.0, show_default=True, help="How long to measure."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_source_option
def estimate(pipeline_file: Path, source: str | None, seconds: float, as_json: bool) -> None:
    """Estimate a first snapshot: rows, bytes, time, and the log that the server must keep meanwhile.

    Some rows are read to measure; nothing is written or created.
    """
    from tailrace.pipeline import estimate as estimates  # noqa: PLC0415

    pipeline = load_pipeline(pipeline_file, source)
    connections = pipeline.settings.parallelism or cores()
    found = estimates.estimate(pipeline.source, connections, seconds=seconds)
    text = _json(found.to_json()) if as_json else "\n".join(estimates.lines(found))
    click.echo(printable_lines(text))


@cli.command()
@_pipeline_argument
@click.option(
    "--unmarked",
    is_flag=True,
    help="Also remove a replication slot that no stream has marked as its own, for example one that an "
    "earlier version created.",
)
@_source_option
def drop(pipeline_file: Path, source: str | None, unmarked: bool) -> None:
    """Remove what the pipeline has created on the server (PostgreSQL: replication slot, publication).

    A slot retains the server's log until it is removed. The target and the checkpoint stay; the pipeline
    cannot continue from the checkpoint afterwards. Objects that somebody else created stay: a slot of the
    same name is an error, and a publication is skipped.
    """
    from tailrace.sources import registry  # noqa: PLC0415

    for line in registry.drop(load_pipeline(pipeline_file, source).source, unmarked=unmarked) or [
        "nothing to remove"
    ]:
        click.echo(printable(line))


@cli.command()
@_pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/reference/status.md describes it.")
@click.option("--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C.")
@_source_option
def status(pipeline_file: Path, source: str | None, as_json: bool, watch: bool) -> None:
    """Show how far a pipeline is, from its checkpoint, its source and its sinks; it need not run.

    Each table with its state and the time up to which its target is complete; position and lag; how long the
    server keeps the log; what each sink has received and what its readers see.
    """
    from tailrace.pipeline.status import status as look  # noqa: PLC0415
    from tailrace.pipeline.status_text import lines  # noqa: PLC0415

    pipelines = load_pipelines(pipeline_file) if source is None else (load_pipeline(pipeline_file, source),)
    for pipeline in pipelines:
        pipeline.require_extras()
    while True:
        found = [look(pipeline) for pipeline in pipelines]
        if as_json and pipelines[0].named is None:
            text = _json(found[0].to_json())
        elif as_json:
            each = {p.source_name: one.to_json() for p, one in zip(pipelines, found, strict=True)}
            text = _json({"v": 1, "sources": each})
        else:
            text = "\n\n".join(
                "\n".join(lines(one, _arguments(pipeline_file, p)))
                for p, one in zip(pipelines, found, strict=True)
            )
        if watch and not as_json:
            click.clear()
        click.echo(text)
        if not watch:
            return
        time.sleep(_WATCH_S)


@cli.command()
@_pipeline_or_name_argument
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.option(
    "--where",
    metavar="CONDITION",
    help='Only rows that it holds for; no row is deleted then. Part of SQL, see the guide "Signals".',
)
@_source_option
@_json_option
@client_options
def resync(
    pipeline_file: Path,
    source: str | None,
    tables: tuple[str, ...],
    where: str | None,
    *,
    as_json: bool,
    **server: Any,
) -> None:
    """Read tables again, in place: afterwards their targets equal them, whatever they held before.

    TABLE is `database.table` (PostgreSQL: schema.table). A running pipeline begins with its next batch, a
    stopped one when it is started. The log is followed meanwhile, and readers never see an empty target.
    """
    from tailrace.control.client import remote  # noqa: PLC0415
    from tailrace.pipeline import table_requests  # noqa: PLC0415

    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        remote.ask_tables(api, str(pipeline_file), "resync", tables, source, where=where, as_json=as_json)
        return
    pipeline = load_pipeline(pipeline_file, source)
    id_ = table_requests.resync(pipeline, tables, where, _arguments(pipeline_file, pipeline))
    rows = "" if where is None else "rows of "
    _requested(id_, tables, f"{rows}{', '.join(map(printable, tables))} will be read again", as_json=as_json)


@cli.command()
@_pipeline_or_name_argument
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@_source_option
@_json_option
@client_options
def park(
    pipeline_file: Path, source: str | None, tables: tuple[str, ...], *, as_json: bool, **server: Any
) -> None:
    """Leave tables out until they are resumed; all others go on.

    TABLE is `database.table` (PostgreSQL: schema.table). A running pipeline leaves it out from its next batch
    on, a stopped one when it is started. The targets keep what they have.
    """
    from tailrace.control.client import remote  # noqa: PLC0415
    from tailrace.pipeline import table_requests  # noqa: PLC0415

    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        remote.ask_tables(api, str(pipeline_file), "park", tables, source, as_json=as_json)
        return
    pipeline = load_pipeline(pipeline_file, source)
    id_ = table_requests.park(pipeline, tables)
    _requested(id_, tables, f"{', '.join(map(printable, tables))} will be parked", as_json=as_json)


@cli.command()
@_pipeline_or_name_argument
@click.argument("tables", nargs=-1, metavar="TABLE...")
@click.option("--sink", "sink_name", metavar="NAME", help="Go on with a parked sink, not with tables.")
@click.option(
    "--replay",
    is_flag=True,
    help="Deliver the changes made since the table was parked, from the server's log (MySQL, MariaDB), "
    "instead of reading its rows again.",
)
@_source_option
@_json_option
@client_options
def resume(
    pipeline_file: Path,
    *,
    source: str | None,
    tables: tuple[str, ...],
    sink_name: str | None,
    replay: bool,
    as_json: bool,
    **server: Any,
) -> None:
    """Go on with parked tables, or with a parked sink. Rows are read again, in place.

    Afterwards a target that holds rows equals its table. A target that holds changes receives the rows as
    changes of kind `r`; only --replay tells what happened to a row in between. Rows that are read again for
    one sink are passed to all of them. A subscription without tables: let it run, after `tailrace pause`.
    """
    from tailrace.control.client import remote  # noqa: PLC0415
    from tailrace.pipeline import table_requests  # noqa: PLC0415

    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        _resume_remotely(api, str(pipeline_file), source, tables, sink_name, replay=replay, as_json=as_json)
        return
    pipeline = load_pipeline(pipeline_file, source)
    if (sink_name is None) == (not tables) or (sink_name is not None and replay):
        raise click.UsageError("name tables, or a sink with --sink (without --replay)")
    if sink_name is not None:
        _resume_sink(pipeline, sink_name, as_json=as_json)
        return
    known = table_requests.parked_now(pipeline)
    id_ = table_requests.resume(pipeline, tables, _arguments(pipeline_file, pipeline), replay=replay)
    for name in known.keys() & set(tables):
        if replay and known[name].had != "all":
            click.echo(
                f"{printable(name)}: its first snapshot was not finished, so its rows are read", err=True
            )
    for name in sorted(set(tables) - known.keys()):
        click.echo(f"{printable(name)} is not parked yet: nothing happens unless it is by then", err=True)
    appending = [sink.type for sink in pipeline.sinks if table_requests.appends(sink)]
    if appending and not replay:
        click.echo(
            f"sink {', '.join(appending)} receives the rows; changes made while the table was parked are not "
            "told",
            err=True,
        )
    _requested(id_, tables, f"{', '.join(map(printable, tables))} will be resumed", as_json=as_json)


def _resume_remotely(
    api: ApiClient,
    name: str,
    source: str | None,
    tables: tuple[str, ...],
    sink_name: str | None,
    *,
    replay: bool,
    as_json: bool,
) -> None:
    from tailrace.control.client import remote  # noqa: PLC0415

    if sink_name is not None and (tables or replay):
        raise click.UsageError("name tables, or a sink with --sink (without --replay)")
    if sink_name is not None:
        remote.resume_sink_of(api, name, sink_name, source, as_json=as_json)
    elif tables:
        remote.ask_tables(api, name, "resume", tables, source, replay=replay, as_json=as_json)
    else:
        remote.resume_subscription(api, name, as_json=as_json)


def _arguments(pipeline_file: Path, pipeline: Pipeline) -> str:
    """What commands about the pipeline are given."""
    return f"{pipeline_file} --source {pipeline.source_name}" if pipeline.named else str(pipeline_file)


def _requested(id_: str, tables: tuple[str, ...], text: str, *, as_json: bool) -> None:
    """Say what was asked of a pipeline."""
    click.echo(_json({"request": id_, "tables": tables}) if as_json else f"request {id_}: {text}")


def _resume_sink(pipeline: Pipeline, name: str, *, as_json: bool) -> None:
    from tailrace.pipeline import table_requests  # noqa: PLC0415
    from tailrace.pipeline.parked_sinks import what_it_gets  # noqa: PLC0415

    only = table_requests.resume_sink(pipeline, name)
    if as_json:
        click.echo(_json({"sink": name, "tables": only}))
        return
    what = "all tables are" if only is None else f"{', '.join(map(printable, only))} will be"
    click.echo(f"sink {printable(name)} will go on: {what} read again, in place, and passed to every sink")
    for one, each in zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True):
        click.echo(f"  {printable(one)} {what_it_gets(each)}")


def _json(value: object, indent: int | None = None) -> str:
    """`value` as JSON without control characters: JSON itself allows DEL."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def exit_code(error: TailraceError) -> int:
    """The exit code of a command that `error` ended."""
    match error:
        case ConfigError():
            return EXIT_CONFIG
        case PreflightError():
            return EXIT_PREFLIGHT
        case PositionLostError() | TransientSourceError():
            return EXIT_SOURCE_LOST
        case TablesParkedError():
            return EXIT_PARKED
        case _:
            return EXIT_FAILED


def main() -> None:
    """Entry point: sets the exit code; an error of ours prints a message and no traceback."""
    try:
        cli(standalone_mode=False)
    except TailraceError as error:
        _log.error("command failed", exc_info=True)
        _print_error(error)
        code = exit_code(error)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    else:
        code = EXIT_DONE
    sys.stdout.flush()
    sys.exit(code)


def _print_error(error: TailraceError) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error: ", style="bold red", end="")
    console.print(str(error), markup=False)
