"""Pipeline files of the benchmark's database, and `tailrace run` of them as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench import data
from bench.servers import Server

_PASSWORD = "BENCH_PASSWORD"


def pipeline_file(
    file: Path,
    server: Server,
    sink: Mapping[str, Any],
    tables: str = "items",
    *,
    start: str = "initial",
    **pipeline: str,
) -> Path:
    """Write a pipeline file, whose checkpoint is beside it.

    Args:
        file: the file; its directory is created.
        server: the source; its password goes by a variable of this process.
        sink: its section.
        tables: a pattern of the captured tables.
        start: the starting position.
        pipeline: settings of the pipeline; default: `trigger: available-now`.
    """
    os.environ[_PASSWORD] = server.password
    document = {
        "source": {
            "type": "mysql",
            "hostname": server.host,
            "port": server.port,
            "username": server.user,
            "password": f"${{env:{_PASSWORD}}}",
            "tls-mode": "disabled",
            "tables": rf"{data.DATABASE}\.{tables}",
            "starting-position": start,
        },
        "sink": dict(sink),
        "pipeline": {"trigger": "available-now", "checkpoint": str(file.parent / "checkpoint"), **pipeline},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def command(file: Path) -> list[str]:
    """The command that runs a pipeline."""
    return [sys.executable, "-m", "tailrace", "run", str(file)]


def run(file: Path) -> None:
    """Run a pipeline to its end."""
    subprocess.run(command(file), check=True, stdout=subprocess.DEVNULL)
