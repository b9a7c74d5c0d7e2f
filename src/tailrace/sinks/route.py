"""Which target a table has: the first route that matches decides, else the table keeps its own name. Pure.

A target's name is made of the author's text and of what a table's name is filled in with. The two differ: the
author's `/` is a directory, one in a table's name is a character; and tables that have the same text and the
same fillings share a target on purpose, while `$1_$2` of `a_b`.`c` and of `a`.`b_c` are one by accident.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config.model import RouteRule
from tailrace.errors import ConfigError
from tailrace.model.paths import relative_path
from tailrace.model.table import TableId

#: A piece of a target's name: whether the author wrote it, and its text.
_Piece = tuple[bool, str]


class Router:
    """Names the target of each table.

    Args:
        rules: in order; the first whose `source_table` matches the whole `database.table` counts.

    Raises:
        ConfigError: a rule's target names a group that its pattern does not have.
    """

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._rules = tuple((re.compile(rule.source_table, re.DOTALL), rule) for rule in rules)
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
        return "".join(text for _, text in self._pieces(table))

    def path(self, table: TableId) -> str:
        """The target's name as a path: the author's `/` divides it, all else is names (`model.paths`)."""
        names = [""]
        for is_author, text in self._pieces(table):
            first, *rest = text.split("/") if is_author else [text]
            names[-1] += first
            names += rest
        return relative_path(names)

    def are_brought_together(self, one: TableId, other: TableId) -> bool:
        """Whether two tables share a target as the routes say: by the same text, filled alike."""
        routed = self._match(one) is not None and self._match(other) is not None
        return routed and self._pieces(one) == self._pieces(other)

    def shard_column(self, table: TableId) -> str | None:
        """The column that tells `table`'s rows from those of the others with its target."""
        found = self._match(table)
        return None if found is None else found[1].shard_column

    def _pieces(self, table: TableId) -> list[_Piece]:
        found = self._match(table)
        if found is None:
            return [(False, str(table))]
        match, rule = found
        symbol = f"|{re.escape(rule.replace_symbol)}" if rule.replace_symbol else ""
        pieces: list[_Piece] = []
        end = 0
        for filled in re.finditer(rf"\$(\d+){symbol}", rule.sink_table):
            pieces.append((True, rule.sink_table[end : filled.start()]))
            text = table.table if filled[1] is None else match[int(filled[1])] or ""
            pieces.append((False, text))
            end = filled.end()
        return [*pieces, (True, rule.sink_table[end:])]

    def _match(self, table: TableId) -> tuple[re.Match[str], RouteRule] | None:
        for pattern, rule in self._rules:
            match = pattern.fullmatch(str(table))
            if match is not None:
                return match, rule
        return None
