"""Where servers, their packages and their data are kept, and the locks that let processes share them.

Under $TAILRACE_CACHE (default ~/.cache/tailrace):
* `debian/<suite>/apt/`: private state of apt-get: lists, archives
* `debian/<suite>/<package>/`: a package and everything it needs, unpacked
* `wheels/`: the same for wheels
* `templates/`: initialised data directories, copied for each new server
* `run/<name>/`: one server: server.json, log, data
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """The directory `parts` of the cache, made if it is not there.

    Returns:
        A directory under TAILRACE_CACHE, else under ~/.cache/tailrace, else (home not writable) under
        the system's directory for temporary files.
    """
    root = _root()
    path = root.joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the cache's lock `name` against other processes and threads.

    The kernel gives the lock back when its holder dies, so a lock is never left behind.
    """
    path = cache_dir("locks") / f"{name}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _root() -> Path:
    named = os.environ.get("TAILRACE_CACHE")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = (Path(base) if base else Path.home() / ".cache") / "tailrace"
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except (OSError, RuntimeError):
        # No home directory, or one that may not be written: a service user.
        pass
    return Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
