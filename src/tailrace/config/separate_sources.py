"""What several sources of a pipeline file must not have in common."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.several_sources import PLACEHOLDER
from tailrace.config.sinks import DuckDbSettings, FileSettings, IcebergSettings
from tailrace.errors import ConfigError


def require_separate(pipelines: Mapping[str, Pipeline]) -> None:
    """Refuse sources that would disturb each other.

    Args:
        pipelines: the pipeline as it is for each source, by the source's name.

    Raises:
        ConfigError: two of them need a name or a path of their own.
    """
    checkpoints = {pipeline.checkpoint for pipeline in pipelines.values()}
    if len(checkpoints) > 1:
        raise ConfigError(
            "`pipeline.checkpoint` is missing",
            f"the sinks' paths hold `{PLACEHOLDER}`, and the sources have one directory for checkpoints",
            "name a directory: pipeline: {checkpoint: ...}",
            code="TR-1006",
        )
    on_servers: dict[tuple[object, ...], str] = {}
    paths: dict[str, str] = {}
    for name, pipeline in pipelines.items():
        for what, setting in _of_server(pipeline.source):
            place = (pipeline.source.host.lower(), pipeline.source.port, what)
            other = on_servers.setdefault(place, name)
            if other != name:
                raise ConfigError(
                    f"sources `{other}` and `{name}` have the same {what} on one server",
                    None,
                    f"give each its own `{setting}`",
                    code="TR-1221",
                )
        for sink in pipeline.sinks:
            if isinstance(sink, IcebergSettings | FileSettings | DuckDbSettings):
                path = sink.database if isinstance(sink, DuckDbSettings) else sink.path
                other = paths.setdefault(path.rstrip("/"), name)
                if other != name:
                    raise ConfigError(
                        f"sources `{other}` and `{name}` have the same path in a sink `{sink.type}`",
                        f"found `{path}`; a path of such a sink holds one stream's targets",
                        f"path: {path.rstrip('/')}/{PLACEHOLDER}",
                        code="TR-1222",
                    )


def _of_server(source: SourceOptions) -> list[tuple[str, str]]:
    """What a source has for itself on its server, with the setting that names it."""
    if source.dialect == "postgresql":
        return [(f"replication slot `{source.slot}`", "slot-name")]
    return [] if source.server_id is None else [(f"server id {source.server_id}", "server-id")]
