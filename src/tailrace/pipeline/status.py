"""The state of a pipeline, seen from outside: from its checkpoint, its targets and its source.

    checkpoint   batches and their end offset: tables, position, what is parked
    run.json     beside it: which process runs the pipeline, up to which time it is complete (`run_state`)
    verify.json  beside it: when tables were compared with their targets, and the result (`verify_state`)
    source       its clock and its log's end, if it answers: lag, how long the log is kept
    sinks        what their targets hold, and what readers see of it (`sinks.standing`)

No running pipeline is needed, and none is disturbed: everything is only read. What cannot be known is null.
`to_json` is documented by docs/reference/status.schema.json.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.sinks import SinkSettings, sink_names
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TailraceError
from tailrace.model.parked import Parked
from tailrace.model.table import TableId
from tailrace.pipeline.absent_sinks import sink_key
from tailrace.pipeline.parked_sinks import ParkedSink, parked_sinks, resume_command
from tailrace.pipeline.run_state import RunState
from tailrace.pipeline.verify_state import Comparison, VerifyState
from tailrace.sinks.base import StreamId
from tailrace.sinks.registry import standing
from tailrace.sinks.standing import SinkStanding
from tailrace.sources import registry
from tailrace.sources.base import LogClock, LogRetention, Position
from tailrace.spark.checkpoint import Checkpoint, PlannedBatch, absolute

#: Version of the JSON.
VERSION = 1
#: How long the source may take, milliseconds.
_SOURCE_MS = 5_000
#: A rate that is older than this is no present rate, milliseconds.
_RATE_AGE_MS = 600_000


@dataclass(frozen=True)
class SourceStatus:
    """What the source says.

    Args:
        error: why it does not answer; None: it does.
        clock_us: its clock, microseconds since 1970 UTC.
        lag_bytes: bytes of the log behind the stream's position; None: not known.
        lag_ms: age of the newest change in the targets, while changes are missing; 0: none is missing.
        retention: how long it keeps the log.
        room_s: seconds until the log at the position may be gone; None: never, or not known.
        log_rate: bytes per second by which the log grows.
    """

    error: TailraceError | None = None
    clock_us: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    retention: LogRetention | None = None
    room_s: float | None = None
    log_rate: float | None = None


@dataclass(frozen=True)
class TableStatus:
    """A table of the stream.

    Args:
        name: its name.
        state: `snapshot`, `reread`, `streaming` or `parked`.
        rows: rows of its first snapshot that are read, of a reading in progress those; None: never read.
        estimated: its rows, as estimated when the reading began; None: it is not being read.
        complete_us: its target holds everything that was committed up to this time; None: not known, or its
            rows are still being read.
        parked: why it is parked.
        compared: what is known of its comparisons, by the sink's name.
    """

    name: str
    state: str
    rows: int | None = None
    estimated: int | None = None
    complete_us: int | None = None
    parked: Parked | None = None
    compared: Mapping[str, Comparison] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkStatus:
    """A sink of the pipeline.

    Args:
        kind: its type.
        where: its path or address.
        received: the newest batch that all its targets have.
        found: what the targets hold; None: they do not answer.
        error: why they do not.
        name: its name in the pipeline.
        parked: what is parked of it: the sink as a whole, or tables.
    """

    kind: str
    where: str
    received: int | None
    found: SinkStanding | None = None
    error: TailraceError | None = None
    name: str = ""
    parked: Sequence[ParkedSink] = ()

    @property
    def is_parked(self) -> bool:
        """Whether it is given nothing."""
        return any(entry.table is None for entry in self.parked)

    @property
    def visible(self) -> int | None:
        """The newest batch up to which readers see everything."""
        return None if self.found is None else self.found.visible(self.received)


@dataclass(frozen=True)
class Status:
    """A pipeline's state.

    Args:
        pipeline: its name.
        checkpoint: the checkpoint's directory.
        at_ms: when it was looked at, milliseconds since 1970 UTC by this machine's clock.
        run: what the last run has noted.
        last: the newest batch in all sinks.
        committed_ms: when it was recorded as done.
        planned: the batch that is planned and not in all sinks yet.
        position: where in the log the targets are.
        complete_us: the targets hold everything that was committed up to this time by the source's clock,
            except for tables whose rows are still being read, and parked ones.
        source: what the source says; None: there is no position to ask about.
        tables: in the order of their names.
        sinks: in the file's order.
    """

    pipeline: str
    checkpoint: str
    at_ms: int
    run: RunState | None
    last: PlannedBatch | None
    committed_ms: int | None
    planned: int | None
    position: Position | None
    complete_us: int | None
    source: SourceStatus | None
    tables: Sequence[TableStatus] = field(default_factory=tuple)
    sinks: Sequence[SinkStatus] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values in a fixed order."""
        return {
            "v": VERSION,
            "pipeline": self.pipeline,
            "at": iso_ms(self.at_ms),
            "checkpoint": self.checkpoint,
            "running": False if self.run is None else self.run.runs,
            "run": None if self.run is None else _run_json(self.run),
            "batch": None
            if self.last is None
            else {
                "id": self.last.id,
                "planned_at": iso_ms(self.last.planned_ms),
                "committed_at": iso_ms(self.committed_ms),
            },
            "planned_batch": self.planned,
            "complete_up_to": iso_us(self.complete_us),
            "position": None
            if self.position is None
            else {
                "text": str(self.position),
                "committed_at": iso_ms(self.position.ts_ms or None),
                "log": self.position.to_json(),
            },
            "source": None if self.source is None else _source_json(self.source),
            "tables": [_table_json(table) for table in self.tables],
            "sinks": [_sink_json(sink) for sink in self.sinks],
        }


def status(pipeline: Pipeline) -> Status:
    """Look at a pipeline."""
    checkpoint = Checkpoint(absolute(pipeline.checkpoint))
    newest, last = checkpoint.last(), checkpoint.last_committed()
    offset = StreamOffset() if last is None else StreamOffset.from_json(last.end)
    run = RunState.read(checkpoint.path)
    position = source = None
    complete_us = None if run is None else run.complete_us
    if offset.log is not None:
        type_ = registry.position_type(pipeline.source.dialect)
        position = type_.from_json(offset.log)
        source, now_us = _asked(pipeline.source, offset.log, run)
        complete_us = max((us for us in (complete_us, now_us) if us is not None), default=None)
    compared = VerifyState.read(checkpoint.path).tables
    tables = [
        replace(table, compared={sink: of[table.name] for sink, of in compared.items() if table.name in of})
        for table in table_statuses(offset, complete_us)
    ]
    return Status(
        pipeline.settings.name,
        checkpoint.path,
        time.time_ns() // 1_000_000,
        run,
        last,
        None if last is None else checkpoint.committed_ms(last.id),
        newest.id if newest is not None and not newest.committed else None,
        position,
        complete_us,
        source,
        tables,
        _sinks(pipeline, checkpoint, last, tables),
    )


# ---- source ----


def _asked(
    options: SourceOptions, log: Mapping[str, Any], run: RunState | None
) -> tuple[SourceStatus, int | None]:
    """What the source says, and up to which time the stream is complete if it has all of the log."""
    short = replace(
        options,
        connect_timeout_ms=min(options.connect_timeout_ms, _SOURCE_MS),
        query_timeout_ms=min(options.query_timeout_ms, _SOURCE_MS),
        retry_timeout_ms=1,
    )
    try:
        with closing(registry.source(short)) as source:
            position = source.position(log)
            clock, kept = source.log_clock(position), source.log_retention(position)
    except TailraceError as error:
        return SourceStatus(error), None
    return _compared(position, clock, kept, run)


def _compared(
    position: Position, clock: LogClock | None, kept: LogRetention | None, run: RunState | None
) -> tuple[SourceStatus, int | None]:
    if clock is None:
        return SourceStatus(retention=kept), None
    has_all = clock.end.order <= position.order
    lag = position.lag_to(clock.end)
    lag_bytes = lag.size
    if lag_bytes is None and kept is not None:
        lag_bytes = kept.held_bytes  # across log files
    lag_ms = max(clock.ts_us // 1000 - position.ts_ms, 0) if position.ts_ms else None
    rate = None
    if run is not None and clock.ts_us // 1000 - run.at_ms < _RATE_AGE_MS:
        rate = run.log_rate
    if rate is None and lag_bytes and lag_ms:
        rate = lag_bytes / (lag_ms / 1000)
    found = SourceStatus(
        None,
        clock.ts_us,
        0 if has_all else max(lag_bytes, 0) if lag_bytes is not None else None,
        0 if has_all else lag_ms,
        kept,
        None if kept is None else kept.seconds(rate),
        rate,
    )
    return found, clock.ts_us if has_all else None


# ---- tables ----


def table_statuses(offset: StreamOffset, complete_us: int | None) -> list[TableStatus]:
    """The tables of a stream at an offset, in the order of their names."""
    found = {
        name: TableStatus(name, "snapshot", progress.rows, progress.estimated)
        for name, progress in offset.tables.items()
    }
    for name, rows in offset.done.items():
        found[name] = TableStatus(name, "streaming", rows, complete_us=complete_us)
    for name, reread in offset.again.items():
        if not reread.done:
            found[name] = TableStatus(name, "reread", reread.progress.rows, reread.progress.estimated)
    for name, parked in offset.parked.items():
        ts_ms = parked.log.get("ts_ms") if parked.log is not None and parked.had == "all" else None
        found[name] = TableStatus(name, "parked", parked.rows, None, ts_ms * 1000 if ts_ms else None, parked)
    return [found[name] for name in sorted(found)]


# ---- sinks ----


def _sinks(
    pipeline: Pipeline, checkpoint: Checkpoint, last: PlannedBatch | None, tables: Sequence[TableStatus]
) -> list[SinkStatus]:
    parked = parked_sinks(pipeline.checkpoint)
    found = []
    for settings, name in zip(pipeline.sinks, sink_names(pipeline.sinks), strict=True):
        entries = [entry for entry in parked if entry.sink == sink_key(settings)]
        looked = replace(_sink(settings, pipeline, checkpoint, last, tables), name=name, parked=entries)
        since = next((entry.batch for entry in entries if entry.table is None), None)
        if since is not None and last is not None:
            looked = replace(looked, received=min(last.id, since - 1))
        found.append(looked)
    return found


def _sink(
    settings: SinkSettings,
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    last: PlannedBatch | None,
    tables: Sequence[TableStatus],
) -> SinkStatus:
    kind, where = settings.type, _where(settings)
    received = None if last is None else last.id
    ids = [TableId.parse(table.name) for table in tables if table.name.count(".") == 1]
    try:
        stream = StreamId(pipeline.settings.name, checkpoint.query_id() or "")
        found = standing(settings, pipeline, stream, ids)
    except TailraceError as error:
        return SinkStatus(kind, where, received, None, error)
    return SinkStatus(kind, where, received, found)


def _where(settings: SinkSettings) -> str:
    for name in ("path", "bootstrap_servers"):
        if hasattr(settings, name):
            return str(getattr(settings, name))
    if hasattr(settings, "server"):
        return f"{settings.server.host}:{settings.server.port}"
    return ""


# ---- JSON ----


def iso_us(us: int | None) -> str | None:
    """A time as text, e.g. 2026-01-31T12:00:00.000Z; microseconds since 1970 UTC."""
    return None if us is None else iso_ms(us // 1000)


def iso_ms(ms: int | None) -> str | None:
    """As `iso_us`, of milliseconds."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _run_json(run: RunState) -> dict[str, Any]:
    error = None
    if run.error is not None:
        error = {
            "code": run.error["code"],
            "message": run.error["message"],
            "at": iso_ms(run.error["at_ms"]),
        }
    return {
        "host": run.host,
        "pid": run.pid,
        "started_at": iso_ms(run.started_ms),
        "last_seen_at": iso_ms(run.at_ms),
        "ended": run.ended,
        "step": run.step,
        "held_by": run.held_by,
        "slowed_by": run.slowed_by,
        "restarts": run.restarts,
        "error": error,
    }


def _source_json(source: SourceStatus) -> dict[str, Any]:
    kept = source.retention
    return {
        "answers": source.error is None,
        "error": None if source.error is None else source.error.json_values(),
        "clock": iso_us(source.clock_us),
        "lag_bytes": source.lag_bytes,
        "lag_ms": source.lag_ms,
        "log": None
        if kept is None
        else {
            "headroom_s": None if source.room_s is None else round(source.room_s),
            "held_bytes": kept.held_bytes,
            "left_bytes": kept.left_bytes,
            "bytes_per_second": None if source.log_rate is None else round(source.log_rate, 1),
            "limits": dict(kept.limits),
        },
    }


def _table_json(table: TableStatus) -> dict[str, Any]:
    parked = table.parked
    return {
        "name": table.name,
        "state": table.state,
        "rows": table.rows,
        "estimated_rows": table.estimated,
        "percent": percent(table),
        "complete_up_to": iso_us(table.complete_us),
        "parked": None
        if parked is None
        else {
            **parked.reason.json_values(),
            "remedy": f"tailrace resume PIPELINE.YAML {table.name}",
            "resumes": parked.resume is not None,
        },
        "compared": [
            {
                "sink": sink,
                "at": iso_ms(known.at_ms),
                "batch": known.batch,
                "source_rows": known.source_rows,
                "target_rows": known.target_rows,
                "differences": known.differences,
                "differences_before_repair": known.found,
                "runs": known.is_open,
                "reason": known.reason or None,
            }
            for sink, known in table.compared.items()
        ],
    }


def percent(table: TableStatus) -> int | None:
    """How much of a table is read; 100 only at the end. None: it is not being read, or nothing is known."""
    if table.state not in ("snapshot", "reread") or not table.estimated:
        return None
    return min(100 * (table.rows or 0) // table.estimated, 99)


def _sink_json(sink: SinkStatus) -> dict[str, Any]:
    found = sink.found
    return {
        "name": sink.name,
        "type": sink.kind,
        "where": sink.where,
        "answers": sink.error is None,
        "error": None if sink.error is None else sink.error.json_values(),
        "parked": [
            {
                "table": entry.table,
                "since_batch": entry.batch,
                "at": iso_ms(entry.at_ms),
                "position": None if entry.log is None else dict(entry.log),
                **entry.reason.json_values(),
                "remedy": resume_command(sink.name),
            }
            for entry in sink.parked
        ],
        "received_batch": sink.received,
        "visible_batch": sink.visible,
        "begun_batch": None if found is None else found.begun(sink.received),
        "waiting_rows": None
        if found is None
        else sum(target.waiting_rows for target in found.targets.values()),
        "targets": []
        if found is None
        else [
            {"name": name, "batch": target.batch, "waiting_batches": list(target.waiting)}
            for name, target in sorted(found.targets.items())
        ],
    }
