"""Names of indices and aliases. Pure.

OpenSearch's names are in lower case, and some characters are not allowed. Other names are refused rather than
altered: two targets must not become one.
"""

from __future__ import annotations

import urllib.parse

from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router

_ENDING = "-tailrace"
_MOST_BYTES = 255
_FORBIDDEN = '\\/*?"<>| ,#:'


def alias_of(target: str) -> str:
    """The alias of a target."""
    return target.lower()


def index_of(target: str) -> str:
    """The index of a target."""
    return f"{alias_of(target)}{_ENDING}"


def quoted(name: str) -> str:
    """A name in a request's path."""
    return urllib.parse.quote(name, safe="")


def location(router: Router, table: TableId) -> str:
    """The index of a table's target, a location that no other target may have.

    Raises:
        ConfigError: OpenSearch does not allow such a name.
    """
    alias = alias_of(router.target(table))
    size = len(f"{alias}{_ENDING}".encode())
    if not alias or alias[0] in "-_+." or size > _MOST_BYTES or set(alias) & set(_FORBIDDEN):
        raise ConfigError(
            f"the target of {table.quoted} cannot be the name of an index",
            f"`{alias}`: needed at most {_MOST_BYTES - len(_ENDING)} bytes, none of {_FORBIDDEN}, and none of"
            " -_+. at the beginning",
            "route the table to another name, or leave it out of `tables`",
            code="TR-1507",
        )
    return index_of(router.target(table))
