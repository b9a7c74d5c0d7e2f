"""The log file of a run: Spark's warnings, tracebacks and what happens to the pipeline; as text or as JSON.

    text   2026-11-23 14:05:09,412 WARNING tailrace: ...         a traceback takes several lines
    json   {"at": "2026-11-23T14:05:09.412Z", "level": "WARNING", "logger": "tailrace", "message": "...",
            "pipeline": "shop", "table": "shop.orders", "batch": 812, "code": "TR-7001", "error": "..."}

In JSON each line is an object; `table`, `batch`, `code` and `error` (a traceback) are there where they
are known. Several processes write the file, all at its end: Spark's JVM, its Python processes
(`spark.log_records`) and this one. So it is not renamed when it is full: its content is copied to `<file>.1`,
whose former content moves on to `<file>.2`, and the file is emptied. What processes print outside of any log
goes to the file, too; with JSON to `<file>.out`.

Where a process runs several pipelines (`pipeline.host`), each has a file of its own for what its threads log;
what Spark and its Python processes log is in the file of the process.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tailrace.errors import ConfigError
from tailrace.private import open_private
from tailrace.spark import log_records
from tailrace.spark.launch import SparkLog

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Former contents that are kept.
KEPT = 3
#: How often the size is looked at, seconds.
_LOOK_S = 5.0
#: In threads of a pipeline that has a log of its own in this process: which one it is.
_OWN: ContextVar[object | None] = ContextVar("tailrace_log", default=None)


def in_this_log(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """`work`, to be called by another thread, whose records go where those of this thread go.

    One thread at a time may call it.
    """
    context = copy_context()

    def called(*given: _P.args, **named: _P.kwargs) -> _R:
        return context.run(work, *given, **named)

    return called


@dataclass(frozen=True)
class RotatedFile:
    """A file that several processes append to.

    Args:
        path: the file.
        most: its size, in bytes, from which on it is emptied.
    """

    path: Path
    most: int

    def rotate(self) -> bool:
        """Keep a copy and empty the file, if it is full; whether it was."""
        try:
            if self.path.stat().st_size < self.most:
                return False
        except FileNotFoundError:
            return False
        for number in range(KEPT - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._kept(number).replace(self._kept(number + 1))
        with (
            self.path.open("rb") as full,
            open(self._kept(1), "wb", opener=open_private) as kept,
        ):
            shutil.copyfileobj(full, kept)
            os.truncate(self.path, 0)
        return True

    def _kept(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class LogOutput:
    """Writes Python's own logging to a log file, and keeps the file small; a context manager.

    Args:
        path: the file.
        pipeline: the pipeline's name, a field of JSON.
        is_json: JSON rather than text.
        max_bytes: size from which on the file is emptied.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path, pipeline: str, *, is_json: bool, max_bytes: int) -> None:
        fields = {"pipeline": pipeline}
        #: For Spark's JVM.
        self.file = SparkLog(path, fields if is_json else None, rolls=False)
        self._most = max_bytes
        self._rotated = [RotatedFile(file, max_bytes) for file in {path, self.file.output}]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._rotate, name="log", daemon=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        except OSError as error:
            raise ConfigError(
                f"log file `{path}` cannot be written",
                error.strerror,
                "name another one with `--log-file`; by default, it is next to the checkpoint",
                code="TR-1201",
            ) from None
        handler = log_records.handler(path, fields if is_json else None)
        handler.addFilter(lambda _: _OWN.get() is None)
        # py4j reports each failed call
        logging.basicConfig(level=logging.WARNING, handlers=[handler])

    def __enter__(self) -> LogOutput:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def of(self, path: Path) -> Iterator[None]:
        """In this context, what this thread logs goes to another file; `in_this_log` takes it along.

        Args:
            path: the file; may be this log's own.
        """
        os.close(open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        own = object()
        handler = log_records.handler(path, None)
        handler.addFilter(lambda _: _OWN.get() is own)
        rotated = RotatedFile(path, self._most)
        if path != self.file.path:
            self._rotated = [*self._rotated, rotated]
        logging.getLogger().addHandler(handler)
        token = _OWN.set(own)
        try:
            yield
        finally:
            _OWN.reset(token)
            logging.getLogger().removeHandler(handler)
            handler.close()
            self._rotated = [file for file in self._rotated if file is not rotated]

    def _rotate(self) -> None:
        while not self._ended.wait(_LOOK_S):
            for file in self._rotated:
                try:
                    file.rotate()
                except OSError as error:  # a full disk: tried again
                    logging.getLogger(__name__).warning("`%s` could not be rotated: %s", file.path, error)
