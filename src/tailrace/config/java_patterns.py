"""Replacement by a regular expression in Java's syntax, as Debezium's and Kafka Connect's routers do it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from tailrace.config.secret import shown
from tailrace.errors import ConfigError

_GROUP = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d)")


@dataclass(frozen=True)
class Replacement:
    """What becomes of a text that a pattern matches as a whole.

    Args:
        regex: the pattern.
        replacement: the new text, with `$1` or `${name}` for groups.
        setting: the path of the setting with the pattern, and of the one with the new text.

    Raises:
        ConfigError: the pattern is none, or has no such group.
    """

    regex: str
    replacement: str
    setting: tuple[str, str]

    def __post_init__(self) -> None:
        try:
            groups = self._pattern
        except re.error as error:
            raise ConfigError(
                f"no regular expression at `{self.setting[0]}`",
                f"{shown(self.regex)}: {error}",
                code="TR-1010",
            ) from None
        pattern = self.setting[0].rpartition(".")[2]
        for _, name, number in _GROUP.findall(self.replacement):
            if (name and name not in groups.groupindex) or int(number or 0) > groups.groups:
                raise ConfigError(
                    f"a group that does not exist is named at `{self.setting[1]}`",
                    f"found {shown(name or number)}, which `{pattern}` does not have",
                    "a named group is written (?<name>...) there, and ${name} here",
                    code="TR-1010",
                )

    def of(self, text: str) -> str | None:
        """The text in place of `text`; None: the pattern does not match it."""
        found = self._pattern.fullmatch(text)
        if found is None:
            return None
        return _GROUP.sub(lambda m: m[1] or found[m[2] or int(m[3])] or "", self.replacement)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", self.regex), re.DOTALL)
