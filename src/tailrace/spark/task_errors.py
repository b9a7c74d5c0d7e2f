"""Errors raised in tasks, parsed on the driver: Spark reports a failure in Python as its traceback text.

In Spark's Python processes a TailraceError carries itself as a note (`TailraceError.to_json`), and so the
traceback holds it as data: one line of ASCII JSON after the text for people. A name or a server's message in
that text cannot forge the line, because the last one counts.
"""

from __future__ import annotations

import json
import re

from tailrace import errors
from tailrace.errors import NOTE, TailraceError

_NOTE = re.compile(rf"^{NOTE}(?=\[)", re.MULTILINE)


def parse_error(text: str) -> TailraceError | None:
    """Parse the last error of Tailrace in a traceback.

    Args:
        text: Spark's message, which contains the Python traceback of the process that failed.

    Returns:
        The error; None if the text contains none.
    """
    for note in reversed(list(_NOTE.finditer(text))):
        try:
            # Spark may append its own words to the line.
            name, message, detail, hint, *more = json.JSONDecoder().raw_decode(text, note.end())[0]
        except ValueError:
            continue
        kind = getattr(errors, str(name), None)
        if isinstance(kind, type) and issubclass(kind, TailraceError):
            return kind(message, detail, hint, *more)
    return None
