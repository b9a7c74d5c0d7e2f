"""Functions of Flink CDC's expressions that Spark SQL has by the same name and with the same meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Those whose results agree for arguments that both accept.
_SAME = frozenset(
    {
        "abs",
        "ceil",
        "floor",
        "round",
        "sign",
        "exp",
        "ln",
        "log10",
        "sqrt",
        "power",
        "mod",
        "sin",
        "cos",
        "tan",
        "char_length",
        "character_length",
        "upper",
        "lower",
        "trim",
        "ltrim",
        "rtrim",
        "concat",
        "concat_ws",
        "substring",
        "substr",
        "replace",
        "coalesce",
        "if",
        "nullif",
        "ifnull",
        "cast",
        "case",
        "when",
        "and",
        "or",
        "not",
        "in",
        "between",
        "exists",
        "like",
        "year",
        "month",
        "dayofmonth",
        "hour",
        "minute",
        "second",
    }
)
_TEXT = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"")
_CALL = re.compile(r"\b([A-Za-z_][\w.]*)\s*\(")


def unknown_functions(expression: str) -> Iterator[str]:
    """The functions of an expression that are not known to mean the same in Spark SQL.

    Types with a length in a CAST (`DECIMAL(10, 2)`) are no functions.
    """
    plain = re.sub(r"\bAS\s+[A-Za-z_]+\s*\(", "AS (", _TEXT.sub("''", expression), flags=re.IGNORECASE)
    for match in _CALL.finditer(plain):
        if match[1].lower() not in _SAME and match[1].lower() != "as":
            yield match[1]
