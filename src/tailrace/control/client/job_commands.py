"""Commands about jobs of a subscription: verify and repair by name, and what became of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tailrace.control.client.commands import name_argument, print_rows, reason_lines, time_text
from tailrace.control.client.connection import ApiClient, client, client_options, of_subscription
from tailrace.errors import ConfigError
from tailrace.printable import printable

#: Exit codes as of `tailrace verify PIPELINE.YAML`: rows differ, or the job has failed.
EXIT_DIFFERENT = 1
#: Time between two looks at a job, seconds.
_LOOK_S = 1.0
_ENDED = ("done", "failed", "cancelled")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_id_argument = click.argument("job_id", metavar="JOB", type=click.IntRange(min=1))


@click.group()
def job() -> None:
    """Show and cancel jobs of a subscription: `tailrace verify NAME` and `repair NAME` create them."""


@job.command(name="list")
@name_argument
@click.option("--state", help="Only those in this state.")
@_json_option
@client_options
def list_jobs(name: str, *, state: str | None, as_json: bool, **where: Any) -> None:
    """List the newest jobs of a subscription."""
    found = client(**where).get(of_subscription(name, "jobs"), limit=100, state=state)["items"]
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [("JOB", "KIND", "STATE", "DONE", "DIFFERENCES", "BY", "CREATED")]
    rows += [
        (
            str(one["id"]),
            one["kind"],
            one["state"],
            f"{one['done']}/{one['total']}",
            "-" if one["result"] is None else str(one["result"]["differences"]),
            one["requested_by"],
            time_text(one["created_us"]),
        )
        for one in found
    ]
    print_rows(rows)


@job.command()
@name_argument
@_id_argument
@_json_option
@client_options
def show(name: str, job_id: int, *, as_json: bool, **where: Any) -> None:
    """Show a job and its results."""
    found = client(**where).get(of_subscription(name, "jobs", str(job_id)))
    click.echo(json.dumps(found) if as_json else _text(found))


@job.command()
@name_argument
@_id_argument
@_json_option
@client_options
def cancel(name: str, job_id: int, *, as_json: bool, **where: Any) -> None:
    """Have a job end; rows that a repair reads again are read to the end."""
    found = client(**where).send("POST", of_subscription(name, "jobs", str(job_id), "cancel"))
    click.echo(json.dumps(found) if as_json else f"job {job_id}: {_state(found)}")


def compare(
    api: ApiClient,
    name: str,
    kind: str,
    tables: Sequence[str],
    source: str | None,
    *,
    key: str | None,
    waits: bool,
    as_json: bool,
) -> None:
    """Create a job, and wait for its end unless nobody wants to.

    Args:
        api: the client.
        name: the subscription.
        kind: `verify` or `repair`.
        tables: the tables; none: all.
        source: of this source.
        key: the client's name for the job.
        waits: whether to wait.
        as_json: whether to print JSON: the job, once.
    """
    body = {"kind": kind, "tables": list(tables), "source": source, "key": key}
    found = api.send("POST", of_subscription(name, "jobs"), body)
    path = of_subscription(name, "jobs", str(found["id"]))
    told = ""
    while waits and found["state"] not in _ENDED:
        text = f"job {found['id']}: {_state(found)}"
        if text != told and not as_json:
            click.echo(text, err=True)
            told = text
        time.sleep(_LOOK_S)
        found = api.get(path)
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo(_text(found) if waits else f"job {found['id']}: {_state(found)}")
    if waits and (found["state"] != "done" or found["result"]["differences"]):
        raise SystemExit(EXIT_DIFFERENT)


def matching(api: ApiClient, name: str, pattern: str | None, source: str | None) -> list[str]:
    """The tables of a subscription whose whole name a pattern matches; none: all are meant.

    Raises:
        ConfigError: it matches none.
    """
    if pattern is None:
        return []
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ConfigError("`--table` is not a regular expression", str(error), code="TR-8101") from None
    known = api.get(of_subscription(name, "tables"))
    found = [
        one["table"]
        for one in known
        if source in (None, one["source"]) and wanted.fullmatch(one["table"]) is not None
    ]
    if not found:
        raise ConfigError(
            f"no table of subscription `{name}` matches the pattern",
            f"it has {len(known)} tables",
            f"tailrace describe {name}",
            code="TR-8101",
        )
    return found


def _state(found: Mapping[str, Any]) -> str:
    state = "is being cancelled" if found["is_cancelled"] and found["state"] == "running" else found["state"]
    return f"{state}, {found['done']} of {found['total']} compared" if found["total"] else str(state)


def _text(found: Mapping[str, Any]) -> str:
    lines = [f"job {found['id']}: {found['kind']}, {_state(found)}"]
    result = found["result"]
    if result is None:
        return "\n".join(lines)
    if result["error"] is not None:
        lines.append(reason_lines(result["error"], ""))
    for one in result["tables"]:
        where = f"{one['source']}: " if one["source"] else ""
        what = one["reason"] or ("equal" if not one["differences"] else f"{one['differences']:,} rows differ")
        if one["found"]:
            what += f", {one['found']:,} before the repair"
        if one["reads_again"]:
            what += ", rows are being read again"
        lines.append(printable(f"  {where}{one['table']} in {one['sink']}: {what}"))
    return "\n".join(lines)
