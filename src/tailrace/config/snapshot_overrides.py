"""Debezium's `snapshot.select.statement.overrides`: which rows of a table a stream begins with.

    SELECT * FROM shop.orders WHERE status = 'open'     is the condition    status = 'open'

Any other statement is refused: rows are read as of a position of the log, by undoing the changes behind it,
and the log knows neither what another SELECT would return nor what it computes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import ConfigError

OVERRIDES = "snapshot.select.statement.overrides"
_STATEMENT = re.compile(
    r"\s*SELECT\s+\*\s+FROM\s+(?P<table>[^\s()]+)\s+WHERE\s+(?P<where>.+?)\s*;?\s*", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class SnapshotOverride:
    """The rows of a table that are read first.

    Args:
        table: `database.table`, in lower case.
        where: their condition (`model.condition`).
    """

    table: str
    where: str


def is_override(name: str) -> bool:
    """Whether an option's name is that of a statement."""
    return name.lower().startswith(f"{OVERRIDES}.")


def snapshot_overrides(
    tables: tuple[str, ...], statements: Mapping[str, str], where: str
) -> tuple[SnapshotOverride, ...]:
    """The overrides of the tables that are named.

    Args:
        tables: their names.
        statements: the statements by the names of their options.
        where: what a name is called in errors.

    Raises:
        ConfigError: a statement is missing, or has no table, or is none that can be taken.
    """
    given = {name[len(OVERRIDES) + 1 :].lower(): text for name, text in statements.items()}
    named = [table.lower() for table in tables]
    if unnamed := sorted(given.keys() - set(named)):
        raise _refused(where, f"`{OVERRIDES}` does not name `{unnamed[0]}`", f"add it to `{OVERRIDES}`")
    return tuple(SnapshotOverride(table, _condition(table, given.get(table), where)) for table in named)


def _condition(table: str, statement: str | None, where: str) -> str:
    if statement is None:
        raise _refused(where, f"`{OVERRIDES}.{table}` is missing", "give the statement for this table")
    found = _STATEMENT.fullmatch(statement)
    if found is None or re.sub(r"[`\"\[\]]", "", found["table"]).lower() != table:
        raise _refused(
            where,
            f"the statement of `{table}` is not SELECT * FROM {table} WHERE ...; rows are read as of a "
            "position of the log, which does not know what another SELECT returns, or what it computes",
            "leave columns out by `column.exclude.list`; compute values in a transform",
        )
    return found["where"]


def _refused(where: str, detail: str, hint: str) -> ConfigError:
    return ConfigError(f"{where} `{OVERRIDES}` cannot be taken", detail, hint, code="TR-1018")
