"""The databases Tailrace can capture, by the scheme of their URL. Adding one is one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.extras import of_source, require
from tailrace.sources.base import Position, Session, Source
from tailrace.sources.preflight import Finding

#: URL scheme -> package with the modules `source`, `session`, `position`, `checks.preflight` and `cleanup`.
#: Each is imported when first used: the driver does not load the row decoders, nor a task the log's follower.
_PACKAGES = {
    "mysql": "tailrace.sources.mysql",
    "mariadb": "tailrace.sources.mysql",  # the server says which it is, whatever the URL
    "oracle": "tailrace.sources.oracle",
    "postgresql": "tailrace.sources.postgres",
}


def source(options: SourceOptions) -> Source:
    """The driver's side of the database that `options.dialect` names."""
    return cast("Source", _module(options.dialect, "source").source(options))


def session(options: SourceOptions) -> Session:
    """A task's side of the database."""
    return cast("Session", _module(options.dialect, "session").session(options))


def preload(dialect: str) -> None:
    """Import what a task's side of the database needs."""
    _module(dialect, "session")


def position_type(dialect: str) -> type[Position]:
    """The class of the positions in the offsets of a stream from this database."""
    return cast("type[Position]", _module(dialect, "position").position)


def check(options: SourceOptions) -> list[Finding]:
    """Every precondition of capture on the server: what was found, what is needed."""
    return cast("list[Finding]", _module(options.dialect, "checks.preflight").check(options))


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:
    """Remove what streams with these options created on the server.

    Args:
        options: of the streams.
        unmarked: whether to also remove objects without a stream's mark that are of a stream's kind.

    Returns:
        A line for each object.
    """
    return cast("list[str]", _module(options.dialect, "cleanup").drop(options, unmarked=unmarked))


def _module(dialect: str, name: str) -> Any:
    if dialect not in _PACKAGES:
        raise ConfigError(
            f"no source for `{dialect}`", f"known are: {', '.join(sorted(_PACKAGES))}", code="TR-1008"
        )
    require(of_source(dialect), f"source `{dialect}`")
    return import_module(f"{_PACKAGES[dialect]}.{name}")
