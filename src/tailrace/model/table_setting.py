"""The tables that a signal has set for a stream, in place of those of its option `tables`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableSetting:
    """Patterns of tables that hold until the option `tables` itself changes.

    Args:
        tables: the patterns.
        instead_of: the patterns of the option when they were set.
    """

    tables: tuple[str, ...]
    instead_of: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The setting as JSON values in a fixed order."""
        return {"tables": list(self.tables), "instead_of": list(self.instead_of)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableSetting:
        """Read the setting that `to_json` wrote."""
        return cls(tuple(value["tables"]), tuple(value["instead_of"]))


def in_force(setting: TableSetting | None, option: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that a stream captures by: those of a signal, unless the option has changed since.

    Args:
        setting: what a signal has set; None: nothing.
        option: the option `tables`.
    """
    return setting.tables if setting is not None and setting.instead_of == option else option
