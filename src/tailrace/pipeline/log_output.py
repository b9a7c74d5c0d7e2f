"""The log file of a run: Spark's warnings, tracebacks and what happens to the pipeline; as text or as JSON.

    text   2026-11-23 14:05:09,412 WARNING tailrace: ...         a traceback takes several lines
    json   {"at": "2026-11-23T14:05:09.412Z", "level": "WARNING", "logger": "tailrace", "message": "...",
            "pipeline": "shop", "table": "shop.orders", "batch": 812, "code": "TR-7001", "error": "..."}

In JSON each line is an object; `table`, `batch`, `code` and `error` (a traceback) are there where they
are known. Two processes write the file, Spark's JVM and this one, both at its end. So it is not renamed when
it is full: its content is copied to `<file>.1`, whose former content moves on to `<file>.2`, and the file is
emptied. What processes print outside of any log goes to the file, too; with JSON to `<file>.out`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

from tailrace.errors import ConfigError, TailraceError
from tailrace.printable import printable, printable_lines
from tailrace.private import open_private
from tailrace.spark.launch import SparkLog

#: Former contents that are kept.
KEPT = 3
#: How often the size is looked at, seconds.
_LOOK_S = 5.0
#: Attributes of a record that become fields.
_FIELDS = ("table", "batch", "code", "event", "rows")


class PrivateFileHandler(logging.FileHandler):
    """A log that only its owner may read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=open_private)


class TextFormatter(logging.Formatter):
    """A message is one line, whatever names and server messages it contains; a traceback is several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """See Formatter."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        return printable_lines(super().format(record))


class JsonFormatter(logging.Formatter):
    """A record is an object on one line.

    Args:
        fields: constants of every line.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._constants = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, object] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": printable(record.getMessage()),
            **self._constants,
        }
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, TailraceError):
            found |= {
                name: value for name in ("table", "code") if (value := getattr(error, name)) is not None
            }
        found |= {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            found["error"] = printable_lines(self.formatException(record.exc_info))
        return json.dumps(found)


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
        handler = PrivateFileHandler(path, delay=True)
        text = TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        handler.setFormatter(JsonFormatter(fields) if is_json else text)
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

    def _rotate(self) -> None:
        while not self._ended.wait(_LOOK_S):
            for file in self._rotated:
                try:
                    file.rotate()
                except OSError as error:  # a full disk: tried again
                    logging.getLogger(__name__).warning("`%s` could not be rotated: %s", file.path, error)
