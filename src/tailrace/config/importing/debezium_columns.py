"""Debezium's settings of columns: lists, masks, hashes and lengths."""

from __future__ import annotations

import re

from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, listed
from tailrace.config.importing.patterns import at_least, python_pattern
from tailrace.errors import ConfigError
from tailrace.model.column_mask import ALGORITHMS

_HASH = r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)"
_PLAIN = r"column\.(mask\.with|truncate\.to)\.(\d+)\.chars"
_LISTS = ("column.include.list", "column.exclude.list")
_SALT = "column-mask-salt"


def columns(given: Given, made: Draft) -> None:
    """Take the settings of columns into a draft.

    A column with a mask that is not there is left out altogether, which `No equivalent` says: better no value
    than one in clear.

    Raises:
        ConfigError: a column can neither be masked nor be left out.
    """
    for name in _LISTS:
        if (text := given.take(name)) is not None:
            made.source[name] = DraftEntry([at_least(2, python_pattern(p)) for p in listed(text)], name)
    for match in given.matching(_PLAIN):
        _take(given, made, match[0], match[0], match[0])
    salt: str | None = None
    for match in given.matching(_HASH):
        version, algorithm = match[1] or "", match[2]
        shown = f"column.mask.hash.{version}{algorithm}.with.salt.***"
        if salt is not None and match[3] != salt:
            leave_out(made, listed(given.take(match[0]) or ""), shown)
            made.miss(shown, "its columns are left out of all rows: there is one salt")
            continue
        if algorithm.lower() not in ALGORITHMS:
            leave_out(made, listed(given.take(match[0]) or ""), shown)
            made.miss(shown, "its columns are left out of all rows: there is no such algorithm")
            continue
        if salt is None:
            salt = match[3]
            made.source[_SALT] = made.secret(salt, "MASK_SALT", shown, f"the salt of {shown}")
        _take(given, made, match[0], f"column.mask.hash.{version}{algorithm}", shown)
    for match in given.matching(r"column\.(mask|truncate)\..*"):  # in a form that is not known
        shown = re.sub(r"(salt\.).*", r"\1***", match[0])
        leave_out(made, listed(given.take(match[0]) or ""), shown)
        made.miss(shown, "its columns are left out of all rows: there is no such mask")


def _take(given: Given, made: Draft, name: str, option: str, shown: str) -> None:
    patterns = [at_least(2, python_pattern(p)) for p in listed(given.take(name) or "")]
    if patterns:
        held = made.source.get(option, DraftEntry([])).value
        made.source[option] = DraftEntry([*held, *patterns], shown)


def leave_out(made: Draft, patterns: list[str], origin: str) -> None:
    """Leave columns out, as patterns over the whole name of a column.

    Raises:
        ConfigError: the columns to capture are listed.
    """
    if _LISTS[0] in made.source:
        raise ConfigError(
            f"columns of `{origin}` cannot be left out",
            f"`{_LISTS[0]}` and `{_LISTS[1]}` exclude each other, and without the one they would be in clear",
            f"take them out of `{_LISTS[0]}`, or name each column in full: database.table.column",
            code="TR-1352",
        )
    held = made.source.get(_LISTS[1], DraftEntry([]))
    new = [at_least(2, python_pattern(pattern)) for pattern in patterns]
    origins = ", ".join(dict.fromkeys(filter(None, [*held.origin.split(", "), origin])))
    made.source[_LISTS[1]] = DraftEntry([*held.value, *(p for p in new if p not in held.value)], origins)
