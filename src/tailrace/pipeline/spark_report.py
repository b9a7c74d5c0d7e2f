"""What a source says in Spark's reports on batches (`spark.source.reportLatestOffset`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def latest(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """The latest offset that the source has reported, with what goes with it; empty if it is not known."""
    sources = progress.get("sources") or [{}]
    found = sources[0].get("latestOffset")
    return (json.loads(found) if isinstance(found, str) else found) or {}
