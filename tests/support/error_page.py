"""`make error-page`: write docs/reference/errors.md from the catalogue of errors."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from tailrace.cli import exit_code
from tailrace.error_catalogue import CATALOGUE, SUBJECTS, Condition
from tailrace.errors import (
    ConfigError,
    DecodeError,
    KeyChangedError,
    PositionLostError,
    PreflightError,
    SchemaMismatchError,
    ServerChangedError,
    SinkError,
    SourceError,
    StateError,
    TableGapError,
    TableLockedError,
    TablesParkedError,
    TailraceError,
    TransientSinkError,
    TransientSourceError,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"

_INTRODUCTION = """\
<!-- Written by `make error-page` from src/tailrace/error_catalogue.py: edit that. -->
# Errors

An error has four parts: a message (what failed), a detail (what was found, what is needed), a hint
(what to do, with the statement to run) and a code, which stands at the end of the message:

```
error: `source.url` is missing [TR-1006]
Detail: give `url` or `hostname` (and `port`)
```

The code names the condition and stays the same when texts change; Python code finds it in
`TailraceError.code`. Its first two digits are the subject. `tailrace check` prints the code of each
finding in the same way.

The class decides what happens next:

{classes}

Definite errors end the stream at once: nothing is skipped. An error of one table alone parks that
table, and the others go on. Transient errors restart it. An error of
a replica's connection has the code of the same error at the source, and is a `SinkError` or
`TransientSinkError`.

Spark reports an error of a Python process only as the text of its traceback. There, the line
`tailrace-error: [class, message, detail, hint, code, table, ...]` holds the error in JSON; the pipeline reads
it and raises the same error.
"""

_MEANINGS: dict[type[TailraceError], str] = {
    ConfigError: "A setting is missing, unknown or wrong.",
    PreflightError: "The server is not set up for capture.",
    PositionLostError: "The log no longer holds the stream's position.",
    TableGapError: "The log lacks changes of some tables; it has those of all others.",
    TransientSourceError: "The source was out of reach longer than `retryTimeoutMs` and `restarts` allow.",
    TableLockedError: "Others hold a lock on a table for too long; other tables can continue.",
    ServerChangedError: "Another server answers, where the stream does not look up its position again.",
    SchemaMismatchError: "Rows do not match the table's known schema.",
    KeyChangedError: "The key under which a table is read is gone.",
    DecodeError: "Bytes from the server are malformed.",
    SourceError: "Reading the source failed otherwise, and will fail again.",
    TransientSinkError: "Writing failed in a way that may pass, more often than `restarts` allows.",
    SinkError: "Writing failed otherwise, and will fail again.",
    TablesParkedError: "Everything is read, except for tables that are parked.",
    StateError: "Stored state (offset, checkpoint, target table) cannot be continued.",
    TailraceError: "A development server or the demo failed.",
}


def page() -> str:
    """The page's text."""
    rows = [f"| `{cls.__name__}` | {text} | {exit_code(cls(''))} |" for cls, text in _MEANINGS.items()]
    classes = "\n".join(["| class | meaning | exit code of `tailrace` |", "|---|---|--:|", *rows])
    introduction = _INTRODUCTION.format(classes=classes)
    return introduction + "".join(f"\n{section}" for section in _sections())


def _sections() -> Iterator[str]:
    for digits, subject in SUBJECTS.items():
        yield f"## {subject} (TR-{digits}..)\n"
        for code, condition in CATALOGUE.items():
            if code.startswith(f"TR-{digits}"):
                yield f"### {code}\n\n{_described(condition)}"


def _described(condition: Condition) -> str:
    title = condition.title[0].upper() + condition.title[1:]
    parts = (f"**{title}.** {_reported(condition.errors)}", condition.cause, f"Fix: {condition.fix}")
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _reported(errors: tuple[type[TailraceError], ...]) -> str:
    if not errors:
        return "A warning of `tailrace check`."
    listed = (f"`{cls.__name__}` (exit code {exit_code(cls(''))})" for cls in errors)
    return " or ".join(listed) + "."


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
