"""Sinks that are parked: they are given nothing, or not some tables, while the other sinks go on.

    <checkpoint>/_tailrace/parked_sinks.json     {"v": 1, "parked": [{"id": ..., "sink": "delta:3f2a…", ...}]}
    <checkpoint>/_tailrace/resume_sinks/<key>    somebody wishes that this sink go on

    an error of a sink ─▶ parked, the stream starts again without it ─▶ resume: its tables are read again

Only the process that runs the pipeline writes the file, and only while no batch is being written, so every
attempt of a batch leaves out the same: from the first one without the sink on, until the batch is done.

A sink that is to go on lacks what came meanwhile. Its tables are read again, in place
(docs/design/0006-reading-tables-again.md): a request asks for that, and the sink is given the batch whose
offset accepts the request, in which the reading begins, and all later ones. It is given no batch before: that
could end a reading of which the sink lacks a part. If there are tables by then that the request does not
name, another request is made, and the sink waits for that one.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.config.sink_settings import OnError
from tailrace.config.sinks import SinkSettings, WriteMode, sink_names
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import SinkError, StateError, TablesParkedError, TailraceError, coded
from tailrace.failpoints import failpoint
from tailrace.model.parked import Reason
from tailrace.pipeline.absent_sinks import sink_key
from tailrace.printable import printable
from tailrace.sinks.base import holds_whole_tables
from tailrace.spark.checkpoint import Checkpoint, Directory, absolute, is_local
from tailrace.spark.requests import RequestDirectory

_FILE = "parked_sinks.json"
_RESUME = "resume_sinks"
_VERSION = 1
#: How often to look for sinks to be resumed on a remote file system, seconds.
_REMOTE_POLL_S = 5.0


@dataclass(frozen=True)
class ParkedSink:
    """A sink, or one table of it, that is left out.

    Args:
        id: identifies the entry.
        sink: the sink's key (`absent_sinks.sink_key`).
        table: the only table that it is not given; None: it is given nothing.
        batch: the first batch that it was not given as a whole.
        log: the position where that batch begins: the sink has all changes up to here.
        reason: why.
        at_ms: when, milliseconds since 1970 UTC by the driver's clock.
    """

    id: str
    sink: str
    table: str | None
    batch: int
    log: Mapping[str, Any] | None
    reason: Reason
    at_ms: int

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON values in a fixed order."""
        return {
            "id": self.id,
            "sink": self.sink,
            "table": self.table,
            "batch": self.batch,
            "log": None if self.log is None else dict(self.log),
            **self.reason.json_values(),
            "at_ms": self.at_ms,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ParkedSink:
        """Read the entry that `to_json` wrote."""
        reason = Reason(value["message"], value["code"], value["detail"], value["hint"])
        table = value["table"]
        return cls(
            str(value["id"]),
            str(value["sink"]),
            None if table is None else str(table),
            int(value["batch"]),
            value["log"],
            reason,
            int(value["at_ms"]),
        )


def parked_sinks(checkpoint: str) -> list[ParkedSink]:
    """The parked sinks of the stream with a checkpoint, the oldest first.

    Raises:
        StateError: the file that lists them cannot be read.
    """
    path = f"{absolute(checkpoint).rstrip('/')}/_tailrace"
    text = Directory(path).read(_FILE)
    if text is None:
        return []
    try:
        value = json.loads(text)
        if value["v"] != _VERSION:
            raise ValueError
        return [ParkedSink.from_json(entry) for entry in value["parked"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateError(
            f"`{path}/{_FILE}` cannot be read",
            f"found {text[:200]!a}",
            "remove the file, then have the tables of all sinks read again: tailrace resync PIPELINE.YAML"
            " TABLE...",
            code="TR-7612",
        ) from None


def request_resume(checkpoint: str, settings: SinkSettings) -> None:
    """Ask that a sink go on; a running pipeline does so with its next batch, another when it starts."""
    _wishes(checkpoint).write(_file_name(sink_key(settings)), "")


def _file_name(key: str) -> str:
    return key.replace(":", "-")


def _tables(entry: ParkedSink, offset: StreamOffset) -> frozenset[str]:
    """The tables that a parked sink lacks changes of, among those of a stream offset."""
    names = frozenset([*offset.names(), *offset.parked])
    return names if entry.table is None else names & {entry.table}


def _wishes(checkpoint: str) -> Directory:
    return Directory(f"{absolute(checkpoint).rstrip('/')}/_tailrace/{_RESUME}", private=True)


def what_it_gets(settings: SinkSettings) -> str:
    """What a sink is given of the tables that are read again."""
    mode = getattr(settings, "mode", None)
    holds_rows = settings.type in ("mysql", "postgresql", "opensearch")
    if holds_rows or mode in (WriteMode.UPSERT, WriteMode.SCD2):
        return "equals its tables once they are read"
    if mode is WriteMode.CHANGELOG and settings.type == "clickhouse":
        return "receives all present rows once more as `r`, and rows that are gone as `d`"
    if mode is WriteMode.CHANGELOG:
        return "receives what differs: present rows as `r`, rows that are gone as `d`"
    return "receives all present rows once more as `r`, and is not told of rows that were deleted"


class ParkedSinks:
    """Parks the sinks of a pipeline, and lets them go on.

    Args:
        pipeline: the pipeline.
        requests: the directory of requests to the stream.
        tell: tells the user something.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        requests: str,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._path = pipeline.checkpoint
        self._directory = Directory(f"{absolute(self._path).rstrip('/')}/_tailrace", private=True)
        self._wishes = _wishes(self._path)
        self._requests = RequestDirectory(requests)
        self._tell = tell
        self._clock = clock
        self._poll_s = 0.0 if is_local(self._path) else _REMOTE_POLL_S
        self._looked_at: float | None = None
        self._names = {
            sink_key(settings): name
            for settings, name in zip(pipeline.sinks, sink_names(pipeline.sinks), strict=True)
        }
        #: The parked ones, with those that the pipeline file does not name.
        self._all = parked_sinks(self._path)
        #: Those that wait for the batch in which their tables begin to be read again: by the entry's id, the
        #: request and its tables.
        self._resuming: dict[str, tuple[str, frozenset[str]]] = {}
        for entry in self.entries:
            self._tell(self._told(entry))

    @property
    def entries(self) -> Sequence[ParkedSink]:
        """What is parked of the pipeline's sinks."""
        return [entry for entry in self._all if entry.sink in self._names]

    def name(self, entry: ParkedSink) -> str:
        """The name of a parked sink in the pipeline."""
        return self._names[entry.sink]

    def left_out(self) -> dict[str, frozenset[str] | None]:
        """By sink: the tables that it is not given; None: it is given nothing (`SeveralSinks.leave_out`)."""
        found: dict[str, frozenset[str] | None] = {}
        for entry in self.entries:
            name = self._names[entry.sink]
            before = found.get(name, frozenset())
            found[name] = None if entry.table is None or before is None else before | {entry.table}
        return found

    # ---- parking ----

    def park(self, error: TailraceError, name: str | None) -> bool:
        """Park the sink that a batch failed in, or the table of it that the error concerns.

        The stream stands still. Returns whether the pipeline can go on so.

        Args:
            error: the error.
            name: the sink; None: the error is of none.
        """
        by_name = {n: key for key, n in self._names.items()}
        settings = dict(zip(self._names, self._pipeline.sinks, strict=True))
        checkpoint = Checkpoint(self._path)
        last = checkpoint.last()
        if name is None or last is None or last.id == 0 or not isinstance(error, SinkError | StateError):
            return False
        key = by_name[name]
        if settings[key].on_error is not OnError.PARK or last.committed:
            return False
        former = checkpoint.end_of(last.id - 1) or {}
        whole = {entry.sink for entry in self.entries if entry.table is None}
        if error.table is None and len(self._names.keys() - whole) == 1:
            return False  # the last sink that flows
        if not holds_whole_tables(last.end):
            self._tell(
                f"sink `{name}` is not parked: the stream began without a snapshot of all tables, so they"
                " could not be read again"
            )
            return False
        most = self._pipeline.settings.max_parked
        if len(self.entries) + len(StreamOffset.from_json(last.end).parked) >= most:
            if most:
                self._tell(f"nothing more is parked (max-parked: {most})")
            return False
        id_ = f"{time.time_ns():019d}-{uuid.uuid4().hex[:8]}"
        at_ms = time.time_ns() // 1_000_000
        entry = ParkedSink(id_, key, error.table, last.id, former.get("log"), Reason.of(error), at_ms)
        kept = [e for e in self._all if error.table is not None or e.sink != key]
        self._wishes.remove(_file_name(key))
        self._write([*kept, entry])
        failpoint("park.sink")
        self._tell(self._told(entry))
        return True

    def wait(self, settings: SinkSettings, left: int) -> bool:
        """Park a sink that has missed batches, and wish that it go on: its tables are read again.

        Args:
            settings: the sink's.
            left: the first batch that it was not given.

        Returns:
            Whether the sink waits; not if no other sink would be given the batches meanwhile.
        """
        key = sink_key(settings)
        whole = {entry.sink for entry in self.entries if entry.table is None}
        if not self._names.keys() - whole - {key}:
            return False
        # before the entry: a wish for a sink that is not parked does nothing
        request_resume(self._path, settings)
        if key not in whole:
            former = Checkpoint(self._path).end_of(left - 1) or {}
            reason = Reason(f"it was not in the pipeline file from batch {left} on")
            id_ = f"{time.time_ns():019d}-{uuid.uuid4().hex[:8]}"
            at_ms = time.time_ns() // 1_000_000
            entry = ParkedSink(id_, key, None, left, former.get("log"), reason, at_ms)
            self._write([*(e for e in self._all if e.sink != key), entry])
        return True

    # ---- resuming ----

    def look(self) -> None:
        """Look whether somebody wishes that a sink go on; have its tables read again then."""
        now = self._clock()
        if not self.entries or (self._looked_at is not None and now - self._looked_at < self._poll_s):
            return
        self._looked_at = now
        wished = set(self._wishes.names())
        for entry in self.entries if wished else ():
            if _file_name(entry.sink) in wished and entry.id not in self._resuming:
                last = Checkpoint(self._path).last()
                self._request(entry, StreamOffset() if last is None else StreamOffset.from_json(last.end))

    def begin(self, batch: int, end: StreamOffset) -> None:
        """Let those go on whose tables begin to be read with the batch that is about to be written.

        Args:
            batch: its number.
            end: the stream offset at its end.
        """
        if not self._resuming:
            return
        former = Checkpoint(self._path).end_of(batch - 1)
        start = StreamOffset() if former is None else StreamOffset.from_json(former)
        due = [entry for entry in self.entries if self._is_due(entry, start, end)]
        if not due:
            return
        self._write([entry for entry in self._all if entry not in due])
        failpoint("resume.sink")
        left = {entry.sink for entry in self._all}
        for entry in due:
            del self._resuming[entry.id]
            if entry.sink not in left:
                self._wishes.remove(_file_name(entry.sink))
            tables = "its tables are" if entry.table is None else "its rows are"
            self._tell(f"{self._what(entry)} goes on: {tables} read again")

    def _is_due(self, entry: ParkedSink, start: StreamOffset, end: StreamOffset) -> bool:
        if entry.id not in self._resuming:
            return False
        request, asked = self._resuming[entry.id]
        missing = _tables(entry, start)
        if not missing:
            return True
        is_accepted = request in end.requests and request not in start.requests
        if is_accepted and missing <= asked:
            return True
        if is_accepted or request in start.requests:
            self._request(entry, end)
        return False

    def _request(self, entry: ParkedSink, offset: StreamOffset) -> None:
        tables = _tables(entry, offset)
        request = self._requests.add(sorted(tables), needed=True) if tables else ""
        self._resuming[entry.id] = request, tables

    # ---- messages ----

    def report(self) -> dict[str, list[dict[str, Any]]]:
        """The sinks by name, each with what is parked of it, as JSON values."""
        return {
            name: [entry.to_json() for entry in self.entries if entry.sink == key]
            for key, name in self._names.items()
        }

    def at_end(self, *, stopped: bool) -> None:
        """Tell the user of parked sinks at the end of a run.

        Args:
            stopped: whether it ended because a user wished so, rather than because everything is read.

        Raises:
            TablesParkedError: everything is in all sinks, but for them.
        """
        if not self.entries or stopped:
            return
        names = ", ".join(self._what(entry) for entry in self.entries)
        raise TablesParkedError(
            f"{names} {'is' if len(self.entries) == 1 else 'are'} parked; everything else is written",
            "; ".join(coded(entry.reason.message, entry.reason.code) for entry in self.entries),
            "\n".join(
                [
                    *(entry.reason.hint for entry in self.entries if entry.reason.hint),
                    *sorted({self._hint(entry) for entry in self.entries}),
                ]
            ),
            code="TR-7611",
        )

    def _told(self, entry: ParkedSink) -> str:
        parked = f"{self._what(entry)} is parked since batch {entry.batch}, the others go on"
        return f"{parked}: {entry.reason}\n{self._hint(entry)}"

    def _what(self, entry: ParkedSink) -> str:
        name = f"sink `{printable(self._names[entry.sink])}`"
        return name if entry.table is None else f"table `{printable(entry.table)}` in {name}"

    def _hint(self, entry: ParkedSink) -> str:
        return f"once that is fixed: {resume_command(self._names[entry.sink])}"

    def _write(self, entries: Sequence[ParkedSink]) -> None:
        self._directory.write(
            _FILE, json.dumps({"v": _VERSION, "parked": [entry.to_json() for entry in entries]})
        )
        self._all = list(entries)


def resume_command(name: str) -> str:
    """What lets a sink go on."""
    return f"tailrace resume PIPELINE.YAML --sink {printable(name)}"
