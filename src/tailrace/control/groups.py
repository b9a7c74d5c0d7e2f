"""Groups: pipelines that share a worker, and so one Spark session (design 0014, C8).

A session has its settings from its start to its end, so the pipelines of a group must agree on what is a
matter of the session. One that does not is refused when it is handed in, and by the worker too, since two
may be handed in at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tailrace.config.model import Pipeline
from tailrace.config.sinks import DeltaSettings
from tailrace.errors import ConfigError

#: Subscriptions of one group that share a worker at most, where `--group-size` does not say it.
GROUP_SIZE = 50


def session_needs(pipeline: Pipeline) -> Mapping[str, object]:
    """What of a pipeline is a matter of its Spark session, by names for users."""
    settings = pipeline.settings
    stores = {urlsplit(path).scheme if "://" in path else "" for path in pipeline.paths} - {"", "file"}
    return {
        "pipeline.master": settings.master,
        "pipeline.parallelism": settings.parallelism,
        "pipeline.spark": dict(settings.spark),
        "a sink of type `delta`": any(isinstance(sink, DeltaSettings) for sink in pipeline.sinks),
        "the object stores of checkpoint and targets": sorted(stores),
    }


def require_same(group: str, pipeline: Pipeline, other: Pipeline) -> None:
    """Refuse a pipeline that cannot share the Spark session of another one.

    Args:
        group: the group of both.
        pipeline: the pipeline.
        other: one that is in the group.

    Raises:
        ConfigError: their settings of Spark differ.
    """
    mine, its = session_needs(pipeline), session_needs(other)
    different = [name for name, value in mine.items() if its[name] != value]
    if different:
        raise ConfigError(
            f"the pipelines of group `{group}` share a Spark session, and need different ones",
            f"not as in pipeline `{other.settings.name}`: {', '.join(different)}",
            "give both the same settings, or name another `pipeline.group`; to change those of a whole "
            "group, give all its pipelines another `group` with the new settings",
            code="TR-8490",
        )
