"""Streams create no objects on a MySQL server, so there is nothing to remove."""

from __future__ import annotations

from tailrace.config.options import SourceOptions


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:  # noqa: ARG001
    """A line for each removed object: none."""
    return []
