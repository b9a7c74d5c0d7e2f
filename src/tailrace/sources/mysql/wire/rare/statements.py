"""Statements in the log, classified by their first words; and the tables they may name.

No SQL is parsed: a row's schema comes from the log's own table maps. A statement's text decides only where a
transaction ends, and whether a batch must end before it. For the latter, every name in the position of a
table's name counts: at worst a batch ends once more than necessary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import islice

from tailrace.model.table import TableId


class Statement(IntEnum):
    """What a statement does to the log's transactions."""

    BEGIN = 0  # opens one
    END = 1  # closes the open one
    INSIDE = 2  # neither
    XA_END = 3  # commits or rolls back one prepared earlier
    SCHEMA = 4  # changes tables; a transaction of its own, or inside one
    ROWS = 5  # changes rows, by its text
    OTHER = 6  # a transaction of its own that changes neither


_TOKEN = re.compile(
    r"""
    (?P<comment> /\*(?!!).*?\*/ | --\s[^\n]* | \#[^\n]* | /\*!\d* | \*/ )
  | (?P<text> '(?:[^'\\]|\\.|'')*' )
  | `(?P<quoted> (?:[^`]|``)+ )` | "(?P<ansi> (?:[^"]|"")* )"
  | (?P<word> [\w$]+ )
  | (?P<mark> [^\s\w] )
""",
    re.VERBOSE | re.DOTALL,
)
_SCHEMA = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_ROWS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO"})
#: Words that a table's name follows, by the statement's first word.
_LEADERS = {
    "CREATE": frozenset({"TABLE", "LIKE"}),
    "ALTER": frozenset({"TABLE", "RENAME", "TO", "AS"}),
    "DROP": frozenset({"TABLE", "TABLES"}),
    "RENAME": frozenset({"TABLE", "TABLES", "TO"}),
    "TRUNCATE": frozenset({"TRUNCATE", "TABLE"}),
    "INSERT": frozenset({"INSERT", "INTO"}),
    "REPLACE": frozenset({"REPLACE", "INTO"}),
    "LOAD": frozenset({"TABLE"}),
    "UPDATE": frozenset({"UPDATE", "JOIN"}),
    "DELETE": frozenset({"DELETE", "FROM", "USING", "JOIN"}),
    "WITH": frozenset({"UPDATE", "DELETE", "FROM", "USING", "JOIN"}),
}
#: Words that may stand between such a word and the name.
_BETWEEN = frozenset({"IF", "NOT", "EXISTS", "IGNORE", "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK"})
#: Statements whose tables are listed with commas, and the word that ends the list.
_LISTED = {"DROP": "", "RENAME": "", "UPDATE": "SET", "DELETE": "WHERE"}
_ONE_TABLE = frozenset({"INSERT", "REPLACE", "LOAD", "TRUNCATE"})
_INDEXES = frozenset({"INDEX", "UNIQUE", "FULLTEXT", "SPATIAL"})

_WORD, _NAME, _MARK = range(3)


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Words, quoted names and marks; string literals and comments are left out."""
    for match in _TOKEN.finditer(text):
        if match["word"]:
            yield _WORD, match["word"]
        elif match["quoted"]:
            yield _NAME, match["quoted"].replace("``", "`")
        elif match["ansi"]:
            yield _NAME, match["ansi"].replace('""', '"')
        elif match["mark"]:
            yield _MARK, match["mark"]


def first_words(text: str) -> tuple[str, str]:
    """The first two words, in capitals."""
    words = [word.upper() for _, word in islice(_tokens(text), 2)]
    first, second = [*words, "", ""][:2]
    return first, second


def classify(text: str) -> Statement:
    """The kind of the statement `text` of a QUERY event."""
    first, second = first_words(text)
    if first == "XA":
        return {"START": Statement.BEGIN, "BEGIN": Statement.BEGIN, "END": Statement.INSIDE}.get(
            second, Statement.XA_END
        )
    if first == "BEGIN" or (first, second) == ("START", "TRANSACTION"):
        return Statement.BEGIN
    if first == "COMMIT" or (first == "ROLLBACK" and second != "TO"):
        return Statement.END
    if first in ("SAVEPOINT", "RELEASE", "ROLLBACK"):
        return Statement.INSIDE
    if first in _SCHEMA:
        return Statement.SCHEMA
    return Statement.ROWS if first in _ROWS else Statement.OTHER


def drops_database(text: str) -> bool:
    """Whether the statement drops a database with all its tables, which it does not name."""
    first, second = first_words(text)
    return first == "DROP" and second in ("DATABASE", "SCHEMA")


def tables_named(text: str, database: str, wanted: Callable[[TableId], bool]) -> tuple[TableId, ...]:
    """Captured tables that the statement may concern, in the order they are named.

    Args:
        text: the statement.
        database: its default database, "" for none.
        wanted: whether a table is captured.
    """
    first, second = first_words(text)
    leaders = _LEADERS.get(first, frozenset())
    if second == "TEMPORARY":
        return ()  # invisible to other sessions, and never with rows in the log
    if first in ("CREATE", "DROP") and second in _INDEXES:
        leaders = frozenset({"ON"})
    found: dict[TableId, None] = {}
    tokens = list(_tokens(text))
    led, at = False, 0
    while at < len(tokens):
        kind, name = tokens[at]
        at += 1
        word = name.upper() if kind == _WORD else ""
        if kind == _MARK:
            led = name == "," and first in _LISTED
        elif word and word == _LISTED.get(first):
            break
        elif word in leaders:
            led = True
        elif led and word not in _BETWEEN:
            led = False
            candidate = TableId(database, name)
            if tokens[at : at + 1] == [(_MARK, ".")] and at + 1 < len(tokens):
                candidate = TableId(name, tokens[at + 1][1])
                at += 2
            if candidate.database and wanted(candidate):
                found[candidate] = None
            if first in _ONE_TABLE:
                break
    return tuple(found)
