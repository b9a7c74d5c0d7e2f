"""Rows that their table no longer has, in targets that keep such rows: how they are marked. Pure.

With a soft delete (`converter-after-transform: SOFT_DELETE`) a delete of the log is an update that keeps the
row, and columns of the transform that are made of the kind of change alone mark it: `__data_event_type__ =
'-D' AS deleted`. Where a table is read again, a sink finds rows that are gone without a delete
(`model.reread`). It gives them the same marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any


@dataclass(frozen=True)
class SoftDelete:
    """The marks of a table's rows.

    Args:
        gone: by column, the value of a row that is gone.
        there: by column, the values of rows that exist.
    """

    gone: Mapping[str, Any] = field(default_factory=dict)
    there: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def of_existing(self) -> dict[str, tuple[Any, ...]]:
        """The columns that tell existing rows from marked ones, and their values in existing rows.

        A row that is marked already stays as it is. A time that an existing row has tells nothing: it may be
        that of the statement.
        """
        return {
            name: values
            for name, values in self.there.items()
            if self.gone[name] not in values and not any(isinstance(v, date | datetime) for v in values)
        }
