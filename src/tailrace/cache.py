"""The cache of downloads, compiled kernels and development servers, and the locks that processes share.

The cache is `$TAILRACE_CACHE`; without it `tailrace` below `$XDG_CACHE_HOME` or `~/.cache`; and for a user
whose home is not writable, `tailrace-<uid>` in the system's directory for temporary files. Programs are
loaded from it, so a directory that another user owns or may write to is rejected.

    debian/<suite>/apt/       private state of apt-get: lists, archives
    debian/<suite>/<package>/ a package and its dependencies, unpacked
    wheels/                   the same for wheels
    templates/                initialised data directories, copied for each new server
    run/<name>/               one server: server.json, log, data
    delta-<version>/ ...      jars
    classes/                  archives of a JVM's classes, and classes of our own
    kernels/<digest>/         libraries of a checkout's kernels
    python/<digest>/          the script that starts a local Spark's Python processes
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

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_REMEDY = "set TAILRACE_CACHE to a directory that only this user can write to"


def cache_dir(*parts: str) -> Path:
    """The directory `parts` of the cache; created, for this user only, if it does not exist.

    Raises:
        ConfigError: the cache cannot be written, or others can write to it; names TAILRACE_CACHE.
    """
    path = _root()
    for part in parts:  # `parents=True` would create the parent directories by the umask
        path /= part
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(path, error) from None
    return path


def unwritable(path: Path, error: OSError) -> ConfigError:
    """The error for a file or directory `path` of the cache that cannot be written; names TAILRACE_CACHE."""
    return ConfigError(
        f"cache directory `{path}` cannot be written", error.strerror or str(error), _REMEDY, code="TR-1201"
    )


def temporary_dir() -> Path:
    """The system's directory for temporary files.

    Raises:
        ConfigError: there is none that this user may write to.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ConfigError(
            "there is no directory for temporary files",
            error.strerror,
            "set TMPDIR to one, and TAILRACE_CACHE to a directory for files kept between starts",
            code="TR-1201",
        ) from None


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name` against other processes and threads.

    The kernel releases the lock when its holder dies, so a lock is never left behind.

    Raises:
        ConfigError: as of `cache_dir`.
    """
    path = cache_dir("locks") / f"{name}.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise unwritable(path.parent, error) from None
    with file:
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
        found = root.stat()
        # Under `sudo` the home may be another user's.
        if os.access(root, os.W_OK) and found.st_uid == os.getuid():
            if found.st_mode & _OTHERS_WRITE:
                root.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS_WRITE)
            return root
    root = temporary_dir() / f"tailrace-{os.getuid()}"
    _make(root)
    return root


def _make(root: Path) -> None:
    """Create the directory `root`; reject one that others control."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        named, found = root.lstat(), root.stat()
    except OSError as error:
        raise unwritable(root, error) from None
    # A link is as safe as its owner: anybody can put one into a directory for temporary files.
    if (
        named.st_uid not in (os.getuid(), 0)
        or found.st_uid != os.getuid()
        or found.st_mode & _OTHERS_WRITE
        or not stat.S_ISDIR(found.st_mode)
    ):
        raise ConfigError(
            f"cache directory `{root}` is not safe",
            f"it is not a directory that user {os.getuid()} alone can write to; programs are loaded from it",
            _REMEDY,
            code="TR-1202",
        )
