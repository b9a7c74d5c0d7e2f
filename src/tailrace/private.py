"""Files and directories that only their owner may read: logs, checkpoints, secrets for another process."""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def make_private_directory(path: Path) -> Path:
    """Make `path` and the directories above it that are missing, for this user only.

    A directory that exists keeps its mode.
    """
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return path


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open `path` for this user only; an opener for `open(path, mode, opener=open_private)`.

    A file that exists loses the permissions that others have.
    """
    descriptor = os.open(path, flags, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Write `text` to the file `path`, replacing it; at no moment can another user read it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with open(new, "x", encoding="utf-8", opener=open_private) as file:
        file.write(text)
    new.replace(path)
