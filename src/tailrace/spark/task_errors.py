"""Errors raised in tasks, parsed on the driver: Spark reports a failure in Python as its traceback text."""

from __future__ import annotations

import re

from tailrace import errors
from tailrace.errors import TailraceError

_RAISED = re.compile(r"^(?:.*: )?tailrace\.errors\.(\w+): ", re.MULTILINE)
_END = re.compile(
    r"^\s*$|^\s+at |^Caused by: |^JVM stacktrace|^Traceback|^=== |\s*SQLSTATE: \w{5}", re.MULTILINE
)


def parse_error(text: str) -> TailraceError | None:
    """Parse the last error of Tailrace in a traceback.

    Args:
        text: Spark's message, which contains the Python traceback of the process that failed.

    Returns:
        The error; None if the text contains none.
    """
    found = list(_RAISED.finditer(text))
    if not found:
        return None
    kind = getattr(errors, found[-1][1], None)
    if not (isinstance(kind, type) and issubclass(kind, TailraceError)):
        return None
    rest = text[found[-1].end() :]
    end = _END.search(rest)
    message, detail, hint = rest[: end.start()] if end else rest, None, None
    if "\nHint: " in message:
        message, hint = message.split("\nHint: ", 1)
    if "\nDetail: " in message:
        message, detail = message.split("\nDetail: ", 1)
    return kind(message.strip(), detail and detail.strip(), hint and hint.strip())
