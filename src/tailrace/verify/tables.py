"""Which tables of a pipeline can be compared, and with which target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.model.column_mask import ColumnMask
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.rules import Transforms
from tailrace.sinks.route import Router
from tailrace.sources.base import Source
from tailrace.verify.portion import has_numbers_as_key
from tailrace.verify.range_reader import SourceTable


@dataclass(frozen=True)
class Routing:
    """The way of a table's rows to its target.

    Args:
        router: the pipeline's routes.
        transforms: the pipeline's transforms.
        masks: the columns' masks.
    """

    router: Router
    transforms: Transforms
    masks: Sequence[ColumnMask] = ()

    def target(self, table: TableId) -> str:
        """The name of the table's target."""
        return self.router.target(table)

    def transforms_rows(self, table: TableId) -> bool:
        """Whether rows of the table are changed on their way to the target."""
        return bool(self.transforms.rule(table))

    def masks_columns(self, table: TableSchema) -> bool:
        """Whether values of the table are masked."""
        return any(mask.has(table.id, column.name) for mask in self.masks for column in table.columns)

    def shard(self, table: TableId) -> tuple[str, str] | None:
        """The column that tells the table's rows from others of its target, and what it holds in them."""
        column = self.router.shard_column(table)
        return None if column is None else (column, self.router.shard_value(table))


def tables_by_target(
    routing: Routing,
    source: Source,
    end: StreamOffset,
    pattern: str | None,
    *,
    settled: bool = False,
    in_part: bool = False,
) -> tuple[dict[str, list[SourceTable]], list[tuple[str, str]]]:
    """The tables to compare by target, and the tables that cannot be compared, with the reason.

    A target of several tables is compared with all of them if one matches, unless a shard column tells which
    rows are whose.

    Args:
        routing: the way of the tables' rows.
        source: the database.
        end: the stream's state.
        pattern: only tables whose whole name it matches; None: all.
        settled: leave out targets of tables that are being read, for the first time or again: they may differ
            until that is done.
        in_part: only some ranges of keys are compared: leave out tables of which these cannot be told.
    """
    known = sorted({*end.tables, *end.done, *end.parked})
    found = {str(t.schema.id): t for t in source.tables()}
    ids = {name: found[name].schema.id if name in found else TableId.parse(name) for name in known}
    targets = {name: routing.target(id_) for name, id_ in ids.items()}
    matching = {name for name in known if pattern is None or re.fullmatch(pattern, name, re.DOTALL)}
    # rows with a shard column are compared by themselves, whatever else the target has
    alone = {name for name in known if routing.shard(ids[name]) is not None}
    columns: dict[str, set[str]] = {}
    for name, id_ in ids.items():
        shard = routing.shard(id_)
        columns.setdefault(targets[name], set()).add("" if shard is None else shard[0])
    chosen = {targets[name] for name in matching}
    if not chosen:
        raise ConfigError(
            "no table of the pipeline matches",
            f"it has {', '.join(f'`{n}`' for n in known) or 'none'}",
            code="TR-8102",
        )
    parked = {targets[name]: name for name in end.parked if name not in alone}
    partial = {targets[name]: name for name in end.partial if name in targets and name not in alone}
    reading = unsettled(end) if settled else set(end.tables) if in_part else set()
    being_read = {targets[name]: name for name in reading if name not in alone}
    by_target: dict[str, list[SourceTable]] = {}
    skipped: list[tuple[str, str]] = []
    for name in known:
        if targets[name] not in chosen or (name in alone and name not in matching):
            continue
        if name in end.parked:
            skipped.append((name, "it is parked: tailrace resume PIPELINE.YAML " + name))
        elif targets[name] in parked:
            skipped.append((name, f"its target is that of `{parked[targets[name]]}`, which is parked"))
        elif name in reading or targets[name] in being_read:
            which = name if name in reading else being_read[targets[name]]
            skipped.append((name, f"rows of `{which}` are being read"))
        elif len(columns[targets[name]]) > 1:
            skipped.append((name, "not all tables of its target have the same shard column"))
        elif name not in found:
            skipped.append((name, "the source no longer has this table"))
        elif end.mode not in ("initial", "snapshot"):
            skipped.append((name, f"the stream started at `{end.mode}`, without earlier rows"))
        elif name in end.partial or targets[name] in partial:
            which = name if name in end.partial else partial[targets[name]]
            skipped.append((name, f"the stream follows `{which}` without earlier rows"))
        elif routing.transforms_rows(found[name].schema.id):
            skipped.append((name, "the pipeline transforms its rows"))
        elif routing.masks_columns(found[name].schema):
            skipped.append((name, "its columns are masked"))
        elif name in alone and routing.router.source:
            # commits of a shared Delta table do not tell whose batch they are
            skipped.append((name, "other sources may write its target, whose batches have other numbers"))
        elif not found[name].schema.key:
            skipped.append((name, "it has no key"))
        elif in_part and not has_numbers_as_key(found[name].schema):
            skipped.append((name, "its key is not made of whole numbers: it can only be compared as a whole"))
        else:
            table, progress = found[name], end.tables.get(name)
            cursor = None if progress is None else progress.cursor
            by_target.setdefault(targets[name], []).append(
                SourceTable(
                    table.schema,
                    table.estimated_rows if progress is None else progress.rows,
                    progress is not None,
                    cursor,
                    routing.shard(table.schema.id),
                )
            )
    return by_target, skipped


def unsettled(end: StreamOffset) -> set[str]:
    """The tables whose rows are being read, for the first time or again."""
    return {*end.tables, *(name for name, reread in end.again.items() if not reread.done)}
