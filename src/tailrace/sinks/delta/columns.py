"""How the columns of a target follow those of its source.

New columns are added. Columns are renamed, dropped and widened in place where the table has the features of
Delta for it (`columnMapping`, `typeWidening`), or may get them (`reader-features: latest`). Else its files
are rewritten (`rewrite`), because readers such as Polars refuse tables with these features. What is to be
done follows from the columns that the table has, so what an earlier attempt has done is not done again.

A target that keeps history (`changelog`, `scd2`) keeps dropped columns: only it has their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.sinks import OnIncompatibleType, ReaderFeatures
from tailrace.model.schema_policy import Following, SchemaPolicy
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.delta.rewrite import Altered, rewrite
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.transaction import CommitMark, needs
from tailrace.sinks.tables.columns import (
    AddColumn,
    BecomeText,
    WidenColumn,
    can_follow,
    can_hold,
    follow,
    incompatible,
    kept_schema,
    stored_schema,
    stored_type,
)
from tailrace.sinks.tables.former_columns import (
    DropColumn,
    RenameColumn,
    former_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.retyped import retyped_schema
from tailrace.spark.cells import TableBatch

Former = RenameColumn | DropColumn
_TRACKED = (
    "the table tracks its rows (`delta.enableRowTracking`), whose ids new files would not keep; with "
    "`reader-features: latest` its files stay"
)


@dataclass(frozen=True)
class TargetColumns:
    """The columns of one target.

    Args:
        target: its name, for errors.
        table: its table.
        layout: the table's layout.
        features: which features the table may get.
        on_incompatible_type: what becomes of a column whose new type the table's cannot hold.
    """

    target: str
    table: DeltaTable
    layout: TableLayout
    features: ReaderFeatures
    on_incompatible_type: OnIncompatibleType

    def held(self) -> pa.Schema:
        """The source's columns that the table has."""
        return self.layout.columns(self.table.schema())

    # ---- what is to be done --------------------------------------------------------------------------

    def former(self, batch: CellBatch, table: TableId, key: Sequence[str]) -> list[Former]:
        """The columns to rename and to drop by the schema changes of a batch.

        Args:
            batch: the batch.
            table: the target's table.
            key: the target's key.

        Raises:
            SinkError: the table needs one of them.
        """
        if not any(event.table == str(table) and event.changes for event in batch.column_events):
            return []
        held = self.held()
        found = former_columns(batch.column_events, str(table), held.names, key)
        return [change for change in found if self._may_change(change, batch.policy, table)]

    def missed(
        self, batch: CellBatch, parts: Sequence[TableBatch], table: TableId, key: Sequence[str]
    ) -> list[Former]:
        """The columns to drop from the target of a table that is read again: see `missed_columns`."""
        if self.layout.keeps_history or not batch.drops_columns:
            return []
        found = missed_columns(parts, str(table), self.held().names, key)
        return [change for change in found if self._may_change(change, batch.policy, table)]

    def _may_change(self, change: Former, policy: SchemaPolicy | None, table: TableId) -> bool:
        """Whether a column is renamed or dropped; else it stays."""
        if isinstance(change, DropColumn) and self.layout.keeps_history:
            return False
        reason = self._needs(change.old)
        if reason is None and not self._in_place(change) and self.table.tracks_rows():
            reason = _TRACKED
        if reason is not None:
            require_unneeded(policy, self.target, change.old, ValueError(reason), table)
        return reason is None

    def needed(
        self, schema: TableSchema, held: pa.Schema, kept: Following
    ) -> list[AddColumn | WidenColumn | BecomeText]:
        """The changes by which a table with the source's columns `held` also holds rows of a schema.

        Args:
            schema: the schema.
            held: the columns.
            kept: how the target follows it.

        Raises:
            SinkError: a column cannot follow its source.
        """
        schema = kept_schema(self.target, schema, held.names, kept)
        if self.on_incompatible_type is OnIncompatibleType.NEW_COLUMN:
            schema = retyped_schema(schema, held, stored_type, can_follow if kept.widens else can_hold)
        policy = self.on_incompatible_type
        needed = stored_schema(schema)
        return follow(self.target, held, needed, policy, widens=kept.widens, key=schema.key)

    def widened(
        self, parts: Iterable[TableBatch], changes: Sequence[Former], kept: Following
    ) -> list[WidenColumn]:
        """The columns that rows of a batch need to be wider, once others are renamed and dropped."""
        held, found = without(self.held(), changes), list[WidenColumn]()
        for part in parts:
            for schema in part.schemas:
                for change in self.needed(schema, held, kept):
                    if isinstance(change, WidenColumn):
                        found.append(change)
                        at = held.get_field_index(change.name)
                        held = held.set(at, pa.field(change.name, change.type))
        return found

    # ---- doing it ------------------------------------------------------------------------------------

    def alter(self, changes: Sequence[AddColumn | WidenColumn | Former], mark: CommitMark) -> None:
        """Change the table; all columns that need new files get them in one commit.

        Args:
            changes: the changes; a column that is widened, too, has its new name there.
            mark: the mark of the commits.

        Raises:
            SinkError: a column cannot follow its source.
        """
        others = [change for change in changes if not isinstance(change, AddColumn)]
        if others and all(self._in_place(change) for change in others):
            self._alter_in_place(others, mark)
        elif others:
            self._require_untracked(others)
            rewrite(self.table, self._altered(others), mark)
        self.table.change([c for c in changes if isinstance(c, AddColumn)], self.layout.within)

    def _altered(self, changes: Sequence[WidenColumn | Former]) -> Altered:
        return Altered.by(changes, self.layout.within, self.layout.naming)

    def _in_place(self, change: WidenColumn | Former) -> bool:
        """Whether a column is altered in place."""
        is_latest = self.features is ReaderFeatures.LATEST
        if isinstance(change, WidenColumn):
            # Delta does not alter a column in place that an expression of the table reads
            return (is_latest or self.table.widens_types()) and self._needs(change.name) is None
        return is_latest or self.table.maps_columns()

    def _alter_in_place(self, changes: Sequence[WidenColumn | Former], mark: CommitMark) -> None:
        altered = self._altered(changes)
        if altered.names and altered.names_any(self.table.read()):
            rewrite(self.table, Altered(altered.renamed, altered.dropped, {}, (), altered.naming), mark)
        with self.table.marked(mark):
            if altered.names and not self.table.maps_columns():
                self.table.map_columns()
            for change in changes:
                self.table.change([change], self.layout.within)

    def _needs(self, name: str) -> str | None:
        """What in the table needs a column as it is."""
        ways = ([name] if prefix == "" else [prefix.rstrip("."), name] for prefix in self.layout.within)
        session, path = self.table.session, self.table.path
        return next((reason for way in ways if (reason := needs(session, path, way)) is not None), None)

    def _require_untracked(self, changes: Iterable[WidenColumn | Former]) -> None:
        """Refuse new files that a wider column needs, if rows would get other ids by them."""
        for change in changes:
            if isinstance(change, WidenColumn) and self.table.tracks_rows():
                raise incompatible(change.name, self.target, _TRACKED, self.on_incompatible_type)


def without(columns: pa.Schema, changes: Iterable[Former]) -> pa.Schema:
    """Columns, once some are renamed and dropped."""
    names = {change.old: change.new if isinstance(change, RenameColumn) else None for change in changes}
    found = [(names.get(field.name, field.name), field) for field in columns]
    return pa.schema([field.with_name(name) for name, field in found if name is not None])
