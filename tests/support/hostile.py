"""Tests against attacking servers: the databases, and what a client of an attacker may do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import SourceError, TailraceError
from tailrace.sources.mysql.connection import connect as connect_mysql
from tailrace.sources.postgres.connection import connect as connect_postgres
from tests.support import fake_mysql, fake_postgres
from tests.support.listener import Listener

PASSWORD = "hunter2-is-the-password"


@dataclass(frozen=True)
class Database:
    """A database whose servers attack.

    Args:
        name: its name in errors.
        url: its URL, without host and port.
        serve: a server that runs a script for each connection.
        connect: connects a client.
        answering: a script that accepts the client and attacks at the first query.
    """

    name: str
    url: str
    serve: Callable[[Any], Listener]
    connect: Callable[..., Any]
    answering: Callable[[Any], Callable[[Any], Any]]

    def options(self, server: Listener, **given: str) -> SourceOptions:
        """The options of a client of `server`."""
        return parse_options(
            {
                "url": self.url.format(f"{server.host}:{server.port}"),
                "user": "reader",
                "password": PASSWORD,
                "tables": "shop[.].*",
                "connectTimeoutMs": "10000",
                "queryTimeoutMs": "10000",
                "retryTimeoutMs": "10000",
                **given,
            }
        )

    def refused(self, script: Callable[[Any], Any], kind: type[Exception] = SourceError, **given: str) -> Any:
        """The error of connecting to a server that runs `script`, and the server."""
        with self.serve(script) as server, pytest.raises(kind) as caught:
            self.connect(self.options(server, **given), purpose="a test").close()
        assert PASSWORD.encode() not in server.heard
        assert PASSWORD not in str(caught.value)
        return caught.value, server


MYSQL = Database("MySQL or MariaDB", "mysql://{}", fake_mysql.fake_mysql, connect_mysql, fake_mysql.answering)
POSTGRES = Database(
    "PostgreSQL", "postgresql://{}/d", fake_postgres.fake_postgres, connect_postgres, fake_postgres.answering
)


def ends_as_ours(run: Callable[[], object]) -> None:
    """Run an operation that may fail, but only with an error of ours."""
    with contextlib.suppress(TailraceError):
        run()


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    output: str
    seconds: float
    peak_mb: float


def check_as_process(directory: Path, url: str, **given: str) -> Ended:
    """`tailrace check` of a server."""
    lines = "".join(f"  {name}: {value}\n" for name, value in given.items())
    file = directory / "pipeline.yaml"
    file.write_text(
        f"source:\n  url: {url}\n  user: reader\n  password: hunter2\n  tables: shop[.].*\n{lines}"
        f"sink:\n  type: console\npipeline:\n  checkpoint: {directory}/checkpoint\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "check", str(file)], capture_output=True, text=True, check=False
    )
    output, _, peak = (done.stdout + done.stderr).rpartition("PEAK ")
    return Ended(done.returncode, output, time.monotonic() - began, int(peak) / 1024)


#: The command line, which says at its end how much memory it had: what `wait4` says counts the parent's too.
_MEASURED = """
import atexit, re, sys

def peak():
    with open("/proc/self/status") as status:
        print("PEAK", re.search(r"VmHWM:\\s+(\\d+)", status.read())[1], file=sys.stderr)

atexit.register(peak)
sys.argv[0] = "tailrace"
from tailrace.cli import main
main()
"""
