"""Comparisons beside a running stream: at the times of `pipeline.verify`, and when a signal asks for one.

    what is due, what signals ask for ─▶ a process of its own (`verify.worker`) ─▶ `verify.outcomes`
            ▲                                          │                               │
            └──────────── verify.json ◀────────────────┼───────────────────────────────┘
                                                       └─▶ requests to the stream: repair

The stream does not wait for any of it. What was compared when is kept beside the checkpoint, so a schedule
goes on after a restart, a comparison that was killed is repeated, and one that a signal asked for is not
forgotten: `on_written` notes it before Spark records the batch that has accepted the signal.

With `trigger: available-now` the comparisons come after the stream's end (`finish`); a repair is requested
then, and made and compared by the next run.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.options import SourceOptions
from tailrace.config.sinks import sink_names
from tailrace.config.verification import RepairWhen
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.signals import COMPARISONS
from tailrace.errors import ConfigError, TailraceError
from tailrace.pipeline.absent_sinks import sink_key
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.job_answers import is_job
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.notifications import SIGNAL, VERIFICATION, Notification
from tailrace.pipeline.on_failure import tell_failure
from tailrace.pipeline.parked_sinks import parked_sinks
from tailrace.pipeline.run import default_log_file
from tailrace.pipeline.verify_state import Asked, Comparison
from tailrace.printable import printable
from tailrace.private import make_private_directory
from tailrace.repetition import repeatedly
from tailrace.sinks.base import Written
from tailrace.spark.checkpoint import Checkpoint, absolute, is_local
from tailrace.verify.comparable import is_comparable
from tailrace.verify.outcomes import Job, Outcomes, Tables
from tailrace.verify.tables import unsettled
from tailrace.verify.worker import Task
from tailrace.verify.worker_process import WorkerProcess

#: How often to look for what is due, by whether the checkpoint is local, seconds.
_POLL_S = {True: 2.0, False: 30.0}
#: When a table is looked at again that could not be compared, milliseconds.
_LATER_MS = 60_000
#: How often in a row a comparison that was killed is repeated before its time.
_ATTEMPTS = 3
#: The least time that the stream may take to begin with a repair, seconds.
_PATIENCE_S = 300.0


class Verifications:
    """Has a pipeline's tables compared; a `Watcher`, and a context manager round the run.

    Args:
        pipeline: the pipeline, of one source.
        tell: tells the user something.
        notify: sends notifications: of a batch, some.
        show: receives what is known, whenever it changes.
        stop: set when the pipeline is to stop; set here if it is to end with an error.
        start: starts a process for a task.
        clock: seconds since 1970 UTC.

    Raises:
        ConfigError: `pipeline.verify` is given, and no sink can be compared.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tell: Callable[[str], None],
        notify: Callable[[int, Sequence[Notification]], None],
        show: Callable[[Mapping[str, Mapping[str, Comparison]]], None],
        stop: threading.Event,
        *,
        start: Callable[[Task], Any] = WorkerProcess,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pipeline = pipeline
        self._settings = pipeline.settings.verify
        self._is_finite = pipeline.settings.trigger is TriggerMode.AVAILABLE_NOW
        self._path = absolute(pipeline.checkpoint)
        self._checkpoint = Checkpoint(self._path)
        self._tell, self._stop, self._start, self._clock = tell, stop, start, clock
        self._sinks = {
            name: sink
            for name, sink in zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True)
            if is_comparable(sink, pipeline.source)
        }
        if self._settings is not None and not self._sinks:
            raise ConfigError(
                "`pipeline.verify` has no effect",
                "none of the sinks can be compared with the source",
                "leave it out, or see the guide for production for sinks that can be",
                code="TR-8103",
            )
        self._outcomes = Outcomes(pipeline, tell, notify, show, clock)
        #: When the checkpoint is looked at again, and tables that could not be compared, milliseconds.
        self._look_at_ms = 0
        self._later: dict[tuple[str, str], int] = {}
        self._worker: Any = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=in_this_log(self._loop), name="verify", daemon=True)

    # ---- the run -------------------------------------------------------------------------------------

    def __enter__(self) -> Verifications:
        left_out = set(sink_names(self._pipeline.sinks)) - self._sinks.keys()
        if self._settings is not None and left_out:
            names = ", ".join(f"`{printable(name)}`" for name in sorted(left_out))
            self._tell(f"targets of sink {names} are not compared: that is not possible for this kind")
        if not self._is_finite:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.close()
        if self._thread.ident is not None:
            self._thread.join()

    def finish(self) -> None:
        """Do what is due, if the stream has ended because everything is read.

        Raises:
            StateError: a target differs, and `on-differences` is `fail`.
        """
        done = set[tuple[str, str]]()
        while self._is_finite and not self._stop.is_set() and (job := self._next(done)) is not None:
            self._do(job)
            done |= set() if job.asked is not None else {*job.tables}
        if (error := self._outcomes.error) is not None:
            if (on_failure := self._pipeline.settings.on_failure) is not None:
                tell_failure(on_failure, self._pipeline.settings.name, error, self._tell)
            raise error

    def _loop(self) -> None:
        while not self._ended.wait(_POLL_S[is_local(self._path)]):
            try:
                job = self._next()
                if job is not None:
                    self._do(job)
            except (TailraceError, OSError) as error:  # a store out of reach, a full disk: tried again
                self._tell(f"tables cannot be compared now: {error}")
                self._ended.wait(_LATER_MS / 1000)

    # ---- what is to be done --------------------------------------------------------------------------

    def _next(self, done: Collection[tuple[str, str]] = ()) -> Job | None:
        """What is to be compared now, if anything; `done`: what has been, in this run."""
        for one in self._outcomes.cancelled():
            self._cancelled(one)
        asked, now_ms = self._outcomes.asked, self._outcomes.now_ms
        if self._is_closed() or (asked is None and (self._settings is None or now_ms < self._look_at_ms)):
            return None
        last = self._checkpoint.last_committed()
        if last is None:
            return None
        end = StreamOffset.from_json(last.end)
        known = sorted({*end.names(), *end.parked})
        if asked is not None:
            self._outcomes.begin(asked)
            pairs = [(sink, name) for sink in self._sinks for name in asked.tables or known]
            return Job(self._ready(pairs, end, asked), asked.type == "repair", asked)
        settings = self._settings
        assert settings is not None
        every = settings.times.every
        if not self._is_finite:
            most_ms = _LATER_MS if every is None else int(every.total_seconds() * 500)
            self._look_at_ms = now_ms + min(_LATER_MS // 4, most_ms)
        chosen = [n for n in known if re.fullmatch(settings.tables or ".*", n, re.DOTALL)]
        self._outcomes.seen(self._sinks, chosen)
        due = [
            (sink, name)
            for sink in self._sinks
            for name in chosen
            if (sink, name) not in done and self._is_due(sink, name, now_ms)
        ]
        tables = self._ready(due, end, None)
        return Job(tables, settings.repair is RepairWhen.SCHEDULE) if tables else None

    def _is_closed(self) -> bool:
        """Whether no window of the day is open in which the source's tables may be read."""
        windows = self._pipeline.source.snapshot_windows
        now = _local(self._outcomes.now_ms).time()
        return bool(windows) and not any(window.has(now) for window in windows)

    def _is_due(self, sink: str, name: str, now_ms: int) -> bool:
        entry = self._outcomes.entry(sink, name)
        assert self._settings is not None
        schedule = self._settings.times
        if self._later.get((sink, name), 0) > now_ms:
            return False
        if entry.is_open and entry.attempts < _ATTEMPTS:
            return True
        if entry.request is not None and self._is_finite:  # made by now
            return True
        if entry.begun_ms is None and schedule.every is not None:
            return True
        return schedule.after(_local(entry.begun_ms or entry.since_ms)) <= _local(now_ms)

    def _ready(self, pairs: Sequence[tuple[str, str]], end: StreamOffset, asked: Asked | None) -> Tables:
        """Those of the tables that can be compared now; of the others, the user learns why not."""
        parked, being_read = parked_sinks(self._path), unsettled(end)
        found = []
        for sink, name in pairs:
            key = sink_key(self._sinks[sink])
            if name in end.parked:
                why = "it is parked"
            elif any(entry.sink == key and entry.table in (None, name) for entry in parked):
                why = "the sink is parked"
            elif name in being_read:
                why = f"rows of `{name}` are being read"
            else:
                found.append((sink, name))
                continue
            self._later[(sink, name)] = self._outcomes.now_ms + _LATER_MS
            self._outcomes.left_out(sink, name, why, asked)
        return tuple(found)

    # ---- doing it ------------------------------------------------------------------------------------

    def _do(self, job: Job) -> None:
        """Compare the tables of a job, and answer the signal that asks for it."""
        asked, tables = job.asked, ",".join(sorted({name for _, name in job.tables}))
        data = {"data_collections": tables}
        self._outcomes.begun(job)
        if asked is not None and job.tables:
            self._outcomes.send(asked, VERIFICATION, "STARTED", data)
        if job.tables:
            self._compare(job)
        if asked is None or self._ended.is_set():
            return
        if asked in self._outcomes.cancelled():
            self._cancelled(asked)
            return
        self._outcomes.answered(asked)
        if self._sinks:
            self._outcomes.send(asked, SIGNAL, "COMPLETED", {"signal": asked.type, **data})
        else:
            reason = "no sink can be compared with the source"
            self._outcomes.send(asked, SIGNAL, "ABORTED", {"signal": asked.type, "reason": reason})

    def _cancelled(self, asked: Asked) -> None:
        """Do not go on with what a signal asks for."""
        self._outcomes.answered(asked, "cancelled")
        self._outcomes.send(asked, SIGNAL, "ABORTED", {"signal": asked.type, "reason": "it was cancelled"})

    @contextmanager
    def _ends_if_cancelled(self, asked: Asked | None, worker: Any) -> Iterator[None]:
        """End the process that compares once nobody wants to know any more."""
        if asked is None or not is_job(asked.id):
            yield
            return

        def look() -> None:
            if asked in self._outcomes.cancelled():
                worker.close()

        with repeatedly(look, _POLL_S[is_local(self._path)]):
            yield

    def _compare(self, job: Job) -> None:
        """Compare tables in a process of its own."""
        settings, is_finite = self._pipeline.settings, self._is_finite
        patience_s = max(_PATIENCE_S, 3 * settings.interval_ms / 1000)
        log_file = _log_file(self._pipeline)
        task = Task(
            self._pipeline, job.tables, job.repair, not is_finite, patience_s, self._limits(), log_file
        )
        with self._lock:
            if self._ended.is_set():
                return
            worker = self._worker = self._start(task)
        begun = set[tuple[str, str]]()
        try:
            with self._ends_if_cancelled(job.asked, worker):
                for event in worker:
                    pair = (event["sink"], event["table"])
                    begun = begun - {pair} if event["event"] == "ended" else begun | {pair}
                    self._outcomes.happened(event, job)
                    if self._outcomes.error is not None:
                        self._stop.set()
        finally:
            with self._lock:
                self._worker = None
            worker.close()
        for sink, name in begun if not self._ended.is_set() else ():
            gone: dict[str, Any] = {"sink": sink, "table": name}
            message = f"the process that compared it has ended, see `{log_file}`"
            if job.asked not in self._outcomes.cancelled():
                self._outcomes.happened({"event": "failed", "code": None, "message": message, **gone}, job)
            self._outcomes.happened({"event": "ended", "tables": [name], **gone}, job)

    def _limits(self) -> SourceOptions:
        """The source's options with the limits of reading."""
        options, settings = self._pipeline.source, self._settings
        if settings is None:
            return options
        rows, size = settings.max_rows_per_second, settings.max_bytes_per_second
        return replace(
            options,
            snapshot_max_rows_per_second=rows or options.snapshot_max_rows_per_second,
            snapshot_max_bytes_per_second=size or options.snapshot_max_bytes_per_second,
        )

    # ---- events of the stream ------------------------------------------------------------------------

    def on_written(self, batch_id: int, written: list[Written]) -> None:  # noqa: ARG002
        """See `Watcher`: note what the batch's answers say that somebody asks for."""
        end = self._checkpoint.end_of(batch_id) or {}
        answers = StreamOffset.from_json(end).answers if end.get("answers") else ()
        comparisons = [a for a in answers if a.signal in COMPARISONS]
        asked = [a for a in comparisons if a.status == "ACCEPTED"]
        if asked:
            self._outcomes.accepted(batch_id, asked)
        for answer in comparisons:
            if answer.status != "ACCEPTED":
                self._outcomes.refused(answer)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""


def _local(ms: int) -> datetime:
    """A time by the driver's clock and zone."""
    return datetime.fromtimestamp(ms / 1000)  # noqa: DTZ006


def _log_file(pipeline: Pipeline) -> Path:
    beside = default_log_file(pipeline)
    make_private_directory(beside.parent)
    return beside.with_name(f"{beside.stem}-verify.log")
