"""Routes: the name of each table's target, by the first route that matches, or the table's own name. Pure.

A target's name consists of the route's own text and of parts substituted from the table's name. They differ:
a `/` in the route separates directories, a `/` from a table's name is a plain character. Tables with the same
text and equal substitutions share a target on purpose; `$1_$2` for `a_b`.`c` and for `a`.`b_c` gives one name
by accident.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config.model import RouteRule
from tailrace.errors import ConfigError
from tailrace.model.paths import relative_path
from tailrace.model.table import TableId

#: What lets a pattern match several names; a dot alone is taken for a dot.
_WILD = re.compile(r"[*+?\[\](){}|^$\\]")
#: A part of a target's name: whether it is the route's own text, and the text.
_Part = tuple[bool, str]


class Router:
    """Names the target of each table.

    Args:
        rules: the routes in order; the first whose `source_table` matches the whole `database.table` applies.
        source: the name of the tables' source if there are several, else "".

    Raises:
        ConfigError: a rule's target names a group that its pattern does not have.
    """

    def __init__(self, rules: Sequence[RouteRule], source: str = "") -> None:
        self._source = source
        self._rules = tuple((re.compile(rule.source_table, re.DOTALL), rule) for rule in rules)
        for i, (pattern, rule) in enumerate(self._rules):
            for number in re.findall(r"\$(\d+)", rule.sink_table):
                if int(number) > pattern.groups:
                    raise ConfigError(
                        f"`route[{i}].sink-table` names group ${number}",
                        f"`{rule.source_table}` has {pattern.groups} groups",
                        code="TR-1510",
                    )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Router) and (self._rules, self._source) == (other._rules, other._source)

    def __hash__(self) -> int:
        return hash((self._rules, self._source))

    @property
    def adds_columns(self) -> bool:
        """Whether a route has a `shard_column`."""
        return any(rule.shard_column for _, rule in self._rules)

    def target(self, table: TableId) -> str:
        """The name of the target of `table`: `database.table` if no route matches."""
        return "".join(text for _, text in self._parts(table))

    def path(self, table: TableId) -> str:
        """The target's name as a path: only the `/` of a route separates directories (`model.paths`)."""
        names = [""]
        for is_own, text in self._parts(table):
            first, *rest = text.split("/") if is_own else [text]
            names[-1] += first
            names += rest
        return relative_path(names)

    def are_brought_together(self, one: TableId, other: TableId) -> bool:
        """Whether the routes give two tables one target on purpose: equal text, equal substitutions."""
        routed = self._match(one) is not None and self._match(other) is not None
        return routed and self._parts(one) == self._parts(other)

    def brings_many_together(self, table: TableId) -> bool:
        """Whether the route of `table` matches other names, too, and gives them all one target."""
        found = self._match(table)
        if found is None or any(not is_own for is_own, _ in self._parts(table)):
            return False
        return _WILD.search(found[1].source_table.replace("\\.", ".")) is not None

    def shard_column(self, table: TableId) -> str | None:
        """The column that distinguishes the rows of `table` from those of other tables with its target."""
        found = self._match(table)
        return None if found is None else found[1].shard_column

    @property
    def source(self) -> str:
        """The name of the tables' source if there are several, else ""."""
        return self._source

    @property
    def shard_prefix(self) -> str:
        """What the names of tables begin with in shard columns."""
        return f"{self._source}." if self._source else ""

    def shard_value(self, table: TableId) -> str:
        """What the shard column holds in the rows of `table`."""
        return f"{self.shard_prefix}{table}"

    def _parts(self, table: TableId) -> list[_Part]:
        found = self._match(table)
        if found is None:
            return [(False, str(table))]
        match, rule = found
        symbol = f"|{re.escape(rule.replace_symbol)}" if rule.replace_symbol else ""
        parts: list[_Part] = []
        end = 0
        for placeholder in re.finditer(rf"\$(\d+){symbol}", rule.sink_table):
            parts.append((True, rule.sink_table[end : placeholder.start()]))
            text = table.table if placeholder[1] is None else match[int(placeholder[1])] or ""
            parts.append((False, text))
            end = placeholder.end()
        return [*parts, (True, rule.sink_table[end:])]

    def _match(self, table: TableId) -> tuple[re.Match[str], RouteRule] | None:
        for pattern, rule in self._rules:
            match = pattern.fullmatch(str(table))
            if match is not None:
                return match, rule
        return None
