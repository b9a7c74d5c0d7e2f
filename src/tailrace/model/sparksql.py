"""Quoting of names in Spark SQL."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
