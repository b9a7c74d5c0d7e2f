"""What schemas of messages may say of a column besides its type: how it was declared, and its comment. Pure.

Debezium's `include.schema.comments`, `column.propagate.source.type` and `datatype.propagate.source.type`. The
log has neither comments nor all of a declaration (`INT(11) ZEROFILL`). So the offset has what the catalog
had when a table joined the stream, or a schema change of it was read (`enumerator.declared`), and a batch
takes it from its end offset: whenever it comes again, its messages have the same schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tailrace.model.column_mask import ColumnMask
from tailrace.model.messages import MESSAGES
from tailrace.model.source_type import Declaration, SourceType
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType


@dataclass(frozen=True)
class CatalogText:
    """What the catalog says of a column.

    Args:
        type: its declared type; None: as the log tells it.
        comment: its comment, "" for none.
    """

    type: str | None = None
    comment: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields that are set, as JSON values."""
        return {name: value for name, value in (("type", self.type), ("comment", self.comment)) if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(value.get("type"), value.get("comment", ""))


#: What the catalog says of a table's columns, as far as the log does not; by their names.
TableTexts = Mapping[str, CatalogText]
#: By the names of tables.
CatalogTexts = Mapping[str, TableTexts]
#: A column's type in Debezium's words, of its type in the log and its declared type, if that is known.
TypeOf = Callable[[ColumnType, str | None], SourceType]


@dataclass(frozen=True)
class Propagation:
    """Which columns' declarations schemas have.

    Args:
        columns: regular expressions over `database.table.column`.
        types: regular expressions over `database.table.TYPE`.
        comments: whether they have comments.
        masks: the masks of columns, whose types are not said, as in Debezium.
    """

    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    comments: bool = False
    masks: tuple[ColumnMask, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.columns or self.types or self.comments)

    def table(self, table: TableSchema, texts: TableTexts, type_of: TypeOf) -> TableSchema:
        """`table` with the declarations of its columns."""
        if table.id == MESSAGES.id:
            return table
        return replace(table, columns=tuple(self._column(table.id, c, texts, type_of) for c in table.columns))

    def _column(self, table: TableId, column: Column, texts: TableTexts, type_of: TypeOf) -> Column:
        known = texts.get(column.name, CatalogText())
        comment = known.comment if self.comments else ""
        type_ = type_of(column.type, known.type)
        if not self._has(table, column.name, type_):
            return replace(column, declared=Declaration(column.name, None, comment)) if comment else column
        return replace(column, declared=Declaration(column.name, type_, comment))

    def _has(self, table: TableId, column: str, type_: SourceType) -> bool:
        if any(mask.has(table, column) for mask in self.masks):
            return False
        return _any(self.columns, f"{table}.{column}") or _any(self.types, f"{table}.{type_.name}")


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(pattern, name, re.DOTALL | re.IGNORECASE) for pattern in patterns)
