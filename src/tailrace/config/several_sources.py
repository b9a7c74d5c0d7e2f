"""Pipeline files with several sources: a document with one source for each. Pure.

    sources:                            source: {type: mysql, ...}
      - {name: east, type: mysql, ...}      route: [{sink-table: east_orders, ...}]
      - {name: west, type: mysql, ...}  source: {type: mysql, ...}
    route: [{sink-table: '{source}_orders', ...}]   ...

Each source is read as if the file had no other one; `{source}` in other sections is its name
(docs/design/0009-several-sources.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.config.document import Section
from tailrace.errors import ConfigError

#: What stands for the source's name in the sections that have it.
PLACEHOLDER = "{source}"
_SUBSTITUTED = ("transform", "route", "sink", "notifications", "signals")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


def split(given: Mapping[str, Any]) -> Iterator[tuple[str, Section]]:
    """Each source's name, and the file as it is for that source alone.

    Args:
        given: the file, with a key `sources`.

    Raises:
        ConfigError: `sources` is no list of named sources.
    """
    if "source" in given:
        raise ConfigError(
            "`source` and `sources` exclude each other", None, "keep one of them", code="TR-1005"
        )
    listed = given["sources"]
    if not isinstance(listed, list) or not listed:
        raise ConfigError(
            "`sources` is no list of sources",
            None,
            "sources: [{name: east, type: mysql, hostname: ...}, {name: west, ...}]",
            code="TR-1220",
        )
    taken: dict[str, int] = {}
    for number, one in enumerate(listed):
        if not isinstance(one, Section):
            raise ConfigError(f"`sources[{number}]` is not a mapping", code="TR-1220")
        name = _name(one, f"sources[{number}].name")
        first = taken.setdefault(name.lower(), number)
        if first != number:
            raise ConfigError(
                f"`sources[{first}]` and `sources[{number}]` have the same name",
                f"found `{name}`; checkpoints are directories, so names in another case are the same",
                "give each source a name of its own",
                code="TR-1220",
            )
        document = _copy({key: value for key, value in given.items() if key != "sources"}, given)
        document["source"] = _copy({key: value for key, value in one.items() if key != "name"}, one)
        for section in _SUBSTITUTED:
            if section in document:
                document[section] = _substituted(document[section], name)
        yield name, document


def _name(source: Section, path: str) -> str:
    name = source.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"`{path}` is {'missing' if name is None else 'wrong'}",
            "needed: a letter, then up to 39 letters, digits, `_` or `-`",
            "the name stands in the checkpoint's path and in `shard-column`: do not change it later",
            code="TR-1220",
        )
    return name


def _substituted(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.replace(PLACEHOLDER, name)
    if isinstance(value, list):
        return [_substituted(item, name) for item in value]
    if isinstance(value, Section):
        return _copy({key: _substituted(item, name) for key, item in value.items()}, value)
    return value


def _copy(values: Mapping[str, Any], of: Mapping[str, Any]) -> Section:
    """A section with `values`, which stand in the file where those of another one do."""
    made = Section()
    made.update(values)
    if isinstance(of, Section):
        made.places.update(of.places)
    return made
