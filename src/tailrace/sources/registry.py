"""The databases Tailrace can capture, by the scheme of their URL. Adding one is one line here."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.sources.base import Session, Source

#: URL scheme -> module with `source(options)` and `session(options)`. Imported when first used.
_MODULES = {
    "mysql": "tailrace.sources.mysql.source",
}


def source(options: SourceOptions) -> Source:
    """The driver's side of the database that `options.dialect` names."""
    return cast("Source", _module(options).source(options))


def session(options: SourceOptions) -> Session:
    """A task's side of it."""
    return cast("Session", _module(options).session(options))


def _module(options: SourceOptions):  # type: ignore[no-untyped-def]
    if options.dialect not in _MODULES:
        raise ConfigError(
            f"no source for `{options.dialect}`",
            f"known are: {', '.join(sorted(_MODULES))}",
        )
    return import_module(_MODULES[options.dialect])
