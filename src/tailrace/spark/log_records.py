"""The log records of every Python process of a run, as text or as JSON.

Spark starts Python processes besides ours: one next to the driver, which plans (`spark.source`), and workers
for tasks. The variable TAILRACE_LOG tells them where their records go, and in which form:

    this machine      the log file, to which all processes append
    other machines    stderr, which Spark keeps with the executor's log

Without the variable, as in Spark code of one's own, a process's logging is left alone.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.printable import printable, printable_lines
from tailrace.private import open_private

#: Environment variable: JSON with `path` (null: stderr) and `fields` (null: text).
VARIABLE = "TAILRACE_LOG"
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


def handler(path: Path | None, fields: Mapping[str, str] | None) -> logging.Handler:
    """What writes a process's records.

    Args:
        path: the log file; None: stderr.
        fields: the records are JSON, each with these constants; None: they are text.
    """
    text = TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    made = logging.StreamHandler(sys.stderr) if path is None else PrivateFileHandler(path, delay=True)
    made.setFormatter(text if fields is None else JsonFormatter(fields))
    return made


def settings(path: Path | None, fields: Mapping[str, str] | None) -> dict[str, str]:
    """The variable for processes that are to write as `handler` does."""
    place = None if path is None else str(path.absolute())
    return {VARIABLE: json.dumps({"path": place, "fields": None if fields is None else dict(fields)})}


def follow_settings() -> None:
    """Write this process's records, and Python's warnings, as the variable says."""
    given = os.environ.get(VARIABLE)
    if given is None or logging.getLogger().handlers:
        return
    found = json.loads(given)
    path = None if found["path"] is None else Path(found["path"])
    logging.basicConfig(level=logging.WARNING, handlers=[handler(path, found["fields"])])
    logging.captureWarnings(capture=True)
