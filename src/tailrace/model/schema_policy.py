"""What a stream does about each schema change, by its settings. Pure.

The names are those of Flink CDC: `schema.change.behavior`, and the kinds of `model.schema_change.KINDS` in
`include.schema.changes` and `exclude.schema.changes`. One function decides, for the enumerator and for sinks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from tailrace.model.schema_change import (
    KINDS,
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    SchemaChange,
    TableCreated,
    TableDropped,
    TableTruncated,
)

BEHAVIORS = ("evolve", "try_evolve", "lenient", "ignore", "exception")
ON_TRUNCATE = ("apply", "ignore", "fail")
ON_DROP_TABLE = ("apply", "ignore", "fail")


#: The kinds that change the shape of a target.
COLUMN_KINDS = (ColumnAdded.kind, ColumnDropped.kind, ColumnRenamed.kind, ColumnAltered.kind)
#: The kinds that targets need not follow. Another key, name or rewritten rows are no matter of choice here:
#: a target that ignored them would be wrong.
IGNORABLE_KINDS = (*COLUMN_KINDS, TableTruncated.kind, TableDropped.kind)


class Action(StrEnum):
    """What becomes of a change."""

    #: The target follows.
    APPLY = "apply"
    #: The target stays as it is.
    IGNORE = "ignore"
    #: The stream stops before anything is written.
    FAIL = "fail"


@dataclass(frozen=True)
class Following:
    """How targets follow the columns that their source's rows have.

    Args:
        adds: whether they get new columns.
        widens: whether their columns are altered to hold other types.
    """

    adds: bool = True
    widens: bool = True


#: Targets follow every column.
FOLLOWING = Following()


@dataclass(frozen=True)
class SchemaPolicy:
    """The settings of one stream.

    Args:
        behavior: one of BEHAVIORS: targets follow changes; they keep a column that they cannot rename or
            drop; they keep all such columns; they keep all their columns as they are; or the first change
            stops the stream.
        include: the kinds that targets follow, or that stop it with `exception`; empty: all.
        exclude: the kinds that they do not follow, or that do not stop it.
        on_truncate: one of ON_TRUNCATE.
        on_drop_table: one of ON_DROP_TABLE.
    """

    behavior: str = "evolve"
    include: Collection[str] = ()
    exclude: Collection[str] = ()
    on_truncate: str = "apply"
    on_drop_table: str = "ignore"

    def action(self, change: SchemaChange) -> Action:
        """What becomes of `change`. A new table is no change of a target, and always followed."""
        if isinstance(change, TableCreated):
            return Action.APPLY
        if self._stops(change.kind):
            return Action.FAIL
        if not self._follows(change.kind):
            return Action.IGNORE
        if isinstance(change, TableTruncated):
            return Action(self.on_truncate)
        if isinstance(change, TableDropped):
            return Action(self.on_drop_table)
        if self.behavior == "lenient" and isinstance(change, ColumnDropped | ColumnRenamed):
            return Action.IGNORE
        return Action.APPLY

    @property
    def keeps_needed_columns(self) -> bool:
        """Whether a target keeps a column that it can neither rename nor drop, rather than stop."""
        return self.behavior == "try_evolve"

    @property
    def following(self) -> Following:
        """How targets follow the columns of rows, of which not every source tells the change."""
        return Following(self._follows(ColumnAdded.kind), self._follows(ColumnAltered.kind))

    def _follows(self, kind: str) -> bool:
        """Whether targets follow changes of a kind."""
        if kind not in IGNORABLE_KINDS or self.behavior == "exception":
            return True
        return self._is_listed(kind) and not (self.behavior == "ignore" and kind in COLUMN_KINDS)

    def _stops(self, kind: str) -> bool:
        return self.behavior == "exception" and self._is_listed(kind)

    def _is_listed(self, kind: str) -> bool:
        return (not self.include or kind in self.include) and kind not in self.exclude


#: The kinds that can stop a stream.
STOPPING_KINDS = tuple(kind for kind, change in KINDS.items() if change is not TableCreated)
