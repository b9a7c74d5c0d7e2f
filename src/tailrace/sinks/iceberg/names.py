"""The Iceberg table of a target, and the location of a new table. Pure.

A target `a.b` is table `b` in namespace `a`; a target without a dot is in namespace `default`. A dot next to
another dot, or at either end, is no separator: no namespace's name is empty. `model.paths` escapes names, and
dots that separate nothing like any other special character, because catalogs join names with dots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.model.paths import file_name

_SEPARATOR = re.compile(r"(?<=[^.])\.(?=[^.])")


def identifier(target: str) -> tuple[str, ...]:
    """The namespace and name of a target's table."""
    names = [file_name(name).replace(".", "%2E") for name in _SEPARATOR.split(target)]
    return ("default", *names) if len(names) == 1 else tuple(names)


def former_identifier(target: str) -> tuple[str, ...] | None:
    """The identifier from before names were escaped; None if such a table could not exist."""
    namespace, _, short = target.rpartition(".")
    names = (*(namespace or "default").split("."), short)
    return names if all(names) else None


def location(root: str, names: Sequence[str]) -> str:
    """The location of a new table: never inside another table's directory, as `a.b.c` in `a.b` would be."""
    return f"{root}/{names[0]}/{'%2E'.join(names[1:])}"
