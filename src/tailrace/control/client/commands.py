"""Commands about subscriptions of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tailrace.control.client.completion import complete_name
from tailrace.control.client.connection import ApiClient, client, client_options, of_subscription
from tailrace.control.client.plan import PlannedFile, files_of
from tailrace.control.client.plan import planned as compared
from tailrace.errors import ControlError
from tailrace.printable import printable, printable_lines

_pause = time.sleep
#: Time between two looks of `logs -f`, seconds.
_LOOK_S = 1.0
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
name_argument = click.argument("name", metavar="NAME", shell_complete=complete_name)


@click.command()
@click.option(
    "-f",
    "--file",
    "paths",
    metavar="FILE|DIR",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Pipeline file, or a directory of them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and check the files on the server.")
@_yes_option
@_json_option
@client_options
def apply(paths: Sequence[Path], *, dry_run: bool, yes: bool, as_json: bool, **where: Any) -> None:
    """Have subscriptions be as files say: those that are missing are created, others changed.

    Shows the differences and asks. Subscriptions without a file stay as they are.
    """
    api = client(**where)
    known = {one["name"]: one for one in api.subscriptions()}
    files = compared(files_of(paths), known)
    if not as_json:
        for one in files:
            click.echo(f"{one.action} {one.name}")
            for line in one.lines():
                click.echo(printable("  " + line))
    changes = [one for one in files if one.action != "keep"]
    if dry_run:
        found = [_checked(api, one) for one in changes]
        _print_plan(files, found, as_json=as_json)
        if not all(source["in_order"] for sources in found for source in sources):
            raise SystemExit(3)
        return
    if changes and not yes:
        click.confirm(f"{len(changes)} of {len(files)} subscriptions change. Go on?", abort=True, err=True)
    for one in changes:
        if one.former is None:
            api.send("POST", "/subscriptions", {"name": one.name, "spec": one.spec})
        else:
            api.send("PUT", of_subscription(one.name), {"spec": one.spec}, {"if-match": f'"{one.version}"'})
    if as_json:
        click.echo(json.dumps([{"name": one.name, "action": one.action} for one in files]))
    elif changes:
        click.echo(f"done: {len(changes)} changed, {len(files) - len(changes)} kept")


def _checked(api: ApiClient, one: PlannedFile) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.send("POST", "/check", {"name": one.name, "spec": one.spec})
    return found


def _print_plan(
    files: Sequence[PlannedFile], found: Sequence[Sequence[Mapping[str, Any]]], *, as_json: bool
) -> None:
    if as_json:
        checked = iter(found)
        value = [
            {
                "name": one.name,
                "action": one.action,
                "checked": None if one.action == "keep" else next(checked),
            }
            for one in files
        ]
        click.echo(json.dumps(value))
        return
    for one, sources in zip([one for one in files if one.action != "keep"], found, strict=True):
        for source in sources:
            for finding in source["findings"]:
                if finding["severity"] == "ok":
                    continue
                text = f"{finding['check']}: {finding['found']}. It needs {finding['needed']}."
                code = f" [{finding['code']}]" if finding["code"] else ""
                click.echo(printable(f"{one.name}: {finding['severity']}: {text}{code}"))
                if finding["remedy"]:
                    click.echo(printable_lines(f"  {finding['remedy']}"))


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_name)
@click.option("--stage", help="Only those in this stage.")
@click.option("--group", help="Only those of this group.")
@_json_option
@client_options
def get(name: str | None, *, stage: str | None, group: str | None, as_json: bool, **where: Any) -> None:
    """List subscriptions, or show one."""
    api = client(**where)
    listed = api.subscriptions(stage=stage, group=group) if name is None else [api.get(of_subscription(name))]
    found = list(listed)
    if as_json:
        click.echo(json.dumps(found if name is None else found[0]))
        return
    rows = [("NAME", "STAGE", "DESIRED", "OWNER", "VERSION", "CHANGED")]
    rows += [
        (
            one["name"],
            one["stage"],
            one["desired"],
            one["owner"] or "-",
            str(one["version"]),
            time_text(one["updated_us"]),
        )
        for one in found
    ]
    print_rows(rows)


@click.command()
@name_argument
@_json_option
@client_options
def describe(name: str, *, as_json: bool, **where: Any) -> None:
    """Show a subscription: what it does, its tables, and what was done to it last."""
    api = client(**where)
    found = api.get(of_subscription(name))
    tables = api.get(of_subscription(name, "tables"))
    events = api.get(of_subscription(name, "events"), limit=10)["items"]
    if as_json:
        click.echo(json.dumps({**found, "tables": tables, "events": events}))
        return
    for label in ("name", "group", "stage", "desired", "owner", "version", "failures"):
        click.echo(f"{label:9} {printable(str(found[label] if found[label] is not None else '-'))}")
    click.echo(f"created   {time_text(found['created_us'])}\nchanged   {time_text(found['updated_us'])}")
    if found["reason"]:
        click.echo(reason_lines(found["reason"], ""))
    if tables:
        click.echo("\ntables")
        rows = [("TABLE", "STAGE", "ROWS", "ESTIMATED", "CHANGES", "COMPLETE UP TO")]
        rows += [
            (
                one["table"] if not one["source"] else f"{one['source']}: {one['table']}",
                one["stage"],
                *(str(one[key]) if one[key] is not None else "-" for key in ("rows", "estimated", "changes")),
                time_text(one["complete_us"]),
            )
            for one in tables
        ]
        print_rows(rows)
        for one in tables:
            if one["error"]:
                click.echo(reason_lines(one["error"], f"{one['table']}: "))
    click.echo("\nevents")
    for event in events:
        click.echo(printable(f"{time_text(event['at_us'])}  {event['kind']}  by {event['actor']}"))


@click.command()
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@_json_option
@client_options
def logs(name: str, *, follow: bool, as_json: bool, **where: Any) -> None:
    """Print the end of the log of a subscription's worker."""
    api = client(**where)
    after = None
    while True:
        part = api.get(of_subscription(name, "log"), after=after)
        if as_json:
            if part["text"]:
                click.echo(json.dumps(part))
        else:
            click.echo(printable_lines(part["text"]), nl=False)
        if part["text"] and after is not None:
            after = part["next"]
            continue  # more may be there
        after = part["next"]
        if not follow:
            return
        _pause(_LOOK_S)


@click.command()
@name_argument
@_json_option
@client_options
def pause(name: str, *, as_json: bool, **where: Any) -> None:
    """Stop a subscription after its running batch, until it is resumed (`tailrace resume NAME`)."""
    _asked(client(**where), name, "pause", as_json=as_json)


@click.command()
@name_argument
@_yes_option
@_json_option
@client_options
def cancel(name: str, *, yes: bool, as_json: bool, **where: Any) -> None:
    """Stop a subscription for good; its checkpoint and targets stay."""
    if not yes:
        click.confirm(f"Subscription {name} is never run again. Go on?", abort=True, err=True)
    _asked(client(**where), name, "cancel", as_json=as_json)


@click.command()
@name_argument
@_json_option
@client_options
def retry(name: str, *, as_json: bool, **where: Any) -> None:
    """Let a failed subscription go on from where it was, at once."""
    _asked(client(**where), name, "retry", as_json=as_json)


@click.command()
@name_argument
@_yes_option
@_json_option
@client_options
def delete(name: str, *, yes: bool, as_json: bool, **where: Any) -> None:
    """Delete a subscription that is paused or cancelled; its checkpoint and targets stay."""
    if not yes:
        click.confirm(f"Delete subscription {name}?", abort=True, err=True)
    client(**where).send("DELETE", of_subscription(name))
    click.echo(json.dumps({"name": name, "deleted": True}) if as_json else f"{printable(name)}: deleted")


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each file there, as NAME.yaml; default: print it.",
)
@_json_option
@client_options
def export(names: Sequence[str], *, directory: Path | None, as_json: bool, **where: Any) -> None:
    """Print or write subscriptions' pipeline files, as they were given; without names: of all.

    With --json: names, files and versions, or where they were written.
    """
    api = client(**where)
    found = [api.get(of_subscription(name)) for name in names] if names else list(api.subscriptions())
    if directory is None and as_json:
        parts = ("name", "version", "spec")
        click.echo(json.dumps([{part: one[part] for part in parts} for one in found]))
        return
    if directory is None and len(found) > 1:
        raise click.UsageError("several files: give --to DIRECTORY")
    written = []
    for one in found:
        if directory is None:
            click.echo(one["spec"], nl=False)
            continue
        path = directory / f"{one['name']}.yaml"
        if path.parent.resolve() != directory.resolve():
            raise ControlError("a name of the server leads elsewhere", code="TR-8443")
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(one["spec"], encoding="utf-8")
        written.append({"name": one["name"], "path": str(path)})
        if not as_json:
            click.echo(f"{one['name']}: {path}")
    if as_json:
        click.echo(json.dumps(written))


@click.group()
def token() -> None:
    """Make, list and revoke tokens of a server."""


@token.command(name="create")
@click.argument("name", metavar="NAME")
@click.option("--scope", type=click.Choice(["read", "operate", "admin"]), required=True)
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="When it ends; default: never.")
@_json_option
@client_options
def create_token(name: str, *, scope: str, days: float | None, as_json: bool, **where: Any) -> None:
    """Make a token, and print it: it is shown once."""
    made = client(**where).send("POST", "/tokens", {"name": name, "scope": scope, "days": days})
    click.echo(json.dumps(made) if as_json else made["token"])


@token.command(name="list")
@_json_option
@client_options
def list_tokens(*, as_json: bool, **where: Any) -> None:
    """List tokens."""
    found = client(**where).get("/tokens")
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [("NAME", "SCOPE", "CREATED", "ENDS")]
    rows += [
        (one["name"], one["scope"], time_text(one["created_us"]), time_text(one["expires_us"]))
        for one in found
    ]
    print_rows(rows)


@token.command(name="revoke")
@click.argument("name", metavar="NAME")
@_json_option
@client_options
def revoke_token(name: str, *, as_json: bool, **where: Any) -> None:
    """End a token at once."""
    client(**where).send("DELETE", of_subscription(name).replace("/subscriptions/", "/tokens/", 1))
    click.echo(json.dumps({"name": name, "revoked": True}) if as_json else f"{printable(name)}: revoked")


def _asked(api: ApiClient, name: str, what: str, *, as_json: bool) -> None:
    found = api.send("POST", of_subscription(name, what))
    text = json.dumps(found) if as_json else f"{printable(name)}: {found['desired']}, stage {found['stage']}"
    click.echo(text)


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo(printable(line.rstrip()))


def reason_lines(reason: Mapping[str, Any], before: str) -> str:
    """An error of the API as text, behind what it is about."""
    code = f" [{reason['code']}]" if reason.get("code") else ""
    lines = [f"{before}{reason['message']}{code}"]
    if reason.get("since_us"):
        lines.append(f"  since {time_text(reason['since_us'])} UTC")
    lines += [f"  {reason[part]}" for part in ("detail", "hint") if reason.get(part)]
    return printable_lines("\n".join(lines))


def time_text(at_us: int | None) -> str:
    """A time as commands print it."""
    return "-" if at_us is None else f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
