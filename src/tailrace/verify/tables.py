"""Which tables of a pipeline can be compared, and with which target."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.pipeline.rules import Transforms
from tailrace.sinks.route import Router
from tailrace.sources.base import Source
from tailrace.verify.source import SourceTable


@dataclass(frozen=True)
class Routing:
    """The way of a table's rows to its target.

    Args:
        router: the pipeline's routes.
        transforms: the pipeline's transforms.
    """

    router: Router
    transforms: Transforms

    def target(self, table: TableId) -> str:
        """The name of the table's target."""
        return self.router.target(table)

    def transforms_rows(self, table: TableId) -> bool:
        """Whether rows of the table are changed on their way to the target."""
        return bool(self.transforms.rule(table) or self.router.shard_column(table))


def tables_by_target(
    routing: Routing, source: Source, end: StreamOffset, pattern: str | None, *, settled: bool = False
) -> tuple[dict[str, list[SourceTable]], list[tuple[str, str]]]:
    """The tables to compare by target, and the tables that cannot be compared, with the reason.

    A target of several tables is compared with all of them if one matches.

    Args:
        routing: the way of the tables' rows.
        source: the database.
        end: the stream's state.
        pattern: only tables whose whole name it matches; None: all.
        settled: leave out targets of tables that are being read, for the first time or again: they may differ
            until that is done.
    """
    known = sorted({*end.tables, *end.done, *end.parked})
    found = {str(t.schema.id): t for t in source.tables()}
    ids = {name: found[name].schema.id if name in found else TableId.parse(name) for name in known}
    targets = {name: routing.target(id_) for name, id_ in ids.items()}
    chosen = {targets[name] for name in known if pattern is None or re.fullmatch(pattern, name, re.DOTALL)}
    if not chosen:
        raise ConfigError(
            "no table of the pipeline matches",
            f"it has {', '.join(f'`{n}`' for n in known) or 'none'}",
            code="TR-8102",
        )
    parked = {targets[name]: name for name in end.parked}
    being_read = {targets[name]: name for name in unsettled(end)} if settled else {}
    by_target: dict[str, list[SourceTable]] = {}
    skipped: list[tuple[str, str]] = []
    for name in known:
        if targets[name] not in chosen:
            continue
        if name in end.parked:
            skipped.append((name, "it is parked: tailrace resume PIPELINE.YAML " + name))
        elif targets[name] in parked:
            skipped.append((name, f"its target is that of `{parked[targets[name]]}`, which is parked"))
        elif targets[name] in being_read:
            skipped.append((name, f"rows of `{being_read[targets[name]]}` are being read"))
        elif name not in found:
            skipped.append((name, "the source no longer has this table"))
        elif end.mode not in ("initial", "snapshot"):
            skipped.append((name, f"the stream started at `{end.mode}`, without earlier rows"))
        elif routing.transforms_rows(found[name].schema.id):
            skipped.append((name, "the pipeline transforms its rows"))
        elif not found[name].schema.key:
            skipped.append((name, "it has no key"))
        else:
            table, progress = found[name], end.tables.get(name)
            cursor = None if progress is None else progress.cursor
            by_target.setdefault(targets[name], []).append(
                SourceTable(table.schema, table.estimated_rows, progress is not None, cursor)
            )
    return by_target, skipped


def unsettled(end: StreamOffset) -> set[str]:
    """The tables whose rows are being read, for the first time or again."""
    return {*end.tables, *(name for name, reread in end.again.items() if not reread.done)}
