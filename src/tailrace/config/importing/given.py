"""The settings that another tool's file gives: read, and used up one by one, so that none is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tailrace.config.document import MOST_CHARACTERS
from tailrace.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
#: The end of a key: the first `=`, `:` or space that no backslash precedes.
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*", re.DOTALL)


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        ConfigError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"file `{path}` cannot be read", error.strerror, code="TR-1350") from None
    if len(content) > MOST_CHARACTERS:
        raise ConfigError(
            f"file `{path}` is too large", f"needed: at most {MOST_CHARACTERS} bytes", code="TR-1350"
        )
    return content


def read_text(path: Path) -> str:
    """The text of a file. Raises as `read_bytes`, and for what is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"file `{path}` is not UTF-8 text", code="TR-1350") from None


def json_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object that `text` is.

    Raises:
        ConfigError: it is something else; shows the position, and nothing of the text.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{what} is not JSON", f"line {error.lineno}, column {error.colno}: {error.msg}", code="TR-1350"
        ) from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply", code="TR-1350") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{what} is not a JSON object", code="TR-1350")
    return value


def properties(text: str) -> dict[str, str]:
    """The settings of a file of Java's properties.

    Source: java.util.Properties.load: comments begin with `#` or `!`, a line that ends with an odd number of
    backslashes continues, the last of two equal keys counts.
    """
    found = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # the pattern matches anything
        found[_unescaped(match[1])] = _unescaped(line[match.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    lines = iter(re.split(r"\r\n|\n|\r", text))
    for first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        yield line


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)


class Given:
    """Settings by name; each is taken once.

    Args:
        values: names and texts.
        names: the names that they have in the file, where others are used here.
        prefix: begins all other names.
    """

    def __init__(
        self, values: Mapping[str, str], names: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self._left = dict(values)
        self._names = names or {}
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def named(self, name: str) -> str:
        """The name of a setting in the file."""
        return self._names.get(name, self._prefix + name)

    def take(self, name: str, *, is_secret: bool = False) -> str | None:
        """The setting's text; None if it is not given, or empty.

        Args:
            name: its name.
            is_secret: whether it may be a reference that the other tool resolves.

        Raises:
            ConfigError: it is such a reference, and its value is needed.
        """
        text = self._left.pop(name, "").strip()
        if "${" in text and not is_secret:
            raise ConfigError(
                f"the value of `{self.named(name)}` is a reference",
                "it is resolved by the tool that the file was written for, or by its installation",
                "write the value into the file",
                code="TR-1351",
            )
        return text or None

    def needed(self, name: str) -> str:
        """The setting's text.

        Raises:
            ConfigError: it is not given.
        """
        text = self.take(name)
        if text is None:
            raise ConfigError(
                f"`{self.named(name)}` is missing in the file",
                "a pipeline cannot be made without it",
                "add it",
                code="TR-1351",
            )
        return text

    def flag(self, name: str, *, default: bool) -> bool:
        """The setting as true or false.

        Raises:
            ConfigError: it is neither.
        """
        text = self.take(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong(self.named(name), "needed true or false")
        return text.lower() == "true"

    def number(self, name: str) -> int | None:
        """The setting as a whole number, None if it is not given.

        Raises:
            ConfigError: it is none.
        """
        text = self.take(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise wrong(self.named(name), "needed a whole number")
        return int(text)

    def matching(self, pattern: str) -> list[re.Match[str]]:
        """The names that are left and match as a whole, in the file's order."""
        return [match for name in self._left if (match := re.fullmatch(pattern, name))]

    def left(self) -> list[str]:
        """The names of the settings that nobody has taken."""
        return list(self._left)

    def without(self, prefix: str) -> Given:
        """Takes the settings whose names begin with `prefix`: they, without it."""
        names = [name for name in self._left if name.startswith(prefix)]
        return Given(
            {name[len(prefix) :]: self._left.pop(name) for name in names},
            {name[len(prefix) :]: self.named(name) for name in names},
            self._prefix + prefix,
        )


def wrong(name: str, needed: str) -> ConfigError:
    """The error about a setting whose value is not shown."""
    return ConfigError(f"`{name}` has a wrong value", needed, code="TR-1351")


def listed(text: str) -> list[str]:
    r"""The parts of a list with commas, in which `\,` is a comma of a part: Debezium's lists."""
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    return [part for part in parts if part]
