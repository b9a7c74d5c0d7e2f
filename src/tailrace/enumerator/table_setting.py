"""The signal `set-tables`: other patterns of captured tables, without a restart. Pure.

The stream obeys it as if it were started with other `tables` (`Enumerator`): tables that are named from now
on are read, tables that are no longer named are left out. So it is decided before anything else of a batch:
what the batch holds is captured by the patterns in its end offset.

Anybody who may signal can send patterns, and each is matched against each name in the log. RE2 bounds the
time of a match; Python's `re`, by which tables are captured, does not. So patterns are refused that may take
for ever: those that RE2 refuses, repeated groups, and more than a few repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.option_values import table_patterns
from tailrace.enumerator.request import Request
from tailrace.model.signal import Signal
from tailrace.model.table_setting import TableSetting

TYPE = "set-tables"
_TABLES = "tables"
#: Most characters of all patterns.
MOST_PATTERNS = 10_000
#: Most repetitions in one pattern.
_MOST_REPEATS = 4
_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


@dataclass(frozen=True)
class Decision:
    """What becomes of a signal that sets the tables.

    Args:
        request: its request's id.
        problem: why it is not obeyed; None: it is.
        setting: the tables in place of those of the option; None: those of the option.
        left_out: tables of the stream that are captured no more.
        taken_in: tables that are captured from now on.
    """

    request: str
    problem: str | None = None
    setting: TableSetting | None = None
    left_out: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """What is done, for the answer."""
        parts = (("read", self.taken_in), ("left out", self.left_out))
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names) or "as before"


def is_setting(request: Request) -> bool:
    """Whether a request is such a signal."""
    return request.signal is not None and request.signal.type == TYPE and request.signal.problem is None


def is_due(due: Sequence[Request]) -> bool:
    """Whether the first of the signals in `due` is such a one: those before it are obeyed first."""
    first = next((request for request in due if request.signal is not None), None)
    return first is not None and is_setting(first)


def too_early(due: Iterable[Request], decision: Decision | None) -> set[str]:
    """The signals that set tables and wait for the next batch: others come before them."""
    decided = None if decision is None else decision.request
    return {request.id for request in due if is_setting(request) and request.id != decided}


def patterns_of(signal: Signal) -> tuple[str, ...]:
    """The patterns of a signal: a text as the option `tables`, or a list of regular expressions.

    Raises:
        ValueError: they cannot be captured by; the text says why.
    """
    given = signal.data.get(_TABLES)
    if isinstance(given, list) and all(isinstance(text, str) and text.strip() for text in given):
        patterns = tuple(dict.fromkeys(text.strip() for text in given))
    elif isinstance(given, str):
        patterns = _of_text(given)
    else:
        patterns = ()
    if not patterns:
        raise ValueError(f"its data names no tables; needed: `{_TABLES}`, regular expressions")
    if sum(map(len, patterns)) > MOST_PATTERNS:
        raise ValueError(f"`{_TABLES}` has more than {MOST_PATTERNS:,} characters")
    for pattern in patterns:
        if problem := _problem(pattern):
            raise ValueError(f"`{_TABLES}` has an entry that {problem}")
    return patterns


def _of_text(text: str) -> tuple[str, ...]:
    try:
        return table_patterns(text)
    except ValueError:
        raise ValueError(f"`{_TABLES}` is not as the option `tables`") from None


def _problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
        pc.match_substring_regex(pa.array([""]), pattern)
    except (re.error, pa.ArrowInvalid, OverflowError, RecursionError):
        return "is no regular expression that RE2 and Python know"
    if "." not in pattern:
        return "names no database"
    plain = _ESCAPED.sub("x", pattern)
    if re.search(r"\)[*+{]", plain):
        return "repeats a group"
    if len(re.findall(r"[*+?{]", plain)) - plain.count("(?") > _MOST_REPEATS:
        return f"has more than {_MOST_REPEATS} repetitions"
    return None
