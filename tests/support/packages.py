"""Packages that only a process of its own uses; kept apart from what tests import."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tailrace.cache import cache_dir, locked


def packages_of(requirements: Path, *options: str) -> Path:
    """The directory of some packages, downloaded on first use.

    Args:
        requirements: what it is installed from, with the SHA-256 of each file, in pip's form.
        options: further options of `pip install`.
    """
    name = requirements.stem
    version = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    target = cache_dir(name, version)
    with locked(f"{name}-{version}"):
        done = target / ".installed"
        if not done.exists():
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            command += ["--no-deps", "--require-hashes", "-r", str(requirements), "--target", str(target)]
            subprocess.run([*command, *options], check=True)
            done.touch()
    return target
