"""A pipeline with several sources: a stream for each, in one Spark (docs/design/0009-several-sources.md).

a source is not set up, or two would be mixed in one target    refused at the start, before any stream
a source cannot be reached                                     tried again, as a stream that was lost
a source's stream ends with an error                           the others go on; raised when all have ended
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.errors import StateError, TablesParkedError, TailraceError, coded
from tailrace.model.table import TableId
from tailrace.pipeline.fence import Fence, Open
from tailrace.pipeline.on_failure import tell_failure
from tailrace.pipeline.restarts import Restarts
from tailrace.pipeline.run import captured_tables, make_directories
from tailrace.pipeline.run_state import RunNotes
from tailrace.pipeline.session import begin_session_of
from tailrace.pipeline.shards import shard_findings
from tailrace.pipeline.supervisor import Supervisor, Watcher, read_cells
from tailrace.pipeline.trouble_watch import TroubleWatch
from tailrace.pipeline.watchers import Watchers
from tailrace.sinks.base import Sink
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.shared_targets import SharedTargets
from tailrace.spark.checkpoint import Checkpoint, absolute
from tailrace.spark.launch import SparkLog
from tailrace.spark.session import stop_session


@dataclass
class SourceRun:
    """One source of a running pipeline.

    Args:
        pipeline: the pipeline, as it is for this source.
        sink: its sink.
        watcher: receives its events.
        tables: the tables that it captures at the start; None: it could not be reached yet.
        error: with what it has ended.
        fence: lets each of its batches through.
    """

    pipeline: Pipeline
    sink: Sink
    watcher: Watcher
    tables: list[TableId] | None = None
    error: Exception | None = None
    fence: Fence = field(default_factory=Open)

    def check(self) -> None:
        """Find the tables and claim their targets, unless the source cannot be reached now.

        Raises:
            TailraceError: the source is not set up, or another one has a target.
        """
        self.watcher.on_step("checking the source")
        try:
            with TroubleWatch(self.pipeline, self.watcher):
                tables = captured_tables(self.pipeline)
        except TailraceError as error:
            if not error.retryable:
                raise
            return
        for finding in shard_findings(self.pipeline, tables):
            self.watcher.on_notice(
                f"{finding.check} {finding.found}. It needs {finding.needed}. {finding.remedy}"
            )
        self.sink.claim(tables)
        self.tables = tables

    def run(self, session: SparkSession, stop: threading.Event) -> None:
        """Run the source's stream until it ends; its error is kept."""
        pipeline = self.pipeline
        try:
            with RunNotes(absolute(pipeline.checkpoint)) as notes, TroubleWatch(pipeline, self.watcher):
                watcher = Watchers((self.watcher, notes))
                if self._reached(watcher, stop):
                    own = session.newSession()
                    pool = own.sparkContext.setLocalProperty
                    pool("spark.scheduler.pool", pipeline.source_name)
                    tables = self.tables or ()
                    Supervisor(
                        lambda: read_cells(own, pipeline),
                        pipeline,
                        self.sink,
                        watcher,
                        stop,
                        tables,
                        self.fence,
                    ).run()
        except TailraceError as error:
            self.error = error
            told = coded(error.message, error.code)
            self.watcher.on_notice(f"source `{pipeline.source_name}` has ended, the others go on: {told}")
            if (on_failure := pipeline.settings.on_failure) is not None:
                tell_failure(on_failure, pipeline.settings.name, error, self.watcher.on_notice)
        except Exception as error:  # noqa: BLE001 - raised once the other sources have ended
            self.error = error
            # its text may hold a secret
            found = f"a {type(error).__name__}, which is a bug; it is raised when all have ended"
            self.watcher.on_notice(f"source `{pipeline.source_name}` has ended, the others go on: {found}")

    def _reached(self, watcher: Watcher, stop: threading.Event) -> bool:
        """Whether the source has been checked; False: a stop was requested before."""
        settings = self.pipeline.settings
        restarts = Restarts(settings.restarts, settings.restarts_per_hour)
        while self.tables is None:
            restarts.started()
            try:
                self.tables = captured_tables(self.pipeline)
            except TailraceError as error:
                pause = restarts.pause_s(wrote=False) if error.retryable else None
                if pause is None:
                    raise
                watcher.on_restart(error, restarts.in_a_row, pause)
                if stop.wait(pause):
                    return False
            else:
                self.sink.claim(self.tables)
        return True


def run_sources(
    pipelines: Sequence[Pipeline],
    watchers: Mapping[str, Watcher],
    stop: threading.Event,
    log_file: Path | SparkLog | None = None,
    session: SparkSession | None = None,
    *,
    fences: Mapping[str, Fence] | None = None,
) -> None:
    """Run a pipeline with several sources until everything is read or `stop` is set.

    Args:
        pipelines: the pipeline, as it is for each source.
        watchers: receive the events of each source, by its name.
        stop: set it to stop after the running batches.
        log_file: the file for Spark's warnings; None: the terminal.
        session: the session to use; None: one that is stopped in the end.
        fences: let the batches of each source through, by its name; None, or not there: nobody else runs it.

    Raises:
        ConfigError: tables of two sources would be mixed in one target.
        PreflightError: a server is not set up for capture.
        TailraceError: the stream of a source could not continue; the others have ended, too.
    """
    named = pipelines[0].named
    assert named is not None
    require_no_single_source(named.checkpoint)
    shared = SharedTargets(named.checkpoint)
    runs = []
    with ExitStack() as stack:
        starting = None
        if session is None:  # its JVM starts while the sources are checked
            starting = begin_session_of(pipelines[0], named.pipeline, log_file, shared=True)
            stack.callback(starting.cancel)
        for pipeline in pipelines:
            make_directories(pipeline)
            fence = (fences or {}).get(pipeline.source_name) or Open()
            sink = make_sinks(pipeline, shared, lease=fence.lease)
            runs.append(SourceRun(pipeline, sink, watchers[pipeline.source_name], fence=fence))
            runs[-1].check()
        for each in runs:
            each.watcher.on_step("starting Spark")
        if starting is not None:
            session = starting.session()
            stack.callback(stop_session, session)
        assert session is not None
        for each in runs:
            stack.callback(each.sink.close)
        _run_all(runs, session, stop)
    failed = [each.error for each in runs if each.error is not None]
    if failed:  # that tables are parked counts least
        raise min(failed, key=lambda error: isinstance(error, TablesParkedError))


def _run_all(runs: Sequence[SourceRun], session: SparkSession, stop: threading.Event) -> None:
    threads = [
        threading.Thread(target=each.run, args=(session, stop), name=f"source-{each.pipeline.source_name}")
        for each in runs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def require_no_single_source(checkpoint: str) -> None:
    """Refuse the checkpoint of a pipeline that has had one source, without a name.

    Raises:
        StateError: it is one.
    """
    if Checkpoint(absolute(checkpoint)).last() is not None:
        raise StateError(
            "the checkpoint is of a pipeline with one source",
            f"`{checkpoint}` holds a stream, and `sources` have theirs in `{checkpoint}/sources`",
            "give `sources` another `pipeline.checkpoint` and targets of their own",
            code="TR-1224",
        )
