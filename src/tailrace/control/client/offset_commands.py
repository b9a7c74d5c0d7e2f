"""`tailrace offsets`: of a pipeline file, or of a subscription of a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tailrace.control.client import remote
from tailrace.control.client.completion import complete_name_or_file
from tailrace.control.client.connection import ApiClient, client_options, of_subscription
from tailrace.errors import ConfigError
from tailrace.pipeline.file import load_pipeline
from tailrace.printable import printable, printable_lines

_pipeline_argument = click.argument(
    "pipeline_file",
    metavar="PIPELINE.YAML|NAME",
    type=click.Path(path_type=Path, dir_okay=False),
    shell_complete=complete_name_or_file,
)
_source_option = click.option(
    "--source", metavar="NAME", help="One of the file's `sources`; needed where it has several."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def offsets() -> None:
    """Show or change the offset from which a pipeline continues."""


@offsets.command()
@_pipeline_argument
@_source_option
@client_options
def show(pipeline_file: Path, source: str | None, **server: Any) -> None:
    """Print the newest stream offset of the pipeline's checkpoint, and which tables are parked."""
    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        found = api.get(of_subscription(str(pipeline_file), "offset"), source=source)
        if found is None:
            click.echo(f"subscription {pipeline_file} has no batch yet", err=True)
            return
        reasons = {
            name: f"{reason['message']} ({reason['code']})" for name, reason in found["parked"].items()
        }
        _show(found["batch"], found["end"], reasons, is_committed=found["committed"])
        return
    from tailrace.model.parked import parked_tables  # noqa: PLC0415 - a wrong file is reported first
    from tailrace.spark.checkpoint import Checkpoint  # noqa: PLC0415

    pipeline = load_pipeline(pipeline_file, source)
    last = Checkpoint(pipeline.checkpoint).last()
    if last is None:
        click.echo(f"checkpoint {pipeline.checkpoint} has no batch yet", err=True)
        return
    reasons = {name: str(entry.reason) for name, entry in parked_tables(last.end).items()}
    _show(last.id, last.end, reasons, is_committed=last.committed)


def _show(batch: int, end: Mapping[str, Any], parked: Mapping[str, str], *, is_committed: bool) -> None:
    state = "committed" if is_committed else "planned: the next start repeats it"
    click.echo(f"batch {batch}, {state}", err=True)
    for name, reason in parked.items():
        click.echo(printable_lines(f"parked: {name}: {reason}"), err=True)
    click.echo(_json(end, indent=2))


@offsets.command()
@_pipeline_argument
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Number of batches.")
@_source_option
@_json_option
@client_options
def history(pipeline_file: Path, source: str | None, last: int, *, as_json: bool, **server: Any) -> None:
    """Print what the newest batches have read: log, snapshots, tables read again, requests.

    Spark keeps the last hundred batches. Offsets that `offsets set` has replaced are listed, too.
    """
    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        path = of_subscription(str(pipeline_file), "offset", "history")
        _print(api.get(path, last=last, source=source)["lines"], as_json=as_json)
        return
    from tailrace.pipeline.offset_history import history_lines  # noqa: PLC0415

    _print(history_lines(load_pipeline(pipeline_file, source), last), as_json=as_json)


@offsets.command()
@_pipeline_argument
@click.argument("first", type=int, required=False)
@click.argument("last", type=int, required=False)
@_source_option
@_json_option
@client_options
def diff(
    pipeline_file: Path,
    source: str | None,
    first: int | None,
    last: int | None,
    *,
    as_json: bool,
    **server: Any,
) -> None:
    """Print what changed from the end of batch FIRST to the end of batch LAST.

    By default, LAST is the newest batch and FIRST the one before it.
    """
    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        path = of_subscription(str(pipeline_file), "offset", "diff")
        _print(api.get(path, first=first, last=last, source=source)["lines"], as_json=as_json)
        return
    from tailrace.pipeline.offset_history import difference_lines  # noqa: PLC0415

    _print(difference_lines(load_pipeline(pipeline_file, source), first, last), as_json=as_json)


@offsets.command(name="set")
@_pipeline_argument
@click.argument("offset", metavar="JSON|@FILE")
@click.option("--dry-run", is_flag=True, help="Check the offset and say what would change.")
@click.option("--unchecked", is_flag=True, help="Ask neither the server for the position nor the targets.")
@click.option("--skip-changes", is_flag=True, help="Do not read tables again because of a later position.")
@_source_option
@_json_option
@client_options
def set_offset(
    pipeline_file: Path,
    offset: str,
    *,
    source: str | None,
    dry_run: bool,
    unchecked: bool,
    skip_changes: bool,
    as_json: bool,
    **server: Any,
) -> None:
    """Let the stopped pipeline continue from OFFSET, JSON in the format that `offsets show` prints.

    The server must have the position in its log, between two transactions. With an earlier one, changes are
    applied once more where targets hold rows; it is refused if a sink appends changes. With a later one, the
    changes between are not read; tables are read again in place (`tailrace resync`), and so are tables whose
    rows would be missing or come twice for another reason.

    Where the checkpoint is older than the targets, the stream goes on with batch numbers above theirs, and
    all tables are read again. A subscription must be paused.
    """
    text = _given(offset)
    if (api := remote.if_subscription(pipeline_file, **server)) is not None:
        how = {"dry_run": dry_run, "unchecked": unchecked, "skip_changes": skip_changes}
        _set_remotely(api, str(pipeline_file), text, source, how, as_json=as_json)
        return
    from tailrace.pipeline import offset_replacement  # noqa: PLC0415

    pipeline = load_pipeline(pipeline_file, source)
    found = offset_replacement.planned(
        pipeline, offset_replacement.read_offset(text), unchecked=unchecked, skip_changes=skip_changes
    )
    behind = (found.in_targets, found.batch) if found.is_behind else None
    if not as_json:
        _tell(found.former, found.value, found.reads_again, behind)
    kept = None if dry_run else offset_replacement.put(pipeline, found)
    if as_json:
        value = {"former": found.former, "end": found.value, "reads_again": list(found.reads_again)}
        click.echo(_json({**value, "kept": kept}))
    elif kept is not None:
        click.echo(f"done; the old offset is kept in {pipeline.checkpoint}/{kept}")


def _set_remotely(
    api: ApiClient, name: str, text: str, source: str | None, how: Mapping[str, bool], *, as_json: bool
) -> None:
    path = of_subscription(name, "offset")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("the offset is not JSON", str(error), code="TR-1301") from None
    last = api.get(path, source=source)
    headers = {} if last is None else {"if-match": f'"{last["version"]}"'}
    found = api.send("PUT", path, {"offset": value, "source": source, **how}, headers)
    if as_json:
        click.echo(_json({part: found[part] for part in ("former", "end", "reads_again", "kept")}))
        return
    behind = (found["in_targets"], found["batch"]) if found["is_behind"] else None
    _tell(found["former"], found["end"], found["reads_again"], behind)
    if found["kept"] is not None:
        click.echo(f"done; the old offset is kept in {found['kept']} of the checkpoint")


def _tell(
    former: Mapping[str, Any] | None,
    value: Mapping[str, Any],
    reads_again: Sequence[str],
    behind: tuple[int, int] | None,
) -> None:
    """Print what takes the place of an offset; `behind`: the newest batches of targets and checkpoint."""
    if behind is not None:
        click.echo(f"the targets have batches up to {behind[0]}, the checkpoint up to {behind[1]}")
    for table in reads_again:
        click.echo(f"{printable(table)} will be read again, so that its targets equal it")
    if former is not None:
        click.echo(f"from {_json(former)}")
    click.echo(f"to   {_json(value)}")


def _given(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"offset file `{text[1:]}` cannot be read", error.strerror, code="TR-1301"
        ) from None


def _print(lines: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(list(lines)))
        return
    for line in lines:
        click.echo(printable(line))


def _json(value: object, indent: int | None = None) -> str:
    """`value` as JSON without control characters: JSON itself allows DEL."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")
