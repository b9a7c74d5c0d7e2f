"""What streams create on an Oracle server: nothing."""

from __future__ import annotations

from tailrace.config.options import SourceOptions


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:  # noqa: ARG001
    """Nothing to remove: LogMiner and flashback queries leave nothing behind."""
    return []
