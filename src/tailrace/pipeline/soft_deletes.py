"""How a pipeline's transforms mark rows as deleted, for sinks that find rows which are gone.

A sink that finds such a row has the row of the target, and not that of the source (`model.soft_delete`). So
it can set the columns that are made of the kind of change and the table's name alone; these are evaluated
here, once for a row that is gone, and once for each kind of change that leaves a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.config.model import Converter, TransformRule
from tailrace.errors import ConfigError
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import TableId
from tailrace.pipeline.functions import Functions
from tailrace.pipeline.images import METADATA
from tailrace.pipeline.rules import STAR, Transforms, expressions
from tailrace.spark.jvm import SelectItem, select_items
from tailrace.spark.sql import own_session

_KIND = "__data_event_type__"
_NAMES = frozenset(field.name for field in METADATA)
_GONE, _THERE = "-D", ("+I", "+U")


def keeps_rows(rule: TransformRule) -> bool:
    """Whether targets keep the rows that the source deletes."""
    return rule.converter_after_transform is Converter.SOFT_DELETE or "d" in rule.skipped_operations


def soft_deletes(
    session: SparkSession, transforms: Transforms, tables: Iterable[str], functions: Functions
) -> dict[str, SoftDelete]:
    """The marks of those tables whose targets keep the rows that the source deletes.

    Args:
        session: any session.
        transforms: the pipeline's rules.
        tables: names of tables.
        functions: the functions that transforms may call.
    """
    found = {}
    for name in tables:
        table = TableId.parse(name)
        rule = transforms.rule(table)
        if rule is not None and keeps_rows(rule):
            found[name] = _of_rule(own_session(session), rule, table, functions)
    return found


def require_marks(
    session: SparkSession, rule: TransformRule | None, table: TableId, functions: Functions
) -> None:
    """Require that rows of a table can be marked as deleted.

    Args:
        session: any session.
        rule: the table's transform, None if it has none.
        table: the table.
        functions: the functions that the transform may call.

    Raises:
        ConfigError: they cannot.
    """
    if rule is None or rule.converter_after_transform is not Converter.SOFT_DELETE:
        found = "its transform has no soft delete" if rule is not None else "no transform matches it"
        raise _unmarked(table, found)
    mixed = [item.name for item in _items(session, rule) if _KIND in item.columns and item.columns - _NAMES]
    if mixed:
        raise _unmarked(table, f"`{mixed[0]}` is made of `{_KIND}` and of columns that only the source has")
    if not _of_rule(own_session(session), rule, table, functions).of_existing:
        raise _unmarked(table, "no column of its transform tells deleted rows from others")


def _unmarked(table: TableId, found: str) -> ConfigError:
    return ConfigError(
        f"rows of `{table}` cannot be marked as deleted, as the settings of the source ask for",
        found,
        "transform: [{source-table: ..., projection: \"\\\\*, __data_event_type__ = '-D' AS deleted\", "
        "converter-after-transform: SOFT_DELETE}]",
        code="TR-1032",
        table=str(table),
    )


def _of_rule(session: SparkSession, rule: TransformRule, table: TableId, functions: Functions) -> SoftDelete:
    changed = {*rule.mask_hash, *rule.truncate}
    items = [
        item
        for item in _items(session, rule)
        if _KIND in item.columns <= _NAMES and item.name not in changed and item.name not in rule.primary_keys
    ]
    if not items or rule.converter_after_transform is None:
        return SoftDelete()
    with functions.known_to(session, expressions(rule), table):
        gone, *there = (_evaluated(session, items, table, kind) for kind in (_GONE, *_THERE))
    return SoftDelete(gone, {name: tuple(row[name] for row in there) for name in gone})


def _items(session: SparkSession, rule: TransformRule) -> list[SelectItem]:
    if rule.projection is None:
        return []
    try:
        return select_items(session, STAR.sub(lambda match: f"{match[1]} *", rule.projection.strip()))
    except PySparkException:
        return []  # the transform itself fails with the reason


def _evaluated(
    session: SparkSession, items: Iterable[SelectItem], table: TableId, kind: str
) -> Mapping[str, object]:
    """The values of items for a change of a kind."""
    row = ("", table.database, table.table, kind)
    frame = session.createDataFrame([row], [field.name for field in METADATA])
    values: dict[str, object] = frame.selectExpr(*(item.sql for item in items)).toArrow().to_pylist()[0]
    return values
