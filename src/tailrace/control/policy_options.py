"""The options of `tailrace serve` that say what pipeline files may do (`control.policy`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from tailrace.config.model import SampleMode
from tailrace.control.policy import Policy

_F = TypeVar("_F", bound=Callable[..., Any])

#: Each option: its name, that of the policy's field, what it takes, and its help.
_LISTS = (
    ("--allow-path", "paths", "PATH|URL", "Directory, or URL such as s3://BUCKET/PREFIX, that they may use."),
    ("--allow-host", "hosts", "PATTERN", "Host that they may reach: NAME, *.DOMAIN, NETWORK/BITS, or *."),
    ("--allow-env", "variables", "PATTERN", "Variable that ${env:NAME} may name; TAILRACE_SECRET_* always."),
    ("--allow-secrets", "secrets", "DIRECTORY", "Directory whose files ${file:PATH} may name."),
    (
        "--allow-provider",
        "providers",
        "PATTERN",
        "Secret of a provider, exec too, that ${PROVIDER:PATH#KEY} may name; a pattern of PROVIDER:PATH#KEY.",
    ),
    ("--allow-spark", "spark", "PATTERN", "Setting of `pipeline.spark`, beyond plain ones; may run code."),
    ("--allow-function", "functions", "MODULE:NAME", "Function in Python that they may call; a pattern."),
)


def policy_options(command: _F) -> _F:
    """Add the options to a command; it gets a value `allowed`, see `policy_of`."""
    for option, field, metavar, text in reversed(_LISTS):
        command = click.option(option, f"allow_{field}", metavar=metavar, multiple=True, help=text)(command)
    command = click.option(
        "--sample",
        type=click.Choice([mode.value for mode in SampleMode]),
        default=SampleMode.VALUES.value,
        show_default=True,
        help="The most that a live sample shows of a pipeline's changes.",
    )(command)
    return click.option(
        "--allow-on-failure",
        is_flag=True,
        help="Let them name a variable or file that holds a command to run when a pipeline fails.",
    )(command)


def policy_of(allowed: dict[str, Any], database: str, files: Iterable[Path] = ()) -> Policy:
    """The policy that the options' values say.

    Args:
        allowed: the options' values, by parameter.
        database: the URL of the control plane's database; a file is the server's own.
        files: others that are the server's own.
    """
    lists: dict[str, Any] = {field: tuple(allowed[f"allow_{field}"]) for _, field, *_ in _LISTS}
    lists["variables"] = (*Policy.variables, *lists["variables"])
    reserved = list(files)
    if database.startswith("sqlite:///"):
        file = Path(database.removeprefix("sqlite:///").partition("?")[0])
        reserved += [file, Path(f"{file}-wal"), Path(f"{file}-shm")]
    return Policy(
        **lists,
        on_failure=allowed["allow_on_failure"],
        sample=SampleMode(allowed["sample"]),
        reserved=tuple(reserved),
    )
