"""A column's type and comment as its table was declared, in Debezium's words. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SourceType:
    """A declared type.

    Args:
        name: its name, in capitals: `VARCHAR`, `INT UNSIGNED`.
        length: its length or precision, None if it has none.
        scale: its scale, None if it has none.
    """

    name: str
    length: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the schema of a column's messages says besides its type.

    Args:
        column: the column's name in its table.
        type: its declared type; None: that is not said.
        comment: its comment; "": it has none, or that is not said.
    """

    column: str
    type: SourceType | None = None
    comment: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields that are set, as JSON values."""
        found: dict[str, Any] = {"column": self.column}
        if self.type is not None:
            found["type"] = [self.type.name, self.type.length, self.type.scale]
        return found | ({"comment": self.comment} if self.comment else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        type_ = value.get("type")
        return cls(value["column"], None if type_ is None else SourceType(*type_), value.get("comment", ""))
