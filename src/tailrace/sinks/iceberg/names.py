"""Which Iceberg table a target is, and where a new one lies. Pure.

A target `a.b` is table `b` in namespace `a`, one without a dot is in namespace `default`. A dot beside
another one, or at an end, divides nothing: no namespace's name is empty. Names are written by `model.paths`,
and dots that divide nothing like any other special character: catalogs join names by dots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.model.paths import file_name

_DIVIDES = re.compile(r"(?<=[^.])\.(?=[^.])")


def identifier(target: str) -> tuple[str, ...]:
    """Namespace and name of a target's table."""
    names = [file_name(name).replace(".", "%2E") for name in _DIVIDES.split(target)]
    return ("default", *names) if len(names) == 1 else tuple(names)


def former_identifier(target: str) -> tuple[str, ...] | None:
    """What `identifier` was before names were escaped, None where no table could be made of it."""
    namespace, _, short = target.rpartition(".")
    names = (*(namespace or "default").split("."), short)
    return names if all(names) else None


def location(root: str, names: Sequence[str]) -> str:
    """Where a new table lies: never inside another one's directory, as `a.b.c` in that of `a.b`."""
    return f"{root}/{names[0]}/{'%2E'.join(names[1:])}"
