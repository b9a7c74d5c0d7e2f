"""Why a stream's source does not answer: noted by the processes that try again, for the one that runs it.

    <checkpoint>/_tailrace/trouble/<operation>.json    {"v": 1, "try": "...", "error": "[...]"}

A stream waits for its source in processes of Spark, for as long as `retryTimeoutMs`, and says nothing to the
driver meanwhile. An operation that is tried again for more than a second is a file, written anew with each
attempt and removed in the end. A file that has not changed for long is of a process that was killed: the
reader's clock alone counts.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError, from_json
from tailrace.sources import network
from tailrace.spark.checkpoint import Directory

_log = logging.getLogger(__name__)
_VERSION = 1
_SUFFIX = ".json"
#: How long a file may stay as it is, seconds: more than an attempt and the pause behind it usually take.
_STALE_S = 60.0
#: How often to look, seconds; on a remote file system.
POLL_S = 0.5
REMOTE_POLL_S = 5.0


def trouble_path(checkpoint: str) -> str:
    """The directory of the operations that are tried again of the stream with a checkpoint."""
    return f"{checkpoint.rstrip('/')}/_tailrace/trouble"


def note_trouble() -> None:
    """Let this process note what it tries again, for streams whose options say where."""
    network.tell_retries(_note)


def _note(options: SourceOptions, operation: str, error: TailraceError | None) -> None:
    if options.trouble_path is None:
        return
    directory = Directory(options.trouble_path, private=True)
    try:
        if error is None:
            directory.remove(operation + _SUFFIX)
            return
        new = uuid.uuid4().hex
        directory.write(new, json.dumps({"v": _VERSION, "try": new, "error": error.to_json()}))
        directory.rename(new, operation + _SUFFIX)
    except OSError as failure:  # it is tried again all the same
        _log.warning("a retry could not be noted: %s", failure.strerror)


class Troubles:
    """What the processes of a stream try again, for the process that runs it.

    Args:
        checkpoint: the stream's checkpoint.
        clock: monotonic seconds.
    """

    def __init__(self, checkpoint: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = Directory(trouble_path(checkpoint), private=True)
        self._clock = clock
        #: The text of each file, and since when it is the same.
        self._seen: dict[str, tuple[str, float]] = {}

    def clear(self) -> None:
        """Remove what an earlier run has left."""
        for name in self._directory.names():
            self._directory.remove(name)

    def current(self) -> TailraceError | None:
        """With what the operation fails that was found first; None: none is tried again."""
        now_s, found = self._clock(), dict[str, tuple[str, float]]()
        for name in self._directory.names():
            text = self._directory.read(name) if name.endswith(_SUFFIX) else None
            if text is None:  # removed meanwhile, or not whole yet
                continue
            before = self._seen.get(name)
            found[name] = before if before is not None and before[0] == text else (text, now_s)
            if now_s - found[name][1] > _STALE_S:
                self._directory.remove(name)
                del found[name]
        known = [name for name in self._seen if name in found]
        names = [*known, *(name for name in found if name not in self._seen)]
        self._seen = {name: found[name] for name in names}
        for text, _ in self._seen.values():
            value = json.loads(text)
            if value["v"] == _VERSION:
                return from_json(value["error"])
        return None
