"""Regular expressions of other tools (Java's) as they are written here (Python's)."""

from __future__ import annotations

import re

from tailrace.errors import ConfigError

#: What Java has and Python has not, or has with another meaning.
_ONLY_JAVA = re.compile(r"\\[pPQEhHRXGzZ]|&&|\\k<")
_LETTER = re.compile(r"[^\W\d_]")


def python_pattern(pattern: str) -> str:
    """A Java pattern in Python's syntax.

    Raises:
        ConfigError: it has something that only Java has.
    """
    changed = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern)
    try:
        if _ONLY_JAVA.search(pattern):
            raise re.error("it has something of Java's that Python does not have")
        re.compile(changed)
    except re.error as error:
        raise ConfigError(
            "a regular expression cannot be taken over",
            f"`{pattern}`: {error}",
            "write it in the file without what only Java's have",
            code="TR-1351",
        ) from None
    return changed


def any_case(pattern: str) -> str:
    """A Java pattern in Python's syntax, matching in any case."""
    changed = python_pattern(pattern)
    without_escapes = re.sub(r"\\.", "", changed)
    if not _LETTER.search(without_escapes) or changed.startswith("(?i)"):
        return changed
    return f"(?i){changed}"


def divided(pattern: str) -> list[str]:
    """The parts of one of Flink CDC's patterns, in which a dot divides and an escaped one is a pattern's.

    Dots in groups and classes divide as well, as they do there.
    """
    parts = re.split(r"(?<!\\)\.", pattern)
    return [part.replace("\\.", ".") for part in parts]


def at_least(dots: int, pattern: str) -> str:
    """`pattern`, which is matched against names with that many dots, with as many dots itself."""
    return pattern if pattern.count(".") >= dots else "(?=" + r".*\." * dots + ")" + pattern
