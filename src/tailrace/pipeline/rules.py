"""The transform rule of a table, and its projection in SQL. The first rule that matches counts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config.model import TransformRule
from tailrace.model.sparksql import identifier
from tailrace.model.table import TableId, TableSchema

#: `*` as an item of a projection, written `\\*` in Flink CDC's files.
STAR = re.compile(r"(^|,)\s*\\?\*\s*(?=,|$)")


class Transforms:
    """The rules of a pipeline.

    Args:
        rules: in order; the first whose `source_table` matches the whole `database.table` counts.
    """

    def __init__(self, rules: Sequence[TransformRule]) -> None:
        self._rules = [(re.compile(rule.source_table, re.DOTALL), rule) for rule in rules]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def rule(self, table: TableId) -> TransformRule | None:
        """The rule of `table`, None if it has none."""
        return next((rule for pattern, rule in self._rules if pattern.fullmatch(str(table))), None)


def projection_sql(rule: TransformRule, table: TableSchema) -> str:
    """The select list of `rule`; every column of the table if it has no projection."""
    columns = ", ".join(identifier(c.name) for c in table.columns)
    if rule.projection is None:
        return columns
    return STAR.sub(lambda match: f"{match[1]} {columns}", rule.projection.strip())


def expressions(rule: TransformRule) -> str:
    """What a rule has of Spark SQL."""
    return f"{rule.projection or ''} {rule.filter or ''}"
