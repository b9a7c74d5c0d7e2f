"""Errors raised in tasks, parsed on the driver: Spark reports a failure in Python as its traceback text.

In Spark's Python processes a TailraceError carries itself as a note (`TailraceError.to_json`), and so the
traceback holds it as data: one line of ASCII JSON after the text for people. A name or a server's message in
that text cannot forge the line, because the last one counts.
"""

from __future__ import annotations

import re

from tailrace.errors import NOTE, TailraceError, from_json

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
            return from_json(text, note.end())
        except ValueError:
            continue
    return None
