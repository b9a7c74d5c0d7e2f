"""What a batch did, as notifications in Debezium's form: from its two offsets alone. Pure.

    {"id": "ad-hoc-1", "aggregate_type": "Incremental Snapshot", "type": "STARTED",
     "additional_data": {"connector_name": "shop", "data_collections": "shop.orders", "batch": "12"},
     "timestamp": 1763900000000}

A batch that is repeated has the same offsets, and so the same notifications. The id of a reading that a
signal asked for is the signal's, as in Debezium; others are made of the stream, the batch and their number.
Rows and keys are in no notification.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.errors import coded
from tailrace.model.signal import Answer

INITIAL = "Initial Snapshot"
INCREMENTAL = "Incremental Snapshot"
#: What Debezium has no notification for.
SIGNAL = "Signal"
TABLE = "Table"
SINK = "Sink"
LOG = "Log"
VERIFICATION = "Verification"
REPAIR = "Repair"
#: Signals that are answered by notifications of a snapshot.
_SNAPSHOT_SIGNALS = ("execute-snapshot", "resync", "stop-snapshot", "pause-snapshot", "resume-snapshot")
#: Makes ids from names (RFC 4122, version 5).
_NAMESPACE = uuid.UUID("6f2f2c52-63a5-5f6e-9d6b-0d4fd8f5a1c7")


@dataclass(frozen=True)
class Notification:
    """A notification.

    Args:
        id: identifies what it is about.
        aggregate_type: the kind of thing that it is about.
        type: what happened to it.
        additional_data: details, by Debezium's names where it has them.
    """

    id: str
    aggregate_type: str
    type: str
    additional_data: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, timestamp_ms: int) -> str:
        """The notification as JSON, made at a time in milliseconds since 1970 UTC."""
        value = {
            "id": self.id,
            "aggregate_type": self.aggregate_type,
            "type": self.type,
            "additional_data": dict(self.additional_data),
            "timestamp": timestamp_ms,
        }
        return json.dumps(value)


@dataclass(frozen=True)
class Batch:
    """The batch that notifications are made of.

    Args:
        stream: the stream's id.
        name: the pipeline's name.
        number: the batch's number.
    """

    stream: str
    name: str
    number: int


def notifications(batch: Batch, former: StreamOffset, new: StreamOffset) -> list[Notification]:
    """The notifications of a batch, in order.

    Args:
        batch: the batch.
        former: the offset at its start.
        new: the offset at its end.
    """
    found = [
        *_lost_log(former, new),
        *_answers(new),
        *_first_snapshots(former, new),
        *_rereads(former, new),
        *_parked(former, new),
    ]
    return [_of(batch, number, one) for number, one in enumerate(found)]


def _of(batch: Batch, number: int, one: Notification) -> Notification:
    """A notification with what all of a batch's have."""
    id_ = one.id or str(uuid.uuid5(_NAMESPACE, f"{batch.stream}/{batch.number}/{number}"))
    data = {"connector_name": batch.name, **one.additional_data, "batch": str(batch.number)}
    return Notification(id_, one.aggregate_type, one.type, data)


def _listed(tables: Iterable[str]) -> str:
    return ",".join(sorted(tables))


def _lost_log(former: StreamOffset, new: StreamOffset) -> Iterator[Notification]:
    if new.gaps > former.gaps:
        yield Notification("", LOG, "LOST", {"data_collections": _listed(new.again)})


def _answers(new: StreamOffset) -> Iterator[Notification]:
    for answer in new.answers:
        about_snapshot = answer.signal in _SNAPSHOT_SIGNALS
        if about_snapshot and answer.status == "UNKNOWN_SCHEMA":
            for pattern in answer.tables:
                data = {"scanned_collection": pattern, "total_rows_scanned": "0", "status": answer.status}
                yield Notification(answer.id, INCREMENTAL, "TABLE_SCAN_COMPLETED", data)
        elif about_snapshot and answer.status in ("PAUSED", "RESUMED", "STOPPED"):
            type_ = "ABORTED" if answer.status == "STOPPED" else answer.status
            yield Notification(answer.id, INCREMENTAL, type_, {"data_collections": _listed(answer.tables)})
        else:
            yield Notification(answer.id, SIGNAL, answer.status, _answer_data(answer))


def _answer_data(answer: Answer) -> dict[str, str]:
    data = {"signal": answer.signal}
    if answer.reason:
        data["message" if answer.signal == "log" and answer.status == "COMPLETED" else "reason"] = (
            answer.reason
        )
    if answer.tables:
        data["data_collections"] = _listed(answer.tables)
    return data


def _first_snapshots(former: StreamOffset, new: StreamOffset) -> Iterator[Notification]:
    resumed = former.parked.keys()
    ended = {
        name: rows
        for name, rows in new.done.items()
        if rows is not None and name not in {*former.done, *new.again, *resumed}
    }
    begun = (new.tables.keys() | ended.keys()) - former.tables.keys()
    tables = new.tables.keys() | ended.keys()
    if former.is_new and new.mode not in ("initial", "snapshot"):
        yield Notification("", INITIAL, "SKIPPED", {"data_collections": _listed(new.done)})
        return
    if begun:
        yield Notification("", INITIAL, "STARTED", {"data_collections": _listed(tables)})
    for name, progress in new.tables.items():
        before = former.tables.get(name, TableProgress())
        if before.cursor != progress.cursor:
            yield Notification("", INITIAL, "IN_PROGRESS", _progress(tables, name, progress))
    for name, rows in ended.items():
        yield Notification("", INITIAL, "TABLE_SCAN_COMPLETED", _scanned(tables, name, rows))
    if not new.tables and (former.tables or begun):
        yield Notification("", INITIAL, "COMPLETED", {"data_collections": _listed(ended)})


def _rereads(former: StreamOffset, new: StreamOffset) -> Iterator[Notification]:
    """Of tables that are read again: those that one signal asked for are one snapshot."""
    for id_ in dict.fromkeys(map(_id, [*former.again.values(), *new.again.values()])):
        before = {n: r for n, r in former.again.items() if _id(r) == id_ and not r.done}
        now = {n: r for n, r in new.again.items() if _id(r) == id_}
        fresh = {n for n, r in now.items() if n not in former.again or former.again[n].id != r.id}
        active = {n: r for n, r in now.items() if n in fresh or n in before}
        if not before and not active:
            continue
        if fresh:
            yield Notification(id_, INCREMENTAL, "STARTED", {"data_collections": _listed(active)})
        for name, reread in active.items():
            cursor = before[name].progress.cursor if name in before and name not in fresh else None
            if reread.done:
                data = _scanned(active, name, reread.progress.rows)
                yield Notification(id_, INCREMENTAL, "TABLE_SCAN_COMPLETED", data)
            elif reread.progress.cursor != cursor:
                data = _progress(active, name, reread.progress)
                yield Notification(id_, INCREMENTAL, "IN_PROGRESS", data)
        if all(reread.done for reread in active.values()):
            gone = before.keys() - active.keys()
            if active:
                yield Notification(id_, INCREMENTAL, "COMPLETED", {"data_collections": _listed(active)})
            elif not any(set(answer.tables) & gone and answer.status == "STOPPED" for answer in new.answers):
                yield Notification(id_, INCREMENTAL, "ABORTED", {"data_collections": _listed(gone)})


def _id(reread: RereadProgress) -> str:
    return reread.id if reread.by is None else reread.by


def _parked(former: StreamOffset, new: StreamOffset) -> Iterator[Notification]:
    for name, entry in new.parked.items():
        if name not in former.parked:
            reason = coded(entry.reason.message, entry.reason.code)
            yield Notification("", TABLE, "PARKED", {"data_collections": name, "reason": reason})
    for name in former.parked:
        if name not in new.parked and new.knows(name):
            yield Notification("", TABLE, "RESUMED", {"data_collections": name})


def of_sinks(
    name: str, former: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> list[Notification]:
    """The notifications of sinks that were parked or go on.

    Args:
        name: the pipeline's name.
        former: what was parked, by the entry's id: `ParkedSink.to_json`, with the sink's name.
        new: what is parked now.
    """
    found = []
    for id_, entry in new.items():
        if id_ not in former:
            reason = coded(entry["message"], entry["code"])
            found.append(Notification(id_, SINK, "PARKED", {**_of_sink(name, entry), "reason": reason}))
    for id_, entry in former.items():
        if id_ not in new:
            found.append(Notification(id_, SINK, "RESUMED", _of_sink(name, entry)))
    return found


def _of_sink(name: str, entry: Mapping[str, Any]) -> dict[str, str]:
    data = {"connector_name": name, "sink": entry["sink"], "batch": str(entry["batch"])}
    return data if entry["table"] is None else {**data, "data_collections": entry["table"]}


def _progress(tables: Iterable[str], name: str, progress: TableProgress) -> dict[str, str]:
    return {
        "data_collections": _listed(tables),
        "current_collection_in_progress": name,
        "total_rows_scanned": str(progress.rows),
        "estimated_rows": str(progress.estimated),
    }


def _scanned(tables: Iterable[str], name: str, rows: int) -> dict[str, str]:
    return {
        "data_collections": _listed(tables),
        "scanned_collection": name,
        "total_rows_scanned": str(rows),
        "status": "SUCCEEDED" if rows else "EMPTY",
    }
