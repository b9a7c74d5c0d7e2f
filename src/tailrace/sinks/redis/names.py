"""The names of streams."""

from __future__ import annotations


def stream_name(prefix: str, target: str) -> str:
    """The stream of a target; braces would choose a slot of their own."""
    return f"{prefix}.{target}".replace("{", "_").replace("}", "_")
