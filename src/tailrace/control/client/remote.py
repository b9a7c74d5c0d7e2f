"""Commands that take a pipeline file or the name of a subscription: park, resume, resync."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tailrace.control.client.connection import SERVER, ApiClient, client, of_subscription
from tailrace.printable import printable


def if_subscription(
    argument: Path, *, server: str | None, token_file: Path | None, ca: Path | None
) -> ApiClient | None:
    """The client, if a command is about a subscription; None: it is about a pipeline file.

    It is about a subscription if a server is named, and there is no such file.

    Args:
        argument: the command's first argument.
        server: its options.
        token_file: its options.
        ca: its options.
    """
    if server is None and (
        SERVER not in os.environ or argument.suffix in (".yaml", ".yml") or len(argument.parts) > 1
    ):
        return None
    if server is None and argument.exists():
        return None
    return client(server, token_file, ca)


def ask_tables(
    api: ApiClient,
    name: str,
    what: str,
    tables: Sequence[str],
    source: str | None,
    *,
    as_json: bool,
    **more: Any,
) -> None:
    """Send a request about tables, and say so."""
    body = {"tables": list(tables), "source": source, **more}
    sent = api.send("POST", of_subscription(name, "tables", what), body)
    if as_json:
        click.echo(json.dumps({**sent, "tables": list(tables)}))
        return
    done = {"park": "parked", "resume": "resumed", "resync": "read again"}[what]
    click.echo(f"request {sent['request']}: {', '.join(map(printable, tables))} will be {done}")


def resume_subscription(api: ApiClient, name: str, *, as_json: bool) -> None:
    """Let a paused subscription run."""
    found = api.send("POST", of_subscription(name, "resume"))
    text = f"{printable(name)}: {found['desired']}, stage {found['stage']}"
    click.echo(json.dumps(found) if as_json else text)


def resume_sink_of(api: ApiClient, name: str, sink: str, source: str | None, *, as_json: bool) -> None:
    """Go on with a parked sink."""
    found = api.send("POST", of_subscription(name, "sinks", sink, "resume"), {"source": source})
    if as_json:
        click.echo(json.dumps({"sink": sink, **found}))
        return
    what = (
        "all tables are" if found["tables"] is None else f"{', '.join(map(printable, found['tables']))} are"
    )
    click.echo(f"sink {printable(sink)} will go on: {what} read again, in place")
