"""What shells complete: names of subscriptions, as a server has them.

A shell waits for it: a server that does not answer at once, or is not named, completes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tailrace.control.client.connection import client
from tailrace.errors import TailraceError

#: How long a shell waits, seconds, and how many names it shows.
_ANSWER_S = 1.0
_MOST = 100


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of subscriptions that begin with what was typed."""
    try:
        api = replace(client(*_where(ctx.params)), answer_s=_ANSWER_S)
        page = api.get("/subscriptions", text=incomplete or None, limit=_MOST)
    except TailraceError:
        return []
    names = [one["name"] for one in page["items"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_name_or_file(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of subscriptions, or files if there are none."""
    return complete_name(ctx, parameter, incomplete) or [CompletionItem(incomplete, type="file")]


def _where(given: Mapping[str, Any]) -> tuple[str | None, Path | None, Path | None]:
    """The options of a client, where they were typed before."""
    return given.get("server"), given.get("token_file"), given.get("ca")
