"""What signals ask for, as requests to the stream or changes of its offset. Pure.

    execute-snapshot, resync     a request to read tables again
    park, resume                 the requests of those names
    set-tables                   other captured tables, decided before the batch (`enumerator.table_setting`)
    stop-, pause-, resume-snapshot, log, schema-changes ...    a change of the offset, or just an answer
    verify, repair               an answer, upon which `tailrace run` compares the tables

A signal takes effect in the offset that accepts it, with its answer: a batch that is repeated answers the
same (`pipeline.notifications` tells it). What cannot be obeyed is answered, too, and is never an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.enumerator import table_setting
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.request import Kind, Request
from tailrace.enumerator.table_setting import Decision
from tailrace.model.condition import condition_problem
from tailrace.model.signal import MOST_REASON, Answer, Signal, Status
from tailrace.model.table import TableSchema

#: Signals about tables, by the kind of request that they are.
_REQUESTS: dict[str, Kind] = {
    "execute-snapshot": "resync",
    "resync": "resync",
    "park": "park",
    "resume": "resume",
}
#: Signals that are not obeyed while the stream runs, with the reason.
_REFUSED = {
    "set-binlog-position": "a running stream keeps its position; stop the pipeline, then: "
    "tailrace offsets set PIPELINE.YAML",
}
#: Signals that the process which runs the pipeline obeys, beside the stream.
COMPARISONS = ("verify", "repair")
#: Every type of signal that is known.
TYPES = (
    *_REQUESTS,
    table_setting.TYPE,
    "stop-snapshot",
    "pause-snapshot",
    "resume-snapshot",
    "log",
    "schema-changes",
    *COMPARISONS,
    *_REFUSED,
)
#: Most signals that wait in an offset; others are refused.
MOST_WAITING = 100
_SNAPSHOTS = ("incremental", "blocking")
_TABLES = "data-collections"
_CONDITIONS = "additional-conditions"


class _RefusedError(Exception):
    """A signal cannot be obeyed, for the reason given."""


@dataclass(frozen=True)
class Context:
    """What signals are resolved by.

    Args:
        tables: the captured tables, by name.
        dialect: the database.
        decision: what was decided about a signal that sets the tables; None: there is none.
        compares: whether the process that runs the stream compares tables with their targets.
    """

    tables: Mapping[str, TableSchema]
    dialect: str
    decision: Decision | None = None
    compares: bool = False


def resolved(requests: Sequence[Request], offset: StreamOffset, context: Context) -> list[Request]:
    """`requests`, those of signals about tables with the tables that they concern."""
    return [_resolved(request, offset, context) for request in requests]


def _resolved(request: Request, offset: StreamOffset, context: Context) -> Request:
    signal = request.signal
    if signal is None or signal.type not in _REQUESTS or signal.problem is not None:
        return request
    try:
        tables, _ = _matching(signal, offset, context)
        where = _conditions(signal, tables, context)
    except _RefusedError:
        return request
    kind = _REQUESTS[signal.type]
    replay = signal.data.get("replay") is True
    return replace(request, kind=kind, tables=tables, replay=replay, where=where)


def _matching(
    signal: Signal, offset: StreamOffset, context: Context
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tables that a signal concerns, and the patterns that no table matches.

    Raises:
        _RefusedError: it cannot be obeyed.
    """
    kind = signal.data.get("type", _SNAPSHOTS[0])
    if signal.type == "execute-snapshot" and (
        not isinstance(kind, str) or kind.strip().lower() not in _SNAPSHOTS
    ):
        raise _RefusedError("its data has an unknown `type`; known are incremental and blocking")
    if signal.type == "resume" and signal.data.get("replay") is True and context.dialect == "postgresql":
        raise _RefusedError(
            "`replay` is not possible: the slot keeps the log only up to where other tables are"
        )
    patterns = _patterns(signal)
    if not patterns:
        raise _RefusedError(f"its data names no table; needed: `{_TABLES}`, a list of regular expressions")
    names = offset.parked if signal.type == "resume" else {*context.tables, *offset.names()}
    if _REQUESTS[signal.type] == "resync":
        names = set(context.tables) - offset.parked.keys()
    found = {text: _matched(text, names) for text in patterns}
    tables = tuple(sorted(set().union(*found.values())))
    unmatched = tuple(text for text, matched in found.items() if not matched)
    if not tables:
        which = "parked" if signal.type == "resume" else "captured"
        raise _RefusedError(f"no {which} table matches {', '.join(f'`{text}`' for text in unmatched)}")
    return tables, unmatched


def _conditions(signal: Signal, tables: Sequence[str], context: Context) -> dict[str, str]:
    """The conditions of rows to be read again, by table.

    Raises:
        _RefusedError: they cannot be obeyed.
    """
    found: dict[str, str] = {}
    for pattern, where in _filters(signal):
        matched = set(tables) if pattern is None else _matched(pattern, tables)
        if not matched:
            raise _RefusedError(f"`{_CONDITIONS}` names no table that is to be read")
        for name in sorted(matched):
            if found.setdefault(name, where) != where:
                raise _RefusedError(f"`{_CONDITIONS}` has two conditions of `{name}`: join them by OR")
            schema = context.tables[name]
            if problem := condition_problem(where, [c.name for c in schema.columns], context.dialect):
                raise _RefusedError(problem)
    if found and _REQUESTS[signal.type] != "resync":
        raise _RefusedError(f"`{_CONDITIONS}` belongs to execute-snapshot and resync")
    return found


def _filters(signal: Signal) -> Iterator[tuple[str | None, str]]:
    """The conditions of a signal: a pattern of tables (None: all of them) and what follows WHERE."""
    given, former = signal.data.get(_CONDITIONS) or [], signal.data.get("additional-condition") or ""
    if not isinstance(given, list) or not isinstance(former, str):
        raise _RefusedError(f"`{_CONDITIONS}` is not a list")
    if former.strip():  # Debezium's form before 2.5
        yield None, former.strip()
    for entry in given:
        pattern = entry.get("data-collection") if isinstance(entry, dict) else None
        where = entry.get("filter") if isinstance(entry, dict) else None
        if not isinstance(pattern, str) or not isinstance(where, str) or not where.strip():
            raise _RefusedError(f"an entry of `{_CONDITIONS}` lacks its table pattern or its filter")
        yield pattern.strip(), where.strip()


def _patterns(signal: Signal) -> list[str]:
    given = signal.data.get(_TABLES, [])
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise _RefusedError(f"`{_TABLES}` is not a list of texts")
    return list(dict.fromkeys(text.strip() for text in given))


def _matched(pattern: str, names: Iterable[str]) -> set[str]:
    """The names that a pattern matches as a whole.

    By RE2, whose time is bounded: anybody's pattern must not hold up the stream, as it might with `re`.
    """
    known = pa.array(sorted(names), pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # so it is whole by itself
        mask = pc.match_substring_regex(known, rf"(?s)\A(?:{pattern})\z")
    except pa.ArrowInvalid:
        raise _RefusedError(f"`{_TABLES}` has an entry that is no regular expression") from None
    return set(known.filter(mask).to_pylist())


def in_order(waiting: Iterable[Request], postponed: Collection[str]) -> list[Request]:
    """The waiting requests that are not postponed; signals about snapshots wait behind one that is."""
    found, waits = [], False
    for request in waiting:
        if request.id in postponed:
            waits = True
        elif not (waits and request.kind == "signal"):
            found.append(request)
    return found


def answered(offset: StreamOffset, request: Request, context: Context) -> StreamOffset:
    """`offset` with what a signal asks for, as far as that is no request about tables, and its answer."""
    signal = request.signal
    if signal is None:
        return offset
    try:
        if signal.problem is not None:
            raise _RefusedError(signal.problem)
        if signal.type in _REQUESTS:
            return _accepted(offset, request, context)
        if signal.type in COMPARISONS:
            return _compare(offset, signal, context)
        if signal.type in _REFUSED:
            raise _RefusedError(_REFUSED[signal.type])
        if signal.type == table_setting.TYPE:
            assert context.decision is not None  # else it waits (`table_setting.too_early`)
            return _set_tables(offset, signal, context.decision)
        effect = _EFFECTS.get(signal.type)
        if effect is None:
            raise _RefusedError(f"its type is unknown; known are {', '.join(TYPES)}")
        return effect(offset, signal)
    except _RefusedError as error:
        return _with(offset, signal, "ABORTED", str(error))


def is_blocking(request: Request, dialect: str) -> bool:
    """Whether a request is to read tables again while the log waits, and the database can do that.

    PostgreSQL shows rows as of a position only as long as a snapshot of it is held.
    """
    if request.signal is None or dialect == "postgresql":
        return False
    return str(request.signal.data.get("type", "")).strip().lower() == "blocking"


def refused(offset: StreamOffset, request: Request, reason: str) -> StreamOffset:
    """`offset` with the answer to a request about tables that cannot be obeyed."""
    return offset if request.signal is None else _with(offset, request.signal, "ABORTED", reason)


def _accepted(offset: StreamOffset, request: Request, context: Context) -> StreamOffset:
    """The answer to a request about tables, whose effect the offset has."""
    signal = request.signal
    assert signal is not None
    if request.kind == "signal":  # not resolved
        tables, _ = _matching(signal, offset, context)
        _conditions(signal, tables, context)
        raise _RefusedError("its tables are not captured")
    unmatched = [text for text in _patterns(signal) if not _matched(text, request.tables)]
    if unmatched:
        offset = _with(offset, signal, "UNKNOWN_SCHEMA", "no captured table matches", unmatched)
    if request.kind == "resync":
        asked = str(signal.data.get("type", "")).strip().lower()
        if asked == "blocking" and not is_blocking(request, context.dialect):
            reason = "read while the stream goes on: rows are exact as of each batch's end"
            offset = _with(offset, signal, "COMPLETED", reason, request.tables)
        return offset
    return _with(offset, signal, "COMPLETED", "", request.tables)


def _set_tables(offset: StreamOffset, signal: Signal, decision: Decision) -> StreamOffset:
    """The answer to a signal whose tables the batch has already."""
    if decision.problem is not None:
        raise _RefusedError(decision.problem)
    offset = replace(offset, setting=decision.setting)
    return _with(offset, signal, "COMPLETED", decision.reason, (*decision.taken_in, *decision.left_out))


def _compare(offset: StreamOffset, signal: Signal, context: Context) -> StreamOffset:
    """Accept a comparison, which happens outside of the stream: the answer names its tables; none: all."""
    if not context.compares:
        raise _RefusedError(
            "a stream compares nothing, and this one is not run by `tailrace run`; use the command: "
            f"tailrace {signal.type} PIPELINE.YAML"
        )
    names = {*context.tables, *offset.names(), *offset.parked}
    patterns = _patterns(signal)
    tables = set().union(*(_matched(text, names) for text in patterns)) if patterns else set()
    if patterns and not tables:
        raise _RefusedError(f"no captured table matches {', '.join(f'`{text}`' for text in patterns)}")
    return _with(offset, signal, "ACCEPTED", "", sorted(tables))


def _stop(offset: StreamOffset, signal: Signal) -> StreamOffset:
    kind = signal.data.get("type", _SNAPSHOTS[0])
    if not isinstance(kind, str) or kind.strip().lower() not in _SNAPSHOTS:
        raise _RefusedError("its data has an unknown `type`; known are incremental and blocking")
    patterns = _patterns(signal)
    unfinished = {name: r for name, r in offset.again.items() if not r.done}
    asked = set().union(*(_matched(text, unfinished) for text in patterns)) if patterns else set(unfinished)
    stopped = {name for name in asked if unfinished[name].by is not None}
    if not asked:
        return _with(offset, signal, "SKIPPED", "none of these tables is being read again")
    if not stopped:
        raise _RefusedError("the tables are read again because their targets lack rows without it")
    return _with(offset.without_rereads(stopped), signal, "STOPPED", "", sorted(stopped))


def _pause(offset: StreamOffset, signal: Signal) -> StreamOffset:
    if offset.paused:
        return _with(offset, signal, "SKIPPED", "snapshots are paused already")
    return _with(replace(offset, paused=True), signal, "PAUSED", "", _unfinished(offset))


def _resume(offset: StreamOffset, signal: Signal) -> StreamOffset:
    if not offset.paused:
        return _with(offset, signal, "SKIPPED", "snapshots are not paused")
    return _with(replace(offset, paused=False), signal, "RESUMED", "", _unfinished(offset))


def _unfinished(offset: StreamOffset) -> list[str]:
    return sorted({*offset.tables, *(name for name, reread in offset.again.items() if not reread.done)})


def _log(offset: StreamOffset, signal: Signal) -> StreamOffset:
    message = signal.data.get("message", "")
    if not isinstance(message, str):
        raise _RefusedError("its `message` is not a text")
    return _with(offset, signal, "COMPLETED", message.replace("{}", json.dumps(offset.log)))


def _schema_changes(offset: StreamOffset, signal: Signal) -> StreamOffset:
    return _with(offset, signal, "SKIPPED", "the stream has every schema from the log and the catalog")


_EFFECTS: dict[str, Callable[[StreamOffset, Signal], StreamOffset]] = {
    "stop-snapshot": _stop,
    "pause-snapshot": _pause,
    "resume-snapshot": _resume,
    "log": _log,
    "schema-changes": _schema_changes,
}


def _with(
    offset: StreamOffset, signal: Signal, status: Status, reason: str, tables: Iterable[str] = ()
) -> StreamOffset:
    answer = Answer(signal.id, signal.type, status, reason[:MOST_REASON], tuple(tables))
    return replace(offset, answers=(*offset.answers, answer))


def waiting_in(offset: StreamOffset) -> list[Request]:
    """The signals of the log that wait in an offset, as requests."""
    return [Request(id_, (), "signal", signal=signal) for id_, signal in offset.signals.items()]


def with_signals(offset: StreamOffset, found: Iterable[tuple[str, Signal]]) -> StreamOffset:
    """`offset` with signals that were found in the log; a batch later they are obeyed."""
    for id_, signal in found:
        if len(offset.signals) >= MOST_WAITING:
            offset = _with(offset, signal, "ABORTED", f"{MOST_WAITING} signals wait already")
        else:
            offset = replace(offset, signals={**offset.signals, id_: signal})
    return offset


def without_accepted(offset: StreamOffset, accepted: Collection[str]) -> StreamOffset:
    """`offset` without the signals of the log that it has accepted."""
    if not offset.signals.keys() & accepted:
        return offset
    return replace(offset, signals={i: s for i, s in offset.signals.items() if i not in accepted})
