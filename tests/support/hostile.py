"""Helpers of tests against attacking servers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import TailraceError


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
