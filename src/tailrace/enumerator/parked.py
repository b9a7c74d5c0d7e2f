"""Parking and resuming tables: how offsets change, and what of a batch is left out.

    a request ──▶ parked ──▶ resume: a position ──▶ read again, read for the first time, or replayed
                                                    (reached by a batch's start)

All functions are pure. A parked table is in none of the offset's other mappings, so nothing is planned of it;
its log is filtered. Why the other tables stay exact: docs/design/0008-parking.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.enumerator.request import Request
from tailrace.errors import PositionLostError, SourceError, TailraceError
from tailrace.model.parked import Had, Parked, Reason
from tailrace.model.table import TableId

#: The reason of a table that somebody has parked.
BY_HAND = Reason("parked by request")


def left_out(end: StreamOffset, requests: Iterable[Request]) -> frozenset[str]:
    """The tables of which the batch that ends at `end` holds nothing.

    A request of the pipeline itself counts for the batch that was planned before it, too. It is made while no
    batch is being written, and stays until an offset that has accepted it is committed: so each replay of the
    batch leaves out the same.
    """
    asked = {
        name
        for request in requests
        if request.kind == "park" and request.parked is not None and request.id not in end.requests
        for name in request.tables
    }
    return frozenset(end.parked) | asked


def had_of(name: str, start: StreamOffset, end: StreamOffset) -> Had:
    """What targets may have of a table's rows once the batch from `start` to `end` was begun."""
    is_whole = name in start.done and name in end.done
    if is_whole and name not in start.again and name not in end.again:  # a replay would skip that reading
        return "all"
    rows_follow = any(
        name in offset.done or (name in offset.tables and offset.tables[name].cursor is not None)
        for offset in (start, end)
    )
    return "part" if rows_follow else "nothing"


def parked_at(name: str, start: StreamOffset, end: StreamOffset, reason: Reason) -> Parked:
    """The entry of a table of which nothing counts any more from `start` on, in the batch to `end`."""
    return Parked(reason, start.log, had_of(name, start, end), start.done.get(name))


def park(offset: StreamOffset, name: str, entry: Parked) -> StreamOffset:
    """`offset` with a table parked; one that is parked stays as it is, but for its reason."""
    former = offset.parked.get(name)
    if former is not None:
        entry = replace(former, reason=entry.reason, resume=None, replay=False)
    rest = replace(offset.without(name), forgot=offset.forgot, keys=offset.keys, partial=offset.partial)
    return replace(rest, parked={**rest.parked, name: entry})


def park_with_rows(offset: StreamOffset, name: str) -> StreamOffset:
    """`offset` with a parked table whose rows are read when it is resumed, even if a replay is asked for."""
    entry = offset.parked[name]
    had: Had = "nothing" if entry.had == "nothing" else "part"
    return replace(offset, parked={**offset.parked, name: replace(entry, had=had)})


def with_parked(
    offset: StreamOffset, requests: Iterable[Request], captures: Collection[str] | None = None
) -> StreamOffset:
    """`offset` with the tables parked that requests ask for.

    Args:
        offset: where a batch begins.
        requests: those that the stream has not accepted.
        captures: the captured tables; None: all that a request names.
    """
    for request in requests:
        for name in request.tables if request.kind == "park" else ():
            if not offset.knows(name) and captures is not None and name not in captures:
                continue
            entry = request.parked or parked_at(name, offset, offset, BY_HAND)
            if entry.log is None:  # it was parked in the first batch, before the stream had a position
                entry = replace(entry, log=offset.log)
            if name not in offset.parked or request.parked is None:
                offset = park(offset, name, entry)
    return offset


def may_park(
    offset: StreamOffset, refused: Mapping[str, TailraceError], tables: Collection[str], most: int
) -> bool:
    """Whether tables that cannot be captured may be parked: not too many, and not the last ones.

    Args:
        offset: the stream's state.
        refused: the tables.
        tables: all captured tables.
        most: how many tables may be parked.
    """
    parked = offset.parked.keys() | refused.keys()
    followed = (offset.tables.keys() | offset.done.keys() | set(tables)) - parked
    return len(parked) <= most and bool(followed)


def to_resume(offset: StreamOffset, request: Request, end: Mapping[str, Any]) -> StreamOffset:
    """`offset` with the tables of a request to be resumed by the batch that begins at `end` or behind it.

    The log may lack changes of a table up to `end`: it may be part of the log only since now (PostgreSQL).
    """
    parked = dict(offset.parked)
    for name in request.tables:
        if name in parked:
            parked[name] = replace(parked[name], resume=end, replay=request.replay)
    return replace(offset, parked=parked)


def waits_to_resume(offset: StreamOffset) -> bool:
    """Whether tables are to be resumed once the log is read up to where that was accepted."""
    return any(entry.resume is not None for entry in offset.parked.values())


def resume(offset: StreamOffset, name: str, estimated: int) -> StreamOffset:
    """`offset` with a table followed again: its rows are read again, or for the first time, or not."""
    entry = offset.parked[name]
    rest = replace(offset, parked={n: p for n, p in offset.parked.items() if n != name})
    progress = TableProgress(estimated=estimated)
    if entry.replay and entry.had == "all" and entry.log is not None:
        return rest.with_done(name, entry.rows)
    if entry.had == "nothing":
        reads = offset.mode in ("initial", "snapshot") and name not in offset.partial
        return rest.with_table(name, progress) if reads else rest.with_done(name, None)
    return rest.with_done(name, entry.rows).with_reread(name, RereadProgress(uuid.uuid4().hex[:12], progress))


def replayed(start: StreamOffset, end: StreamOffset) -> dict[str, Mapping[str, Any]]:
    """The tables whose changes since they were parked are in the batch, each with the position of that."""
    return {
        name: entry.log
        for name, entry in start.parked.items()
        if entry.replay and entry.had == "all" and entry.log is not None and name in end.done
        if name not in end.parked and name not in end.again
    }


def not_replayable(table: TableId, error: PositionLostError) -> SourceError:
    """The error of a table that cannot be resumed with its changes: the log no longer has them."""
    return SourceError(
        f"the changes of `{table}` since it was parked are no longer in the log",
        error.detail or error.message,
        f"tailrace resume PIPELINE.YAML {table}  # reads its rows again",
        code="TR-4140",
        table=str(table),
    )


def after_a_gap(offset: StreamOffset) -> StreamOffset:
    """`offset` of a stream that has lost its log: no parked table can be resumed with its changes."""
    return replace(offset, parked={n: replace(p, log=None) for n, p in offset.parked.items()})
