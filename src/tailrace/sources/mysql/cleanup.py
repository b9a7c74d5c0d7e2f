"""What streams leave behind on a MySQL server: nothing."""

from __future__ import annotations

from tailrace.config.options import SourceOptions


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:  # noqa: ARG001
    """A line for each thing removed: none was made."""
    return []
