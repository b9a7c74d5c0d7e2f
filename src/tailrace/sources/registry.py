"""The databases Tailrace can capture, by the scheme of their URL. Adding one is one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.extras import require
from tailrace.sources.base import Session, Source
from tailrace.sources.preflight import Finding

#: URL scheme -> package with the modules `source` and `session`, which make the two sides, `preflight` and
#: `cleanup`, each imported when first used: the driver does not load what decodes rows, nor does a task
#: load what follows the log.
_PACKAGES = {
    "mysql": "tailrace.sources.mysql",
    "mariadb": "tailrace.sources.mysql",  # the server says which it is, whatever the URL
    "postgresql": "tailrace.sources.postgres",
}


def source(options: SourceOptions) -> Source:
    """The driver's side of the database that `options.dialect` names."""
    return cast("Source", _module(options, "source").source(options))


def session(options: SourceOptions) -> Session:
    """A task's side of it."""
    return cast("Session", _module(options, "session").session(options))


def check(options: SourceOptions) -> list[Finding]:
    """Every precondition of capture on the server: what was found, what is needed."""
    return cast("list[Finding]", _module(options, "checks.preflight").check(options))


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:
    """Remove what streams with these options have made on the server; a line for each thing.

    With `unmarked` also what bears no mark of a stream, but is of the kind that streams make.
    """
    return cast("list[str]", _module(options, "cleanup").drop(options, unmarked=unmarked))


def _module(options: SourceOptions, side: str) -> Any:
    if options.dialect not in _PACKAGES:
        raise ConfigError(
            f"no source for `{options.dialect}`",
            f"known are: {', '.join(sorted(_PACKAGES))}",
        )
    require(options.extra, f"source `{options.dialect}`")
    return import_module(f"{_PACKAGES[options.dialect]}.{side}")
