"""HOCON as SeaTunnel's files have it: objects, lists, texts, numbers, comments; JSON is a part of it.

What refers to something else is refused (`include`, substitutions outside of quotes, `+=`): its value is not
in the file. Sources and sinks are the keys of an object that may occur more than once, so an object keeps all
of its entries, in order.

Source: lightbend/config, HOCON.md.
"""

from __future__ import annotations

import re
from typing import Any

from tailrace.config.importing.given import wrong
from tailrace.errors import ConfigError

#: A key and its value, for each entry of an object.
Entries = list[tuple[str, Any]]

_TOKEN = re.compile(
    r'(?P<space>[ \t\r\f\ufeff]+|(?:\#|//)[^\n]*)|(?P<line>\n)|(?P<triple>"""(?:(?!""").|\n)*"*""")'
    r'|(?P<text>"(?:\\.|[^"\\\n])*")|(?P<mark>\+=|[{}\[\],:=])|(?P<plain>(?:(?!//)[^\s{}\[\],:=+#"])+|\+(?!=))',
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DEEPEST = 32


def read_hocon(text: str) -> Entries:
    """The entries of the object that `text` is.

    Raises:
        ConfigError: it is something else; shows the line, and nothing of the text.
    """
    reader = _Reader(text)
    entries = reader.root()
    if reader.peek()[0] != "end":
        raise reader.error("something follows the end of the object")
    return entries


def flat(entries: Entries, prefix: str = "") -> dict[str, Any]:
    """Settings with their whole names: `a { b = 1 }` is `a.b`. The last of two counts."""
    found: dict[str, Any] = {}
    for key, value in entries:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def one_text(value: Any, name: str) -> str:
    """A value as a text; lists of texts with commas between them."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if not isinstance(value, str):
        raise wrong(name, "needed a text, a number or a list of them")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[tuple[str, str, int]] = []
        while self._at < len(text):
            match = _TOKEN.match(text, self._at)
            if match is None:
                raise self.error("there is something that cannot be read", self._at)
            if match.lastgroup != "space":
                self._tokens.append((str(match.lastgroup), match[0], self._at))
            self._at = match.end()
        self._next = 0

    def error(self, problem: str, at: int | None = None) -> ConfigError:
        """The error about the present position."""
        place = self.peek()[2] if at is None else at
        line = self._text.count("\n", 0, place) + 1
        return ConfigError(
            f"the file cannot be read at line {line}",
            problem,
            "SeaTunnel's files may be JSON, too: write it so",
            code="TR-1350",
        )

    def peek(self) -> tuple[str, str, int]:
        """The next token."""
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "", len(self._text))

    def root(self) -> Entries:
        """The file's object, in braces or without them."""
        self._lines()
        if self.peek()[1] == "{" and self.peek()[0] == "mark":
            self._next += 1
            entries = self._object("}", 0)
            self._lines()
            return entries
        return self._object("", 0)

    def _lines(self, *, commas: bool = False) -> None:
        while self.peek()[0] == "line" or (commas and self.peek()[1] == "," and self.peek()[0] == "mark"):
            self._next += 1

    def _is(self, mark: str) -> bool:
        return self.peek()[0] == "mark" and self.peek()[1] == mark

    def _object(self, end: str, depth: int) -> Entries:
        if depth > _DEEPEST:
            raise self.error("it is nested too deeply")
        entries: Entries = []
        while True:
            self._lines(commas=True)
            if self.peek()[0] == "end" or (end and self._is(end)):
                if end:
                    if not self._is(end):
                        raise self.error("an object is not closed")
                    self._next += 1
                return entries
            key = self._key()
            if self._is("+="):
                raise self.error("`+=` adds to a value that is elsewhere")
            if self._is("=") or self._is(":"):
                self._next += 1
                self._lines()
            elif not self._is("{"):
                raise self.error("a key has no value")
            entries.append((key, self._value(depth + 1)))

    def _key(self) -> str:
        kind, text, _ = self.peek()
        if kind not in ("plain", "text"):
            raise self.error("expected a key")
        parts = ""
        while self.peek()[0] in ("plain", "text"):
            kind, text, _ = self.peek()
            parts += text if kind == "plain" else _unquoted(text)
            self._next += 1
        if parts == "include":
            raise self.error("`include` names another file")
        return parts

    def _value(self, depth: int) -> Any:
        if self._is("{"):
            self._next += 1
            return self._object("}", depth)
        if self._is("["):
            self._next += 1
            return self._list(depth)
        parts: list[str] = []
        last = -1
        while self.peek()[0] in ("plain", "text", "triple") or self._is(":") or self._is("="):
            kind, text, at = self.peek()
            if kind == "plain" and "$" in text:
                raise self.error("a value refers to another one")
            if parts and at > last:
                parts.append(self._text[last:at])
            parts.append(text[3:-3] if kind == "triple" else _unquoted(text) if kind == "text" else text)
            last = at + len(text)
            self._next += 1
        if not parts:
            raise self.error("a key has no value")
        return "".join(parts)

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while True:
            self._lines(commas=True)
            if self.peek()[0] == "end":
                raise self.error("a list is not closed")
            if self._is("]"):
                self._next += 1
                return items
            if depth > _DEEPEST:
                raise self.error("it is nested too deeply")
            items.append(self._value(depth + 1))


def _unquoted(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text[1:-1], flags=re.DOTALL)
