"""The names of streams and subjects."""

from __future__ import annotations

import re


def stream_name(prefix: str) -> str:
    """The stream of all subjects that begin with a prefix."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", prefix)


def subject(prefix: str, target: str) -> str:
    """The subject of a target: its dots separate tokens, and each token has a character at least."""
    tokens = re.sub(r"[\s*>\x00-\x1f\x7f]", "_", f"{prefix}.{target}").split(".")
    return ".".join(token or "_" for token in tokens)
