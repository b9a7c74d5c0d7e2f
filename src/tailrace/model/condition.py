"""Conditions of rows that are read again: a part of SQL that can neither fail nor reach further. Pure.

    status = 'open' AND created >= '2026-11-01' AND id NOT IN (7, 8)

A condition is sent by whoever may send a signal, and becomes part of a SELECT of the pipeline's user. So it
holds columns of its own table, literals, comparisons and a few functions, nothing else: no other table, no
call that writes or waits, nothing that a row could make fail (a division, a cast). Whatever is not known is
refused. The server has the last word on types (`Source.condition_problem`).

Backslashes are refused even in texts: whether they escape a quote depends on settings of the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Most characters of a condition: it is part of the offset.
MOST_CONDITION = 2_000
#: Keywords that a parenthesis may follow, and those that none may: `DATE (name)` is a cast.
_JOINING = frozenset(["AND", "OR", "NOT", "XOR", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "DISTINCT", "FROM"])
_WHOLE = frozenset(["NULL", "TRUE", "FALSE", "UNKNOWN", "DATE", "TIME", "TIMESTAMP"])
#: The databases that quote names with double quotes.
_DOUBLE_QUOTES = frozenset(["oracle", "postgresql"])
_FUNCTIONS = frozenset(["COALESCE", "LOWER", "UPPER", "TRIM", "LENGTH", "CHAR_LENGTH", "NULLIF"])
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.$]))
      | (?P<word>[^\W\d]\w*)
      | (?P<operator><=>|<=|>=|<>|!=|=|<|>)
      | (?P<sign>-)
      | (?P<comma>,)
      | (?P<open>\()
      | (?P<close>\))
    """,
    re.VERBOSE,
)


def condition_problem(condition: str, columns: Iterable[str], dialect: str) -> str | None:
    """Why a condition is refused, None if it is not.

    Args:
        condition: what follows WHERE.
        columns: the names of the table's columns.
        dialect: the database: mysql, mariadb, oracle or postgresql.
    """
    if len(condition) > MOST_CONDITION:
        return f"a condition has more than {MOST_CONDITION:,} characters"
    if not condition.strip():
        return "a condition is empty"
    if any(ord(char) < 32 and char not in "\t\r\n" for char in condition) or "\\" in condition:
        return "a condition holds a backslash or a control character"
    known = set(columns)
    folded = {name.lower() for name in known}
    depth, before, at = 0, "open", 0
    while at < len(condition):
        found = _TOKEN.match(condition, at)
        if found is None:
            return f"a condition holds `{condition[at]}` outside of texts; {_ALLOWED}"
        kind, text, at = str(found.lastgroup), found.group(), found.end()
        if kind == "space":
            continue
        if kind == "word" and text.upper() not in _JOINING | _WHOLE:
            is_call = text.upper() in _FUNCTIONS and condition[at:].lstrip()[:1] == "("
            is_column = text.lower() in (known if dialect == "postgresql" else folded)
            if not is_call and not is_column:
                return f"a condition holds `{text}`, which is no column of the table; {_ALLOWED}"
            kind = "function" if is_call else "value"
        elif kind == "word":
            kind = "text" if text.upper() in _WHOLE else "keyword"
        elif kind == "name":
            if problem := _quoted(text, known, folded, dialect):
                return problem
            kind = "value"
        elif kind == "open":
            depth += 1
            if before not in ("open", "keyword", "function", "operator", "comma"):
                return f"a condition calls what is no known function; {_ALLOWED}"
        elif kind == "close":
            depth -= 1
        elif kind == "sign" and before not in ("open", "keyword", "operator", "comma"):
            return f"a condition computes; {_ALLOWED}"
        if depth < 0:
            break
        before = kind
    return None if depth == 0 else "a condition's parentheses do not match"


#: Every message ends with it.
_ALLOWED = (
    "a condition is what follows WHERE: columns, literals, comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR,"
    " NOT, and " + ", ".join(sorted(_FUNCTIONS))
)


def _quoted(text: str, known: set[str], folded: set[str], dialect: str) -> str | None:
    """What is wrong with a name in quotes; in MySQL, double quotes may as well enclose a text."""
    quote = text[0]
    if (quote == '"') != (dialect in _DOUBLE_QUOTES):
        return f"a condition holds `{quote}`: write texts in single quotes, names as the database quotes them"
    name = text[1:-1].replace(quote * 2, quote)
    is_column = name in known if dialect in _DOUBLE_QUOTES else name.lower() in folded
    if not is_column:
        return f"a condition names a column in {quote} that the table does not have"
    return None


def both(first: str, second: str) -> str:
    """The condition of the rows that one of two conditions holds for."""
    return first if first == second else f"({first}) OR ({second})"
