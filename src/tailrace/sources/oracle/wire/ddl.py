"""Which schema changes of a table keep LogMiner from describing earlier changes of its rows. Pure.

With the online catalog as its dictionary, LogMiner knows a table as it is now. What was logged before the
last change of its columns, or of its segment, cannot be described, or is described wrongly. So every change
of a row is compared with all schema changes behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.model.table import TableId

_COMMENT = re.compile(r"\s*(?:/\*.*?\*/|--[^\n]*\n)\s*", re.DOTALL)
#: Statements on a table after which its rows in the log read as before.
_HARMLESS = re.compile(
    r"(?:GRANT|REVOKE|COMMENT|ANALYZE|AUDIT|NOAUDIT|LOCK|EXPLAIN)\b"
    r"|(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:\w+\s+){0,2}?"
    r"(?:INDEX|TRIGGER|VIEW|SYNONYM|SEQUENCE|STATISTICS|POLICY)\b"
    r"|CREATE\s+(?:\w+\s+){0,2}?TABLE\b"  # what a table of its name was before has been dropped
    r"|ALTER\s+TABLE\s+(?:\"[^\"]+\"|[\w$#]+)(?:\s*\.\s*(?:\"[^\"]+\"|[\w$#]+))?\s+"
    r"ADD\s+SUPPLEMENTAL\s+LOG\b",
    re.IGNORECASE,
)
_KINDS = ("TRUNCATE", "DROP")


@dataclass(frozen=True, slots=True, order=True)
class Ddl:
    """A schema change in the log.

    Args:
        scn: its SCN.
        place: its place in the log, RS_ID and SSN.
        table: the table that it is about.
        alters: whether rows that were logged before it cannot be described any more.
        kind: TRUNCATE, DROP, or "" for others.
        ts_us: its time, microseconds since 1970 UTC.
    """

    scn: int
    place: tuple[str, int]
    table: TableId
    alters: bool
    kind: str
    ts_us: int


def ddl_of(scn: int, place: tuple[str, int], table: TableId, sql: str, ts_us: int) -> Ddl:
    """The schema change that a statement makes. What is not known as harmless alters its table."""
    text = sql
    while (found := _COMMENT.match(text)) is not None and found.end():
        text = text[found.end() :]
    text = text.lstrip()
    kind = next((k for k in _KINDS if re.match(rf"{k}\b", text, re.IGNORECASE)), "")
    return Ddl(scn, place, table, _HARMLESS.match(text) is None, "" if _HARMLESS.match(text) else kind, ts_us)


def behind(scn: int, ddls: Iterable[Ddl], table: TableId) -> list[Ddl]:
    """The schema changes of a table behind an SCN, in log order."""
    return sorted(ddl for ddl in ddls if ddl.table == table and ddl.scn > scn)
