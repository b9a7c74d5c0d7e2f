"""Server programs: what can be run here, and the error when nothing can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace_dev.servers import account
from tailrace_dev.servers.account import Account


@dataclass(frozen=True)
class Program:
    """A server program that runs on this machine.

    Args:
        command: command line up to the settings.
        version: e.g. `9.7.4`.
        share: directory of its data files where it is known, else None.
    """

    command: list[str]
    version: str
    share: Path | None = field(default=None)


def version_on_path(binary: str, mark: str, version: str | None, seen: list[str]) -> tuple[str, str] | None:
    """The program on PATH, where it is the product and version wanted.

    Args:
        binary: e.g. `mysqld`.
        mark: regular expression that what `--version` says must match, its group 1 the version.
        version: leading part of the version wanted, None: any.
        seen: what was found instead is added here, for the error.

    Returns:
        Its path and version.
    """
    path = shutil.which(binary)
    if path is None:
        seen.append(f"`{binary}` is not on PATH")
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(mark, said)
    if found is None:
        seen.append(f"`{path}` is another product")
    elif not matches(found[1], version):
        seen.append(f"`{path}` is version {found[1]}")
    else:
        return path, found[1]
    return None


def matches(found: str, wanted: str | None) -> bool:
    """Whether version `found` is `wanted` or begins with it: `10.11.14` with `10.11`, not `10.1`."""
    return wanted is None or found == wanted or found.startswith(wanted + ".")


def unavailable(product: str, binary: str, version: str | None, seen: list[str]) -> TailraceError:
    """The error for a server that cannot be had here."""
    return TailraceError(
        f"no {product} server{' ' + version if version else ''} can be had on this machine",
        "; ".join(seen),
        f"install one so that `{binary}` is on PATH, or use a server that runs elsewhere: give its address "
        "by option `url`",
    )


def run(
    command: list[str],
    what: str,
    environment: Mapping[str, str] | None = None,
    *,
    text: str = "",
    run_as: Account | None = None,
    directory: Path | None = None,
) -> str:
    """Runs a command to its end.

    Args:
        command: program and arguments.
        what: what it is for, as the start of the error's message: "MySQL 9.7 could not ...".
        environment: variables added to our own.
        text: what it reads from its standard input.
        run_as: the user that runs it, with no more of our environment than a server gets; None: ourselves.
        directory: where it runs; None: where we do.

    Returns:
        What it wrote to its standard output.

    Raises:
        TailraceError: it failed; with the end of what it said.
    """
    user, group = run_as or (None, None)
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**(os.environ if run_as is None else account.environment()), **(environment or {})},
        user=user,
        group=group,
        extra_groups=None if group is None else [],
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise TailraceError(
            what,
            f"`{Path(command[0]).name}` ended with exit code {done.returncode}: {' | '.join(said[-5:])}",
            "see whether this machine has room and reaches its package mirror, or install the server",
        )
    return done.stdout
