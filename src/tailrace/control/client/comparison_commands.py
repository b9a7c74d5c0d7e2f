"""`tailrace verify` and `repair`: of a pipeline file here, or of a subscription, as a job of its server.

The commands of files are those of `verify.commands`; they get an argument that may be a name, and the options
of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tailrace.control.client import remote
from tailrace.control.client.completion import complete_name_or_file
from tailrace.control.client.connection import ApiClient, client_options
from tailrace.control.client.job_commands import compare, matching
from tailrace.verify import commands as of_files

#: What a job has beside the options of a file's command.
_KEY, _NO_WAIT, _JSON = "key", "no_wait", "as_json"
_OF_JOBS = (_KEY, _NO_WAIT, _JSON)
#: Options of a file's command that a job has too.
_SHARED = ("pipeline_file", "source", "pattern", "tables")
_HELP = """

Of a subscription, by NAME: the server that runs it does it, as a job; the command waits for its end, and
may be stopped meanwhile.
"""


def _either(
    command: click.Command, tables_of: Callable[[ApiClient, dict[str, Any]], Sequence[str]]
) -> click.Command:
    """A file's command that takes a subscription's name, too.

    Args:
        command: the command.
        tables_of: the tables that its options name.
    """
    assert command.callback is not None
    of_file, kind = command.callback, str(command.name)

    @click.option("--key", help="Of a job: your name for it; the same once more finds the same job.")
    @click.option("--no-wait", is_flag=True, help="Of a job: print its number and do not wait for its end.")
    @click.option("--json", "as_json", is_flag=True, help="Of a job: print it as JSON.")
    @client_options
    @click.pass_context
    def callback(
        ctx: click.Context,
        /,
        *,
        pipeline_file: Path,
        key: str | None,
        no_wait: bool,
        as_json: bool,
        server: str | None,
        token_file: Path | None,
        ca: Path | None,
        **given: Any,
    ) -> None:
        api = remote.if_subscription(pipeline_file, server=server, token_file=token_file, ca=ca)
        if api is None:
            _refuse(ctx, lambda name: name in _OF_JOBS, "a pipeline file")
            of_file(pipeline_file=pipeline_file, **given)
            return
        _refuse(ctx, lambda name: name in given and name not in _SHARED, "a subscription")
        name, source = str(pipeline_file), given["source"]
        tables = tables_of(api, {"name": name, **given})
        compare(api, name, kind, tables, source, key=key, waits=not no_wait, as_json=as_json)

    made = click.command(kind, help=(command.help or "") + _HELP, context_settings=command.context_settings)(
        callback
    )
    rest = [part for part in command.params if part.name != "pipeline_file"]
    made.params = [_argument(), *rest, *made.params]
    return made


def _argument() -> click.Argument:
    return click.Argument(
        ["pipeline_file"],
        metavar="PIPELINE.YAML|NAME",
        type=click.Path(path_type=Path, dir_okay=False),
        shell_complete=complete_name_or_file,
    )


def _refuse(ctx: click.Context, is_refused: Callable[[str], bool], about: str) -> None:
    """Refuse options that would be ignored."""
    for part in ctx.command.params:
        given = ctx.get_parameter_source(str(part.name))
        if is_refused(str(part.name)) and given is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{part.opts[0]} is not for {about}", ctx)


verify = _either(
    of_files.verify, lambda api, given: matching(api, given["name"], given["pattern"], given["source"])
)
repair = _either(of_files.repair, lambda _, given: given["tables"])
