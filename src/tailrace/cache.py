"""Where downloads, compiled code and development servers are kept, and the locks that processes share.

The cache is `$TAILRACE_CACHE`; without it `tailrace` below `$XDG_CACHE_HOME` or `~/.cache`; and for a user
whose home cannot be written, `tailrace-<uid>` in the system's directory for temporary files. Programs are
loaded from it, so a directory that another user owns or may write to is refused.

    debian/<suite>/apt/       private state of apt-get: lists, archives
    debian/<suite>/<package>/ a package and everything it needs, unpacked
    wheels/                   the same for wheels
    templates/                initialised data directories, copied for each new server
    run/<name>/               one server: server.json, log, data
    delta-<version>/ ...      jars
    classes/                  archives of a JVM's classes
    log/                      logs of pipelines without a local checkpoint
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.errors import ConfigError

_REMEDY = "set TAILRACE_CACHE to a directory that only this user can write to"


def cache_dir(*parts: str) -> Path:
    """The directory `parts` of the cache; made, for this user only, if it is not there.

    Raises:
        ConfigError: the cache cannot be written, or others can write to it; names TAILRACE_CACHE.
    """
    path = _root().joinpath(*parts)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cache directory `{path}` cannot be made", error.strerror, _REMEDY) from None
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name` against other processes and threads.

    The kernel releases the lock when its holder dies, so a lock is never left behind.
    """
    path = cache_dir("locks") / f"{name}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _root() -> Path:
    if named := os.environ.get("TAILRACE_CACHE"):
        root = Path(named).absolute()
        _make(root)
        return root
    with suppress(OSError, RuntimeError):  # no home directory, or one that may not be written: a service user
        base = os.environ.get("XDG_CACHE_HOME")
        root = (Path(base) if base else Path.home() / ".cache") / "tailrace"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    root = Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    _make(root)
    return root


def _make(root: Path) -> None:
    """Make the directory `root`; refuse one that others control."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.lstat() if root.parent == Path(tempfile.gettempdir()) else root.stat()
    except OSError as error:
        raise ConfigError(f"cache directory `{root}` cannot be made", error.strerror, _REMEDY) from None
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022 or not stat.S_ISDIR(found.st_mode):
        raise ConfigError(
            f"cache directory `{root}` is not safe",
            f"it is not a directory that user {os.getuid()} alone can write to; programs are loaded from it",
            _REMEDY,
        )
