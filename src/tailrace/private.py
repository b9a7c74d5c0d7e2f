"""Files and directories that only their owner may read: logs, checkpoints, secrets for another process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def make_private_directory(path: Path) -> Path:
    """Create `path` and its missing parents, for this user only.

    A directory that exists keeps its mode.
    """
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return path


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open `path` for this user only; an opener for `open(path, mode, opener=open_private)`.

    An existing file of this user loses the permissions of others; a device keeps them.
    """
    descriptor = os.open(path, flags, FILE_MODE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def make_tree_private(path: Path) -> None:
    """Create the directory `path`, or remove the permissions of others on it and on everything below it.

    Files of another user keep their modes, and links below `path` are not followed.
    """
    make_private_directory(path)
    _restrict(path, path.stat())
    for directory, directories, files in os.walk(path):
        for name in (*directories, *files):
            _restrict(Path(directory, name), Path(directory, name).lstat())


def _restrict(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
        return
    mode = DIRECTORY_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE
    if stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)


def write_private(path: Path, text: str) -> None:
    """Write `text` to the file `path`, replacing it; at no moment can another user read it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with open(new, "x", encoding="utf-8", opener=open_private) as file:
        file.write(text)
    new.replace(path)
