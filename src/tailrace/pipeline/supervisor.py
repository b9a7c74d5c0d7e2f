"""A running stream: started, written into a sink, watched, stopped between batches, restarted.

    the stream ends by      action
    a stop request          the running batch finishes, the next one does not begin
    all read                (trigger available-now) done
    its end is reached      (`endingPosition`) it is stopped behind that batch: done
    an error of one sink    with `on-error: park`: it is parked (`pipeline.parked_sinks`), the others go on
    an error of one table   the table is parked (`pipeline.parking`), and the stream started again without it
    a definite error        raised as it is, the first time
    a transient error       restarted after a pause, unless that was often (`pipeline.restarts`)

A restarted stream repeats its last batch if Spark had not recorded it as done; sinks skip the parts that they
have. The class of an error decides whether it is definite, never its text; except for a full disk, which has
no class of its own.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace import errors
from tailrace.config.model import Pipeline, SampleMode, TriggerMode
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.stream_end import is_reached
from tailrace.errors import SourceError, TailraceError, TransientSourceError, of_table
from tailrace.failpoints import failpoint
from tailrace.model.parked import without_tables
from tailrace.model.reread import rereads
from tailrace.model.table import TableId
from tailrace.pipeline.absent_sinks import AbsentSinks
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.causes import cause_of, is_of_rows
from tailrace.pipeline.cluster_watch import ClusterWatch
from tailrace.pipeline.fence import Fence, Open
from tailrace.pipeline.held_snapshot import HeldSnapshot
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.log_warning import LogWarning
from tailrace.pipeline.older_checkpoint import require_newest
from tailrace.pipeline.parked_sinks import ParkedSinks
from tailrace.pipeline.parking import Parking
from tailrace.pipeline.reports import QueryReports
from tailrace.pipeline.restarts import Restarts
from tailrace.pipeline.transform import Transformer
from tailrace.sinks.base import CellBatch, Sink, StreamId, Written
from tailrace.sinks.fan_out import SeveralSinks
from tailrace.sinks.timings import Timings
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark import IS_LIMITED
from tailrace.spark.checkpoint import Checkpoint, absolute
from tailrace.spark.jvm import (
    call_failure_classes,
    end_planners,
    failure_classes,
    register_source,
)
from tailrace.spark.live_sample import sample_path
from tailrace.spark.requests import requests_path
from tailrace.spark.source import PipelineSource, PipelineSourceUntilNow
from tailrace.spark.task_errors import error_of_table, missing_package, parse_error
from tailrace.spark.trouble import trouble_path
from tailrace.spark.unread import read

#: Classes of causes in the JVM: a process or connection was lost.
_TRANSIENT = frozenset(
    {
        "java.io.EOFException",
        "java.net.SocketException",
        "java.net.SocketTimeoutException",
        "java.net.ConnectException",
        "org.apache.spark.ExecutorDeadException",
        "org.apache.hadoop.net.ConnectTimeoutException",
    }
)
#: Hadoop's setting of the permissions that new files lack.
_UMASK = "fs.permissions.umask-mode"
#: How often a stream is looked at, seconds: less and less often while it has no news, unless it is to end.
_POLL_S, _IDLE_POLL_S, _SLOWER = 0.25, 1.0, 1.2
#: How long Spark may take to record a batch as done after the sink has it.
_COMMIT_S = 10.0

#: The system's messages for a full disk.
_NO_ROOM = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


def read_cells(session: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The pipeline's source as a stream of cells."""
    source = PipelineSourceUntilNow if _ends_when_idle(pipeline) else PipelineSource
    register_source(session, source)
    return session.readStream.format(source.name()).options(**stream_options(pipeline)).load()


def stream_options(pipeline: Pipeline) -> dict[str, str]:
    """Spark's options of the pipeline's source."""
    options = {
        "maxParked": str(pipeline.settings.max_parked),
        **_former_columns(pipeline),
        **_log_parallelism(pipeline),
        **pipeline.source_options,
        "requestsPath": _requests_path(pipeline),
        "checkpointPath": absolute(pipeline.checkpoint),
        "troublePath": trouble_path(absolute(pipeline.checkpoint)),
    }
    if pipeline.settings.sample is not SampleMode.NONE:
        options["samplePath"] = sample_path(absolute(pipeline.checkpoint))
    return options


def _ends_when_idle(pipeline: Pipeline) -> bool:
    """Whether the stream is to be stopped when it has read everything: Spark's trigger does not do it."""
    return pipeline.settings.trigger is TriggerMode.AVAILABLE_NOW and not IS_LIMITED


def _former_columns(pipeline: Pipeline) -> dict[str, str]:
    """The option by which a table is not read again when its columns are renamed or dropped."""
    return {"formerColumns": "follow"} if pipeline.follows_former_columns else {}


def _log_parallelism(pipeline: Pipeline) -> dict[str, str]:
    """The option by which several tasks read a backlog, where nothing is lost by it."""
    is_mysql = pipeline.source.dialect in ("mysql", "mariadb")
    return {"logParallelism": "auto"} if is_mysql and pipeline.takes_any_order else {}


def _requests_path(pipeline: Pipeline) -> str:
    given = pipeline.source_options.get("requestsPath")
    return given or requests_path(absolute(pipeline.checkpoint))


class Watcher(Protocol):
    """Receives the events of a stream, from several threads."""

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Spark's report on a batch, with `pendingRows`: the sink's `pending_rows`. Each once, in order."""

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """The sink has a batch."""

    def on_batch(self, run: BatchRun) -> None:
        """An attempt to write a batch has ended, after `on_written` if the sink has it."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """The stream failed with a transient error and restarts after a pause."""

    def on_trouble(self, error: TailraceError | None) -> None:
        """The source does not answer, and is tried again; None: nothing is tried again any more."""

    def on_step(self, step: str) -> None:
        """A step begins; of interest until the first report on a batch."""

    def on_notice(self, text: str) -> None:
        """Something that the user should know has happened."""


class _StopRequestedError(Exception):
    """Raised instead of beginning a batch after a stop request."""


class BatchGate:
    """Spark's callback for each batch: writes it to the sink, unless a stop was requested.

    Args:
        pipeline: the pipeline.
        sink: the sink of the batches.
        watcher: receives each batch written.
        parking: knows which tables a batch is to be written without.
        parked_sinks: knows which sinks a batch is not to be given.
        fence: lets each batch through.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sink: Sink,
        watcher: Watcher,
        parking: Parking,
        parked_sinks: ParkedSinks,
        *,
        fence: Fence,
    ) -> None:
        self._pipeline = pipeline
        self._fence = fence
        self._parking = parking
        self._parked_sinks = parked_sinks
        self._transform = Transformer.of(pipeline)
        # a transform may name columns otherwise, and targets only know its names
        self._policy = pipeline.source.schema_policy if self._transform.does_nothing else None
        self._sink = sink
        self._watcher = watcher
        self._checkpoint = Checkpoint(pipeline.checkpoint)
        self._written_tables = WrittenTables(
            absolute(pipeline.checkpoint), _requests_path(pipeline), watcher.on_notice
        )
        self._absent_sinks = AbsentSinks(
            absolute(pipeline.checkpoint),
            _requests_path(pipeline),
            pipeline.sinks,
            self._written_tables,
            watcher.on_notice,
            wait=parked_sinks.wait,
        )
        self._closed = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._lock = threading.Lock()
        #: Whether the sink has the last batch of a stream that ends.
        self.ended = False
        #: The newest batch that was to be written, and the newest in the sink; None before the first.
        self.begun: int | None = None
        self.written: int | None = None
        #: The sink's exception.
        self.failure: Exception | None = None
        #: The sink that raised it; None: not one of several.
        self.failed_sink: str | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch."""
        with self._lock:
            if self._closed.is_set():
                raise _StopRequestedError
            self._idle.clear()
        self.begun = batch_id
        self._watcher.on_step(f"writing batch {batch_id}")
        timings, written, start_ns = Timings(), list[Written](), time.time_ns()
        quarantined = Counter[tuple[str, str]]()
        try:
            if self.written is None:  # the stream's own session: see `_private_files`
                frame.sparkSession.conf.unset(_UMASK)
            stream = StreamId(self._pipeline.settings.name, self._checkpoint.query_id() or "")
            end = self._checkpoint.end_of(batch_id)
            if end is not None:
                self._fence.begin(batch_id, end)
            self._absent_sinks.note(batch_id, end)
            offset, left_out = StreamOffset(), frozenset[str]()
            if end is not None:
                offset = StreamOffset.from_json(end)
                left_out = self._parking.left_out(end)
                self._parked_sinks.begin(batch_id, offset)
                end = without_tables(end, left_out)
                if isinstance(self._sink, SeveralSinks):
                    self._sink.leave_out(self._parked_sinks.left_out())
                # a new table's target is checked before any of its rows is written
                self._sink.claim(StreamOffset.from_json(end).table_ids())
            noted = self._written_tables
            ended = [name for name, reread in rereads(end).items() if reread.done]
            marks = self._transform.soft_deletes(frame.sparkSession, ended)
            with (
                self._cells(frame) as cells,
                closing(
                    CellBatch(
                        stream,
                        batch_id,
                        cells,
                        end,
                        left_out,
                        noted,
                        self._policy,
                        self._pipeline.source.schema_policy.following,
                        marks,
                        timings=timings,
                        quarantined=quarantined,
                    )
                ) as batch,
            ):
                written = self._sink.write(batch)
            noted.note(batch_id, (part.table for part in written), [*offset.names(), *offset.parked])
            failpoint("sink.committed")
            self._fence.end(batch_id)
            self.written = batch_id
            self.ended = is_reached(offset, self._pipeline.source.ending_position)
            self._watcher.on_written(batch_id, written)
        except Exception as error:
            self.failure = error
            self.failed_sink = self._sink.failed if isinstance(self._sink, SeveralSinks) else None
            raise
        finally:
            self._tell(batch_id, start_ns, timings, written, quarantined)
            self._idle.set()

    def _tell(
        self,
        batch_id: int,
        start_ns: int,
        timings: Timings,
        written: Sequence[Written],
        quarantined: Mapping[tuple[str, str], int],
    ) -> None:
        failure = self.failure
        error = None if failure is None else _as_ours(failure, None, failure)
        end_ns = max([time.time_ns(), start_ns, *(step.end_ns for step in timings.steps)])
        run = BatchRun(batch_id, start_ns, end_ns, timings.steps, written, error, quarantined)
        self._watcher.on_batch(run)

    @contextmanager
    def _cells(self, frame: DataFrame) -> Iterator[DataFrame]:
        """The transformed cells."""
        if self._transform.does_nothing:
            yield frame
            return
        cells = read(frame).persist()
        try:
            yield self._transform(cells)
        finally:
            cells.unpersist()

    def is_recorded(self) -> bool:
        """Whether Spark has recorded the last batch written, if any, as done."""
        return self.written is None or self._checkpoint.is_done(self.written)

    def close(self) -> None:
        """Begin no further batch, and wait until the running one is in the sink."""
        with self._lock:
            self._closed.set()
        self._idle.wait()


@dataclass
class Supervisor:
    """Runs a pipeline's stream to its end.

    Args:
        read: returns the stream of cells.
        pipeline: the pipeline.
        sink: the sink of the batches.
        watcher: receives progress, written batches and restarts.
        stop: set it to stop the stream after the running batch.
        tables: the tables that are captured at the start.
        fence: lets each batch through.
        is_alone: whether no other stream plans with Spark's Python processes.
    """

    read: Callable[[], DataFrame]
    pipeline: Pipeline
    sink: Sink
    watcher: Watcher
    stop: threading.Event
    tables: Sequence[TableId] = ()
    fence: Fence = field(default_factory=Open)
    is_alone: bool = False

    def __post_init__(self) -> None:
        self._is_checked = False
        self._log_warning = LogWarning(self.watcher.on_notice)
        self._held_snapshot = HeldSnapshot(self.watcher.on_notice)

    def run(self) -> None:
        """Run until everything is read, a stop is requested, or the stream cannot continue.

        Raises:
            TailraceError: the stream cannot continue.
        """
        settings = self.pipeline.settings
        restarts = Restarts(settings.restarts, settings.restarts_per_hour)
        parking = Parking(self.pipeline, self.watcher.on_notice)
        sinks = ParkedSinks(self.pipeline, _requests_path(self.pipeline), self.watcher.on_notice)
        while True:
            gate = BatchGate(self.pipeline, self.sink, self.watcher, parking, sinks, fence=self.fence)
            restarts.started()
            try:
                self._run_once(gate, parking, sinks)
            except TailraceError as error:
                if not error.retryable and (sinks.park(error, gate.failed_sink) or parking.park(error)):
                    continue
                pause = restarts.pause_s(wrote=gate.written is not None) if error.retryable else None
                if restarts.is_open:
                    most = settings.restarts_per_hour
                    self.watcher.on_notice(f"the stream failed more than {most} times within an hour")
                if pause is None and sinks.park(error, gate.failed_sink):
                    restarts = Restarts(settings.restarts, settings.restarts_per_hour)
                    continue
                if pause is None:
                    raise
                self.watcher.on_restart(error, restarts.in_a_row, pause)
                if self.stop.wait(pause):
                    return
            else:
                parking.at_end(stopped=self.stop.is_set())
                sinks.at_end(stopped=self.stop.is_set())
                return

    def _run_once(self, gate: BatchGate, parking: Parking, sinks: ParkedSinks) -> None:
        try:
            if not self._is_checked:
                require_newest(self.pipeline, self.tables)
                self._is_checked = True
            sinks.look()
            self._follow(gate, parking, sinks)
        except (Py4JError, ConnectionError) as error:
            if isinstance(error, Py4JJavaError):
                raise
            # A SIGTERM to the whole process group ends the JVM too: the next start repeats the batch.
            if not self.stop.is_set():
                raise SourceError(
                    "Spark's JVM has ended",
                    None,
                    "see the log file, or the system's, for the reason",
                    code="TR-8001",
                ) from error

    def _follow(self, gate: BatchGate, parking: Parking, sinks: ParkedSinks) -> None:
        if self._has_ended():
            self.watcher.on_notice("the stream has reached its end before")
            return
        self.watcher.on_step("starting the stream")
        query, cluster = self._start(gate)
        reports, planned, pause_s = QueryReports(query), 0, _POLL_S
        ends_soon = self.pipeline.settings.trigger is TriggerMode.AVAILABLE_NOW
        longest_s = _POLL_S if ends_soon else _IDLE_POLL_S
        idle = _idle(query) if _ends_when_idle(self.pipeline) else threading.Event()
        while query.isActive and not (gate.ended or idle.is_set()) and not self.stop.wait(pause_s):
            has_news = self._report(reports.new(gate.begun), parking, sinks)
            is_idle = reports.is_idle(gate.begun)
            pause_s = _POLL_S if has_news and not is_idle else min(_SLOWER * pause_s, longest_s)
            sinks.look()
            # the stream is planned before its first report, how tasks read before its first batch
            steps = reports.are_there + (gate.written is not None)
            if self.is_alone and steps > planned:
                planned = steps
                with suppress(Py4JJavaError):  # they cost memory only
                    end_planners(cluster.session)
            cluster.look()
        if query.isActive and (self.stop.is_set() or gate.ended or idle.is_set()):
            _stop(query, gate)
        self._report(reports.rest(), parking, sinks)
        if gate.ended:
            self.watcher.on_notice(f"the stream has reached its end, {self.pipeline.source.ending_position}")
        if self.stop.is_set() or gate.ended:
            return
        failure = query.exception()
        if failure is not None:
            raise _as_ours(failure, query, gate.failure) from failure

    def _has_ended(self) -> bool:
        """Whether nothing is left to do, by the checkpoint."""
        of = self.pipeline.source.ending_position
        last = None if of is None else Checkpoint(absolute(self.pipeline.checkpoint)).last()
        return last is not None and last.committed and is_reached(StreamOffset.from_json(last.end), of)

    def _start(self, gate: BatchGate) -> tuple[StreamingQuery, ClusterWatch]:
        settings = self.pipeline.settings
        try:
            cells = self.read()
            writer = cells.writeStream.queryName(settings.name).foreachBatch(in_this_log(gate))
            writer = writer.option("checkpointLocation", self.pipeline.checkpoint)
            match settings.trigger:
                case TriggerMode.AVAILABLE_NOW if IS_LIMITED:
                    writer = writer.trigger(availableNow=True)
                case TriggerMode.INTERVAL:
                    writer = writer.trigger(processingTime=f"{settings.interval_ms} milliseconds")
                case _:  # batch after batch
                    pass
            with _private_files(cells.sparkSession):
                return writer.start(), ClusterWatch(cells.sparkSession, self.watcher.on_notice)
        except (PySparkException, Py4JJavaError) as error:
            raise _as_ours(error, None, None) from error

    def _report(self, reports: Sequence[Mapping[str, Any]], parking: Parking, sinks: ParkedSinks) -> bool:
        """Pass reports on; whether there were any."""
        for report in reports:
            parking.look(report)
            self._log_warning.look(report)
            self._held_snapshot.look(report)
            more = {"pendingRows": self.sink.pending_rows, "parkedSinks": sinks.report()}
            self.watcher.on_progress({**report, **more})
        return bool(reports)


@contextmanager
def _private_files(session: SparkSession) -> Iterator[None]:
    """A stream started in this context has a checkpoint for this user only.

    Spark takes the modes of a checkpoint's files from the session's settings at the start. The batches get a
    copy of these settings, but their tables follow the umask: `BatchGate` removes the setting there.
    """
    session.conf.set(_UMASK, "077")
    try:
        yield
    finally:
        session.conf.unset(_UMASK)


def _idle(query: StreamingQuery) -> threading.Event:
    """Set once the query has found nothing to read, or has ended."""
    found = threading.Event()

    def wait() -> None:
        with suppress(PySparkException, Py4JError, ConnectionError):  # the query's own failure is looked at
            query.processAllAvailable()
        found.set()

    threading.Thread(target=wait, name="until-now", daemon=True).start()
    return found


def _stop(query: StreamingQuery, gate: BatchGate) -> None:
    """Stop between two batches: Spark has recorded the last one as done, and no other has begun."""
    gate.close()
    deadline = time.monotonic() + _COMMIT_S
    # The progress does not tell: an idle stream reports the number of the next batch.
    while query.isActive and not gate.is_recorded() and time.monotonic() < deadline:
        time.sleep(0.02)
    if query.isActive:
        query.stop()


def _as_ours(failure: Exception, query: StreamingQuery | None, raised: Exception | None) -> TailraceError:
    """The reason of a failed stream, as one of our errors.

    Args:
        failure: Spark's exception.
        query: the query that failed.
        raised: the sink's exception, if any.
    """
    if isinstance(raised, TailraceError):
        return raised
    text = str(failure)
    table = None if raised is None else error_of_table(raised)
    ours = parse_error(text)
    if ours is not None:
        return ours if table is None else of_table(ours, table)
    missing = missing_package(text)
    if missing is not None:
        return missing
    if query is not None:
        classes = failure_classes(query)
    else:  # it could not be started: a process may be too slow to plan it
        classes = call_failure_classes(failure) if raised is None else ()
    if any(name in _TRANSIENT for name in classes):
        return TransientSourceError("a process of the stream was lost", ", ".join(classes), code="TR-8002")
    cause = cause_of(failure if raised is None else raised)
    if any(text in cause for text in _NO_ROOM):
        return errors.TransientSinkError(
            "a disk is full", cause, "free some space: what was not written is written again", code="TR-7007"
        )
    if raised is not None:
        found = errors.SinkError(
            "writing a batch failed", cause, "the traceback is in the log file", code="TR-7008"
        )
        if table is not None and is_of_rows(cause):
            found.concern(table)
        return found
    return SourceError("the stream failed", cause, "the traceback is in the log file", code="TR-8003")
