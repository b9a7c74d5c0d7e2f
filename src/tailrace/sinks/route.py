"""Which target a table has: the first route that matches decides, else the table keeps its own name. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config.model import RouteRule
from tailrace.errors import ConfigError
from tailrace.model.table import TableId


class Router:
    """Names the target of each table.

    Args:
        rules: in order; the first whose `source_table` matches the whole `database.table` counts.

    Raises:
        ConfigError: a rule's target names a group that its pattern does not have.
    """

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._rules = tuple((re.compile(rule.source_table), rule) for rule in rules)
        for i, (pattern, rule) in enumerate(self._rules):
            for number in re.findall(r"\$(\d+)", rule.sink_table):
                if int(number) > pattern.groups:
                    raise ConfigError(
                        f"`route[{i}].sink-table` names group ${number}",
                        f"`{rule.source_table}` has {pattern.groups} groups",
                    )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Router) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    @property
    def adds_columns(self) -> bool:
        """Whether a rule has a `shard_column`."""
        return any(rule.shard_column for _, rule in self._rules)

    def target(self, table: TableId) -> str:
        """The target's name of `table`: `database.table` where no rule matches."""
        found = self._match(table)
        if found is None:
            return str(table)
        match, rule = found
        name = _filled(rule.sink_table, match)
        return name.replace(rule.replace_symbol, table.table) if rule.replace_symbol else name

    def shard_column(self, table: TableId) -> str | None:
        """The column that tells `table`'s rows from those of the others with its target."""
        found = self._match(table)
        return None if found is None else found[1].shard_column

    def _match(self, table: TableId) -> tuple[re.Match[str], RouteRule] | None:
        for pattern, rule in self._rules:
            match = pattern.fullmatch(str(table))
            if match is not None:
                return match, rule
        return None


def _filled(name: str, groups: re.Match[str]) -> str:
    return re.sub(r"\$(\d+)", lambda number: groups[int(number[1])] or "", name)
