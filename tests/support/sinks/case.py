"""The contract suite's knowledge of a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.sinks.base import Sink
from tailrace.sinks.route import Router

Row = Mapping[str, Any]
#: (op letter, row before, row after), values as Python has them: int, str, Decimal, datetime, bytes.
Change = tuple[str, Row | None, Row | None]


@dataclass(frozen=True)
class SinkCase:
    """One sink over one empty target.

    Args:
        open: opens a new sink over that target, as a new process would.
        rows: of a sink that holds rows: the rows of the target of that name, in any order.
        changes: of any other sink: the changes in the target of that name, in the order in which a reader of
            the target sees them (for `Order.BY_SEQ` by seq, else in their order).
        takes_parts: of a sink that holds rows: whether updates leave columns unchanged that the log omits;
            else it refuses such updates.
        drop: removes the target of that name, as a user would.
        compares: of a sink that holds changes: whether it receives of a table that is read again only what
            differs.
        narrows_repeats: of a sink that delivers at least once: whether it repeats only what was on its way
            when a batch broke off.
        tells_gone: of a sink that holds changes and does not compare: whether rows that are gone are deletes.
    """

    open: Callable[[Router], Sink]
    drop: Callable[[str], object]
    rows: Callable[[str], list[Row]] | None = None
    changes: Callable[[str], list[Change]] | None = None
    takes_parts: bool = False
    compares: bool = False
    narrows_repeats: bool = False
    tells_gone: bool = False


def as_change(op: str, row: Row, before: Row | None) -> Change:
    """A change from a change log's row and its `_before`."""
    return (op, row, None) if op == "d" else (op, before, row)
