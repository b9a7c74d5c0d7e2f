"""Debezium's settings of columns: lists, masks, hashes and lengths.

A mask is a transform here, and a transform is of a table that is known. So masks of columns that are named in
full become transforms. Any other masked column is left out altogether, which `No equivalent` says: better no
value than one in clear.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, listed
from tailrace.config.importing.patterns import at_least, literal, python_pattern
from tailrace.errors import ConfigError

_HASH = r"column\.mask\.hash\.(v2\.)?([\w-]+)\.with\.salt\.(.+)"
_MASK = r"column\.mask\.with\.(\d+)\.chars"
_TRUNCATE = r"column\.truncate\.to\.(\d+)\.chars"
_LISTS = ("column.include.list", "column.exclude.list")
_Change = Callable[[dict[str, DraftEntry], str], bool]
_CONSTANT = "column.mask.with.*.chars"


def columns(given: Given, made: Draft) -> None:
    """Take the settings of columns into a draft.

    Raises:
        ConfigError: a column can neither be masked nor be left out.
    """
    for name in _LISTS:
        if (text := given.take(name)) is not None:
            made.source[name] = DraftEntry([at_least(2, python_pattern(p)) for p in listed(text)], name)
    for match in given.matching(_TRUNCATE):
        _change(given, made, match[0], match[0], partial(_truncated, match[1]))
    for match in given.matching(_MASK):
        text = "*" * min(int(match[1]), 1000)
        _change(given, made, match[0], match[0], partial(_constant, made, text))
    salts: dict[str, DraftEntry] = {}
    for match in given.matching(_HASH):
        version, algorithm, salt = match[1] or "", match[2], match[3]
        shown = f"column.mask.hash.{version}{algorithm}.with.salt.***"
        if salt not in salts:
            salts[salt] = made.secret(salt, "MASK_SALT", shown, f"the salt of {shown}")
        secret = salts[salt]
        if not version or algorithm.upper() != "SHA-256":
            made.miss(shown, "masked by SHA-256 of salt and text instead: the values are others than before")
        else:
            made.miss(shown, "hashes have all 64 characters; there they are cut to the column's length")
        _change(given, made, match[0], shown, partial(_hashed, secret))
    for match in given.matching(r"column\.(mask|truncate)\..*"):  # in a form that is not known
        shown = re.sub(r"(salt\.).*", r"\1***", match[0])
        leave_out(made, listed(given.take(match[0]) or ""), shown)
        made.miss(shown, "its columns are left out of all rows: there is no such mask")


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


def _change(given: Given, made: Draft, name: str, shown: str, change: _Change) -> None:
    for pattern in listed(given.take(name) or ""):
        column = literal(pattern)
        if column is not None and column.count(".") == 2:
            table, _, column = column.rpartition(".")
            rule = _rule(made, table)
            if change(rule, column):
                continue
            made.transform.remove(rule) if len(rule) == 1 else None
        leave_out(made, [pattern], shown)
        made.miss(shown, f"`{pattern}` is left out of all rows: masks need the name of one column in full")


def _rule(made: Draft, table: str) -> dict[str, DraftEntry]:
    pattern = "(?i)" + re.escape(table)
    for rule in made.transform:
        if rule["source-table"].value.lower() == pattern.lower():
            return rule
    rule = {"source-table": DraftEntry(pattern)}
    made.transform.append(rule)
    return rule


def _truncated(length: str, rule: dict[str, DraftEntry], column: str) -> bool:
    held = rule.get("truncate", DraftEntry({})).value
    rule["truncate"] = DraftEntry(
        {**held, column: DraftEntry(int(length), f"column.truncate.to.{length}.chars")}
    )
    return True


def _constant(made: Draft, text: str, rule: dict[str, DraftEntry], column: str) -> bool:
    table = rule["source-table"].value.removeprefix("(?i)")
    leave_out(made, [rf"{table}\.{re.escape(column)}"], _CONSTANT)
    held = rule.get("projection", DraftEntry(r"\*")).value
    rule["projection"] = DraftEntry(f"{held}, '{text}' AS `{column}`", _CONSTANT)
    return True


def _hashed(salt: DraftEntry, rule: dict[str, DraftEntry], column: str) -> bool:
    if rule.get("mask-salt", salt).value != salt.value:
        return False
    held = rule.get("mask-hash", DraftEntry([])).value
    rule["mask-hash"] = DraftEntry([*held, column], salt.origin)
    rule["mask-salt"] = DraftEntry(salt.value)
    return True
