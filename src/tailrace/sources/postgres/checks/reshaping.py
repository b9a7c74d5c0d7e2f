"""Schema changes of tables as events: what the log's Relation messages and the catalog tell together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tailrace.model.schema_change import RowsRewritten, SchemaEvent
from tailrace.model.table import Column, TableSchema
from tailrace.sources.base import Reshaped
from tailrace.sources.postgres.catalog import CatalogTable
from tailrace.sources.postgres.position import seq_of
from tailrace.sources.postgres.replication.follower import LoggedRelation, WalRange
from tailrace.sources.postgres.wire.relation import Relation
from tailrace.sources.postgres.wire.shapes import Shape, ShapeColumn, changes_between, resolved, untold


class Reshaping:
    """Tells the schema changes of one stream's tables.

    Args:
        unfit: `SourceOptions.unfit`.
        is_followed: whether targets rename and drop columns.
    """

    def __init__(self, unfit: Callable[[str], str | None], *, is_followed: bool) -> None:
        self._unfit = unfit
        self._is_followed = is_followed
        self._known: Mapping[int, Shape] = {}

    def know(self, shapes: Mapping[str, Any]) -> None:
        """Note the shapes by which the stream knows its tables."""
        parsed = (Shape.from_json(value) for value in shapes.values())
        self._known = {shape.oid: shape for shape in parsed if shape is not None}

    def differs(self, relation: Relation) -> bool:
        """Whether the stream knows the table of a Relation by other columns; called by any thread."""
        known = self._known.get(relation.oid)
        return known is not None and not known.is_that_of(relation)

    def are_told(self, table: CatalogTable, before: Any, *, is_read: bool) -> bool:
        """Whether events tell what became of a table's columns since it had the shape `before`."""
        known = None if before is None else Shape.from_json(before)
        if known is None or table.shape is None:
            return False
        return not untold(known, table.shape, is_read=is_read, is_followed=self._is_followed)

    def in_log(self, found: WalRange, shapes: Mapping[str, Any]) -> dict[str, list[LoggedRelation]]:
        """The descriptions of tables in a range of the log, of those that have others there than known."""
        if not found.relations:
            return {}
        by_oid: dict[int, list[LoggedRelation]] = {}
        for logged in found.relations:
            by_oid.setdefault(logged.relation.oid, []).append(logged)
        return {
            name: by_oid[shape.oid]
            for name, shape in _parsed(shapes)
            if not all(shape.is_that_of(each.relation) for each in by_oid.get(shape.oid, ()))
        }

    def placed(
        self,
        found: WalRange,
        shapes: Mapping[str, Any],
        tables: Mapping[str, CatalogTable],
        reading: Collection[str],
    ) -> dict[str, Reshaped]:
        """See `Source.placed`."""
        made = {}
        for name, logged in self.in_log(found, shapes).items():
            before, table = Shape.from_json(shapes[name]), tables.get(name)
            if before is None or table is None or table.shape is None:
                continue
            made[name] = self._placed(table, before, logged, is_read=name in reading)
        return made

    def _placed(
        self, table: CatalogTable, before: Shape, logged: list[LoggedRelation], *, is_read: bool
    ) -> Reshaped:
        assert table.shape is not None
        first = logged[0]
        if not first.begins or any(each.relation != first.relation for each in logged):
            return Reshaped(why="its columns changed in the midst of a transaction")
        shape = resolved(before, first.relation, table.shape)
        if shape is None:
            return Reshaped(why="its columns changed more than once")
        if why := untold(before, shape, is_read=is_read, is_followed=self._is_followed):
            return Reshaped(why=why)
        event = self.event(table, before, shape, seq_of(first.commit_lsn), "")
        return Reshaped(event, shape.to_json())

    def event(self, table: CatalogTable, before: Shape, now: Shape, seq: str, why: str) -> SchemaEvent | None:
        """The event of a table's change from one shape to a later one; None if there is nothing to tell."""

        def column(of: ShapeColumn) -> Column:
            unfit = self._unfit(f"{table.schema.id}.{of.name}")
            return Column(of.name, table.types.column_type(of.type, of.modifier, unfit=unfit), of.nullable)

        changes = changes_between(before, now, column)
        if why:
            changes = (*changes, RowsRewritten(why))
        if not changes:
            return None
        after = table.schema
        if now != table.shape:
            after = TableSchema(after.id, tuple(map(column, now.columns)), now.key_names())
        return SchemaEvent(str(table.schema.id), changes, seq=seq, after=after)


def _parsed(shapes: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    for name, value in shapes.items():
        shape = Shape.from_json(value)
        if shape is not None:
            yield name, shape
