"""Directories for files that exist while a batch is written, of one process alone.

    <root>/<lease>-<random>/<name>/      files of one step: removed when it ends, whoever ended it

A process that hung may go on when another one has taken its pipeline over (`sinks.lease`). So neither finds
the other's files among its own, nor removes them, but for what an owner with an older lease has left.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.private import make_private_directory
from tailrace.spark.checkpoint import is_local

#: The directory that sinks keep their own files in.
_OWN = "_tailrace"


class Scratch:
    """The directories of a sink.

    Args:
        root: below which they are, on a file system of this machine, or a mounted one; a URI is none, and
            may not be begun.
    """

    def __init__(self, root: str) -> None:
        self._is_local = is_local(root)
        self._root = Path(root)
        self._own: Path | None = None

    def begin(self, lease: int) -> None:
        """Remove what processes have left that were killed, unless that is done.

        Args:
            lease: of this process; 0: no server runs the pipeline, and no other process does.
        """
        if self._own is not None:
            return
        assert self._is_local, f"{self._root} is in an object store"
        self._own = self._root / f"{lease}-{uuid.uuid4().hex[:12]}"
        self._parents()[-1].parent.mkdir(parents=True, exist_ok=True)
        make_private_directory(self._root)
        with suppress(FileNotFoundError):
            for entry in self._root.iterdir():
                if not lease or _lease_of(entry.name) <= lease:
                    with suppress(FileNotFoundError):
                        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        make_private_directory(self._own)

    @contextmanager
    def directory(self, name: str) -> Iterator[str]:
        """A directory for a step, within one of this user's alone; the first who writes to it creates it.

        Args:
            name: tells it from others of the sink that exist at the same time.
        """
        assert self._own is not None
        path = self._own / name
        try:
            yield str(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove what is left, and the root with those of our own above it, as far as they are empty."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            with suppress(OSError):
                for directory in self._parents():
                    directory.rmdir()

    def _parents(self) -> list[Path]:
        """The root, and the directories above it up to the one that sinks keep their own files in."""
        above = [self._root, *self._root.parents]
        names = [path.name for path in above]
        return above[: names.index(_OWN) + 1] if _OWN in names else above[:1]


def _lease_of(name: str) -> int:
    """The lease of the process that wrote it; 0: it had none, or was an earlier version."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else 0
