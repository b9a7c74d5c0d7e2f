"""The engine on one page: the steps of `tailrace run`, in the order in which data passes through them.

file -> settings        config.load
directories             private (checkpoint, log) or by the umask (lake)
anything to do?         pipeline.all_read
server set up?          sources.preflight
targets distinct?       sinks.claims
Spark                   spark.session
source -> batches       spark.source, driven by pipeline.supervisor
batches -> rows         pipeline.transform, by the file's rules and functions
rows -> targets         sinks, named by sinks.route
progress                pipeline.progress, pipeline.view
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.cache import cache_dir
from tailrace.config.model import Pipeline
from tailrace.config.sinks import DeltaSettings, IcebergSettings
from tailrace.errors import ConfigError, StateError, TailraceError
from tailrace.model.paths import file_name
from tailrace.model.table import TableId
from tailrace.pipeline.all_read import all_read, note_all_read
from tailrace.pipeline.fence import Fence, Open
from tailrace.pipeline.functions import Functions, code_for_tasks
from tailrace.pipeline.on_failure import tell_failure
from tailrace.pipeline.run_state import RunNotes
from tailrace.pipeline.session import begin_session_of
from tailrace.pipeline.shards import shard_findings
from tailrace.pipeline.supervisor import Supervisor, Watcher, read_cells
from tailrace.pipeline.tables_in_force import with_tables_in_force
from tailrace.pipeline.trouble_watch import TroubleWatch
from tailrace.pipeline.watchers import Watchers
from tailrace.private import DIRECTORY_MODE, make_private_directory, make_tree_private
from tailrace.sinks.registry import make_sinks
from tailrace.sources import registry
from tailrace.spark.checkpoint import Checkpoint, Directory, absolute, is_local
from tailrace.spark.launch import SparkLog
from tailrace.spark.session import stop_session
from tailrace.spark.trouble import trouble_path


def run(
    pipeline: Pipeline,
    watcher: Watcher,
    stop: threading.Event,
    log_file: Path | SparkLog | None = None,
    *,
    fence: Fence | None = None,
    session: SparkSession | None = None,
    is_alone: bool = False,
) -> None:
    """Run a pipeline until everything is read (`trigger: available-now`) or `stop` is set.

    Args:
        pipeline: what to run.
        watcher: receives progress, written batches and restarts.
        stop: set it to stop after the running batch.
        log_file: the file for Spark's warnings; None: the terminal.
        fence: lets each batch through; None: nobody else runs the pipeline.
        session: the session to use; None: one that is stopped in the end.
        is_alone: whether nothing else uses a session that is given.

    Raises:
        ConfigError: two tables would be mixed in one target, or a directory cannot be created.
        PreflightError: the server is not set up for capture.
        TailraceError: the stream cannot continue.
    """
    _require_no_sources(pipeline.checkpoint)
    make_directories(pipeline)
    try:
        with RunNotes(absolute(pipeline.checkpoint)) as notes, TroubleWatch(pipeline, watcher):
            watchers = Watchers((watcher, notes))
            _run(
                pipeline, watchers, stop, log_file, fence=fence or Open(), session=session, is_alone=is_alone
            )
    except TailraceError as error:
        if (on_failure := pipeline.settings.on_failure) is not None:
            tell_failure(on_failure, pipeline.settings.name, error, watcher.on_notice)
        raise


def _run(
    pipeline: Pipeline,
    watcher: Watcher,
    stop: threading.Event,
    log_file: Path | SparkLog | None,
    *,
    fence: Fence,
    session: SparkSession | None,
    is_alone: bool,
) -> None:
    watcher.on_step("checking the source")
    if isinstance(fence, Open) and (last := all_read(pipeline)) is not None:
        watcher.on_step(f"nothing to read: no changes since batch {last.id}")
        return
    with ExitStack() as stack:
        starting = None
        if session is None:  # its JVM starts while the source is checked
            starting = begin_session_of(pipeline, pipeline.settings.name, log_file)
            stack.callback(starting.cancel)
        tables = captured_tables(pipeline)
        for finding in shard_findings(pipeline, tables):
            watcher.on_notice(f"{finding.check} {finding.found}. It needs {finding.needed}. {finding.remedy}")
        if starting is not None:
            watcher.on_step("starting Spark")
            session = starting.session()
            stack.callback(stop_session, session)
            is_alone = True
        assert session is not None
        own = session
        sink = make_sinks(pipeline, lease=fence.lease)
        stack.callback(sink.close)
        stack.enter_context(code_for_tasks(own, pipeline.functions_path))
        Functions(pipeline.functions).require(own)
        sink.claim(tables)
        Supervisor(
            lambda: read_cells(own, pipeline), pipeline, sink, watcher, stop, tables, fence, is_alone=is_alone
        ).run()
    if not stop.is_set() and not sink.pending_rows:
        note_all_read(pipeline)


def _require_no_sources(checkpoint: str) -> None:
    """Refuse the checkpoint of a pipeline with several sources.

    Raises:
        StateError: it is one.
    """
    names = Directory(f"{absolute(checkpoint)}/sources").names()
    if names and Checkpoint(absolute(checkpoint)).last() is None:
        raise StateError(
            "the checkpoint is of a pipeline with several sources",
            f"found {', '.join(f'`{name}`' for name in names)} in `{checkpoint}/sources`",
            "name the source in a list: sources: [{name: " + names[0] + ", ...}]; or give `source` another"
            " checkpoint and targets of its own",
            code="TR-1224",
        )


def make_directories(pipeline: Pipeline) -> None:
    """Create the local directories of a pipeline: the lake by the umask, our own files for this user only.

    Checkpoint, log and changes that wait for a merge may hold rows and keys. Files that an older version left
    readable for others are closed to them. The catalog of Iceberg tables stays open to the tables' readers.

    Raises:
        ConfigError: a directory cannot be created.
    """
    checkpoint = Path(absolute(pipeline.checkpoint))
    try:
        for sink in pipeline.sinks:
            path = getattr(sink, "path", None)
            if path is None or not is_local(path):
                continue
            root = Path(absolute(path))
            root.mkdir(parents=True, exist_ok=True)
            own = root / "_tailrace"
            if isinstance(sink, IcebergSettings) and not sink.catalog:
                own.mkdir(exist_ok=True)
            elif isinstance(sink, DeltaSettings) or own in checkpoint.parents:
                make_private_directory(own)
                own.chmod(DIRECTORY_MODE)
        if is_local(pipeline.checkpoint):
            make_tree_private(checkpoint)
    except OSError as error:
        raise ConfigError(
            f"directory `{error.filename}` cannot be created", error.strerror, code="TR-1201"
        ) from None


def captured_tables(pipeline: Pipeline) -> list[TableId]:
    """The tables that are captured now; raises PreflightError if the server is not set up for it."""
    options = replace(
        with_tables_in_force(pipeline).source,
        max_parked=pipeline.settings.max_parked,
        trouble_path=trouble_path(absolute(pipeline.checkpoint)),
    )
    with closing(registry.source(options)) as source:
        source.require()
        return [table.schema.id for table in source.tables()]


def default_log_file(pipeline: Pipeline) -> Path:
    """The log file: next to the checkpoint if that is local, else in the cache."""
    if "://" in pipeline.checkpoint:
        return cache_dir("log") / f"{file_name(pipeline.settings.name)}.log"
    return Path(pipeline.checkpoint.removeprefix("file:")).parent / "tailrace.log"
