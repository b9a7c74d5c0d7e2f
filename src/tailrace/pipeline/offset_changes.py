"""What a batch changed in a stream's offset, in words. Pure."""

from __future__ import annotations

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import coded
from tailrace.printable import printable
from tailrace.sources.base import Position


def changes(former: StreamOffset, new: StreamOffset, position_type: type[Position]) -> list[str]:
    """The differences between two offsets of one stream, one on a line.

    Args:
        former: the earlier one; it may be that of a new stream.
        new: the later one.
        position_type: the class of their positions.
    """
    lines = [
        *_log(former, new, position_type),
        *_snapshots(former, new),
        *_rereads(former, new),
        *_parked(former, new),
        *(f"schema of {e.table}: {', '.join(c.kind for c in e.changes)}" for e in new.schema),
        *_signals(former, new),
        *(f"request {id_} accepted" for id_ in new.requests if id_ not in former.requests),
    ]
    known, now = ({*o.tables, *o.done, *o.parked} for o in (former, new))
    lines += [f"{name}: forgotten, it was dropped" for name in sorted(known - now)]
    return [printable(line) for line in lines]


def _log(former: StreamOffset, new: StreamOffset, position_type: type[Position]) -> list[str]:
    if new.log is None:
        return []
    end = position_type.from_json(new.log)
    if former.log is None:
        return [f"log: starts at {end}"]
    if new.gaps > former.gaps:
        return [f"log: lost, joined again at {end}"]
    if former.log == new.log:
        return []
    lag = position_type.from_json(former.log).lag_to(end)
    size = f"{lag.files} files" if lag.size is None else f"{lag.size:,} bytes"
    return [f"log: {size}, up to {end}"]


def _snapshots(former: StreamOffset, new: StreamOffset) -> list[str]:
    lines = []
    for name, progress in sorted(new.tables.items()):
        if progress != former.tables.get(name):
            lines.append(f"{name}: snapshot, {_rows(progress)}")
    for name, rows in sorted(new.done.items()):
        if name not in former.done and name not in new.again and name not in former.parked:
            lines.append(
                f"{name}: followed without a snapshot"
                if rows is None
                else f"{name}: snapshot done, {rows:,} rows"
            )
    return lines


def _rereads(former: StreamOffset, new: StreamOffset) -> list[str]:
    lines = []
    for name, reread in sorted(new.again.items()):
        if reread != former.again.get(name):
            state = "read again, done" if reread.done else f"read again, {_rows(reread.progress)}"
            lines.append(f"{name}: {state}")
    return lines


def _parked(former: StreamOffset, new: StreamOffset) -> list[str]:
    lines = [
        f"{name}: parked: {coded(entry.reason.message, entry.reason.code)}"
        for name, entry in sorted(new.parked.items())
        if name not in former.parked
    ]
    resumed = former.parked.keys() & (new.tables.keys() | new.done.keys())
    return lines + [f"{name}: resumed" for name in sorted(resumed)]


def _signals(former: StreamOffset, new: StreamOffset) -> list[str]:
    lines = [f"signal {s.type} ({s.id}) received" for i, s in new.signals.items() if i not in former.signals]
    lines += [f"signal {a.signal} ({a.id}): {a.status.lower()}" for a in new.answers]
    if new.paused != former.paused:
        lines.append("snapshots paused" if new.paused else "snapshots resumed")
    return lines


def _rows(progress: TableProgress) -> str:
    return f"{progress.rows:,} of ~{progress.estimated:,} rows"
