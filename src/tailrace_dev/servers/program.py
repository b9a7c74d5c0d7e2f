"""Server programs that run on this machine, and the error when there is none."""

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
        share: directory of the program's data files where it is known, else None.
    """

    command: list[str]
    version: str
    share: Path | None = field(default=None)


def version_on_path(binary: str, mark: str, version: str | None, seen: list[str]) -> tuple[str, str] | None:
    """The program on PATH, if it is the requested product and version.

    Args:
        binary: e.g. `mysqld`.
        mark: regular expression for the output of `--version`; group 1 is the version.
        version: leading part of the requested version; None: any.
        seen: other findings are added to it, for the error.

    Returns:
        Its path and version.
    """
    path = shutil.which(binary)
    if path is None:
        seen.append(f"`{binary}` is not on PATH")
        return None
    output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(mark, output)
    if found is None:
        seen.append(f"`{path}` is another product")
    elif not matches(found[1], version):
        seen.append(f"`{path}` is version {found[1]}")
    else:
        return path, found[1]
    return None


def matches(found: str, requested: str | None) -> bool:
    """Whether version `found` is `requested` or begins with it: `10.11.14` with `10.11`, not `10.1`."""
    return requested is None or found == requested or found.startswith(requested + ".")


def require_only(product: str, only: str, version: str | None) -> None:
    """Refuse another version of a product of which there is one.

    Raises:
        TailraceError: another one is requested.
    """
    if not matches(only, version):
        raise TailraceError(
            f"{product} {version} is not available",
            f"the only version is {only}",
            "omit --version",
            code="TR-9004",
        )


def unavailable(product: str, binary: str, version: str | None, seen: list[str]) -> TailraceError:
    """The error for a server that is not available here."""
    return TailraceError(
        f"no {product} server{' ' + version if version else ''} is available on this machine",
        "; ".join(seen),
        f"install one so that `{binary}` is on PATH, or use a server that runs elsewhere: set its address "
        "in the option `url`",
        code="TR-9004",
    )


def run(
    command: list[str],
    failure: str,
    environment: Mapping[str, str] | None = None,
    *,
    text: str = "",
    run_as: Account | None = None,
    directory: Path | None = None,
) -> str:
    """Run a command to its end.

    Args:
        command: program and arguments.
        failure: the error's message: "MySQL 9.7 could not ...".
        environment: variables added to our own.
        text: its standard input.
        run_as: the user that runs it, with the environment of a server; None: the current user.
        directory: its working directory; None: the current one.

    Returns:
        Its standard output.

    Raises:
        TailraceError: it failed; with the end of its output.
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
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise TailraceError(
            failure,
            f"`{Path(command[0]).name}` ended with exit code {done.returncode}: {' | '.join(lines[-5:])}",
            "check that this machine has disk space and reaches its package mirror, or install the server",
            code="TR-9005",
        )
    return done.stdout
