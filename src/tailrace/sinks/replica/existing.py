"""What the columns of an existing table can hold, whose types somebody else has chosen. Pure.

A table that was adopted, or altered by hand, may have other types than the source asks for. Servers refuse
most values that do not fit: a text too long, a number out of range. They round or cut others without an
error: digits behind the point, fractions of a second, the time of day. `losing` finds such columns, so that
no value is changed silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind

#: A type as a server prints it: its name, its first one or two numbers, the rest.
_TYPE = re.compile(r"([a-z0-9_ ]+?)\s*(?:\((-?\d+)(?:,\s*(-?\d+))?\)(.*))?$")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year", "oid")
_DECIMALS = ("decimal", "numeric")
#: Bits of an integer that a type for floating point holds exactly.
_FLOATING = {"float": 24, "real": 24, "double": 53, "double precision": 53}
_PADDED = ("char", "character", "binary")


@dataclass(frozen=True)
class ExistingColumn:
    """A column of an existing table.

    Args:
        type: its type, as the server prints it.
        computed: the server computes its values, and accepts no others.
    """

    type: str
    computed: bool = False


@dataclass(frozen=True)
class Loss:
    """A column that does not keep the values written to it.

    Args:
        column: the column.
        found: what it is.
        change: the word for the change of values: `rounds`, `cuts`, `pads`, or `computes`.
    """

    column: Column
    found: str
    change: str


def losing(columns: Iterable[Column], existing: Mapping[str, ExistingColumn], default: int) -> list[Loss]:
    """The columns of a table that change values without an error.

    Args:
        columns: the columns, with the source's types.
        existing: the table's columns by lower-case name; one that is not there is none of them.
        default: digits of a fraction of a second in a type without a number.
    """
    found = []
    for column in columns:
        held = existing.get(column.name.lower())
        if held is None:
            continue
        change = "computes" if held.computed else _change(column.type, held.type.lower(), default)
        if change:
            found.append(Loss(column, held.type, change))
    return found


def _change(type_: ColumnType, existing: str, default: int) -> str:
    """How a type changes values of `type_`; empty if it keeps them, or refuses those that do not fit."""
    if existing.endswith("[]"):
        return "" if type_.element is None else _change(type_.element, existing.rstrip("[]"), default)
    match = _TYPE.match(existing)
    if match is None:
        return ""
    name, first, second = match[1].removesuffix(" unsigned"), match[2], match[3]
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return ""
        case Kind.INTEGER | Kind.BITS | Kind.YEAR:
            return "rounds" if (type_.bits or 16) > _FLOATING.get(name, 64) else ""
        case Kind.DECIMAL:
            return "rounds" if _digits(name, first, second) < (type_.scale or 0) else ""
        case Kind.DOUBLE | Kind.FLOAT:
            bits = 53 if type_.kind is Kind.DOUBLE else 24
            if name in _FLOATING:
                return "rounds" if _FLOATING[name] < bits or second is not None else ""
            return "rounds" if _digits(name, first, second) < _ANY else ""
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            is_time = name == "interval" or re.match("time(?!stamp)", name) is not None
            if name == "date" or (is_time and type_.kind is not Kind.TIME):
                return "cuts"
            has_fraction = is_time or name.startswith(("timestamp", "datetime"))
            needed, held = (default if n is None else int(n) for n in (type_.fraction, first))
            return "rounds" if has_fraction and held < needed else ""
        case Kind.STRING | Kind.BYTES:
            return "pads" if name in _PADDED and type_.native not in (*_PADDED, "bpchar") else ""
    return ""


#: More digits than any number has.
_ANY = 1 << 20


def _digits(name: str, first: str | None, second: str | None) -> int:
    """Digits behind the point that a type keeps; `_ANY` if it keeps all, or takes no number at all."""
    if name in _INTEGERS:
        return 0
    if name == "money":
        return 2
    if name in _FLOATING:
        return -1  # not even those before it
    if name in _DECIMALS and first is not None:
        return int(second or 0)
    return _ANY
