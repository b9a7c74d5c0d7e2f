"""Columns of tables by patterns: `TABLE:COLUMN,COLUMN;TABLE:COLUMN`, as in Debezium's `message.key.columns`.

Source: debezium/debezium (`Key.CustomKeyMapper`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.config.secret import shown
from tailrace.errors import ConfigError


@dataclass(frozen=True)
class TableColumns:
    """The columns that a setting names for tables.

    Args:
        setting: the setting's name.
        entries: regular expressions over `database.table`, each with columns.
    """

    setting: str
    entries: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def parse(cls, text: str, setting: str) -> TableColumns | None:
        """The columns in `text`; None if it is empty.

        Raises:
            ConfigError: it is wrong.
        """
        entries = []
        for item in filter(None, (part.strip() for part in text.split(";"))):
            pattern, _, listed = item.rpartition(":")
            columns = tuple(column.strip() for column in listed.split(","))
            if not pattern or not all(columns):
                raise _wrong(setting, f"found {shown(item)}, needed TABLE:COLUMN,COLUMN;TABLE:COLUMN")
            try:
                re.compile(pattern)
            except re.error as error:
                raise _wrong(setting, f"{shown(pattern)} is no regular expression: {error}") from None
            entries.append((pattern, columns))
        return cls(setting, tuple(entries)) if entries else None

    def of(self, table: str) -> frozenset[str]:
        """The columns that all entries matching a table's whole name give it."""
        return frozenset(
            column
            for pattern, columns in self.entries
            if re.fullmatch(pattern, table, re.DOTALL)
            for column in columns
        )


def _wrong(setting: str, detail: str) -> ConfigError:
    return ConfigError(f"a value is wrong at `sink.{setting}`", detail, code="TR-1010")
