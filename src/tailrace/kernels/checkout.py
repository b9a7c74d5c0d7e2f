"""Libraries of kernels that a checkout of the repository compiles: nothing of this happens in a wheel.

They are kept in Tailrace's cache, `kernels/<digest of the sources>/`. So what lies there is never out of
date, and checkouts with the same kernels share it. Processes that start together compile once: the first
holds a lock, the others wait.

The compiler, `tailrace_build`, is beside the package in `src/`, and runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tailrace.cache import cache_dir, locked, unwritable
from tailrace.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_COMPILER = _PACKAGE.with_name("tailrace_build")
#: How long libraries are kept that nobody loads, seconds.
_KEPT_S = 30 * 86400


def is_one() -> bool:
    """Whether this is a checkout."""
    return _COMPILER.is_dir()


def compiled(files: Mapping[str, str]) -> Path:
    """The directory with the libraries of some targets, which are compiled if they are not there.

    Args:
        files: the libraries' file names by target.

    Raises:
        ConfigError: they cannot be compiled, or not be written.
    """
    key = _digest()
    directory = cache_dir("kernels", key)

    def missing() -> list[str]:
        return [target for target, file in files.items() if not (directory / file).exists()]

    if missing():
        with locked(f"kernels-{key}"):
            if targets := missing():  # no other process has made them meanwhile
                _forget_others(key)
                _compile(targets, directory)
    return directory


def _digest() -> str:
    """Of everything that libraries are made of."""
    found = hashlib.sha256()
    for path in sorted([*_PACKAGE.glob("**/kernels/*.py"), *_COMPILER.glob("*.py")]):
        found.update(f"{path.relative_to(_PACKAGE.parent)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:32]


def _compile(targets: list[str], directory: Path) -> None:
    sources = str(_PACKAGE.parent)
    inherited = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{inherited}" if inherited else sources}
    try:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            command = [sys.executable, "-P", "-m", "tailrace_build", scratch, *targets]
            made = subprocess.run(  # noqa: S603 - our own program
                command, env=env, capture_output=True, text=True, check=False
            )
            if made.returncode:
                raise ConfigError(
                    "the kernels of this checkout cannot be compiled",
                    (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1],
                    "run `make setup`, and Tailrace by `.venv/bin/tailrace`",
                    code="TR-1216",
                )
            for file in Path(scratch).iterdir():
                file.replace(directory / file.name)
    except OSError as error:
        raise unwritable(directory, error) from None


def _forget_others(key: str) -> None:
    """Delete the libraries of other sources that no process has loaded for a month."""
    for other in cache_dir("kernels").iterdir():
        files = [path for path in other.rglob("*") if path.is_file()]  # looking at a directory is a use of it
        used = max((file.stat().st_atime for file in files), default=time.time())
        if other.name != key and time.time() - used > _KEPT_S:
            with suppress(OSError):
                shutil.rmtree(other)
