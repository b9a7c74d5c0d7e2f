"""A process of its own that compares tables for a running pipeline (`verify.schedule` starts it).

    standard input     a `Task`, pickled; then nothing, until the pipeline's process ends
    standard output    what happens, a JSON object a line (`work`)

It shares neither memory nor Spark with the stream, has a lower priority, and ends with the process that
started it, whatever ends that: then its standard input is at its end.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.config.sinks import sink_names
from tailrace.errors import TailraceError
from tailrace.private import open_private
from tailrace.spark.session import stop_session
from tailrace.spark.task_errors import missing_package, parse_error
from tailrace.verify.repair import compared, repair, requested
from tailrace.verify.report import Report
from tailrace.verify.session import comparing_session
from tailrace.verify.targets import needs_spark

#: What is added to the priority number of the process.
_NICE = 10
#: Connections that read the source.
_CONNECTIONS = 1
#: Nothing to compare: every table is left out, with its reason.
_NOTHING = "TR-8101"

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Task:
    """What to compare.

    Args:
        pipeline: the pipeline, of one source.
        tables: the sink's name and the table's name of each.
        repair: whether what differs is to be repaired.
        waits: whether the stream runs: then repairs are waited for, and compared once more.
        patience_s: how long the stream may take to begin with a repair.
        limits: the source's options with the limits of reading.
        log_file: the file for Spark's warnings and for tracebacks; None: standard error.
    """

    pipeline: Pipeline
    tables: tuple[tuple[str, str], ...]
    repair: bool
    waits: bool
    patience_s: float
    limits: SourceOptions
    log_file: Path | None

    @property
    def sinks(self) -> dict[str, Pipeline]:
        """The pipeline with each of the sinks alone, by the sink's name."""
        pipeline = self.pipeline
        named = dict(zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True))
        return {name: replace(pipeline, sinks=(named[name],)) for name in dict(self.tables)}


def work(task: Task, spark: SparkSession | None, emit: Emit) -> None:
    """Compare the tables of a task, one after another, each as of the last batch when its turn comes.

    Args:
        task: the task.
        spark: a session with Delta; None: no sink needs one.
        emit: receives what happens. Each has `event`, `sink` and `table`, the one that was asked for:
            `begun`; `compared`, with `tables`, those of the target, `batch`, numbers of rows, `repaired`;
            `skipped` with `why`; `requested` with the request's `id`; `failed` with `code` and `message`;
            at last `ended`, with the `tables` of the target.
    """
    sinks = task.sinks
    done = set[tuple[str, str]]()
    for sink, table in task.tables:
        if (sink, table) not in done:
            names = _Table(task, sinks[sink], sink, table, emit).compare(spark)
            done |= {(sink, name) for name in names}


@dataclass(frozen=True)
class _Table:
    """The comparison of one table in one sink."""

    task: Task
    pipeline: Pipeline
    sink: str
    name: str
    emit: Emit

    def compare(self, spark: SparkSession | None) -> list[str]:
        """Compare it; returns the names of the tables that were compared with it."""
        names = [self.name]
        self._tell("begun")
        try:
            how: dict[str, Any] = {"limits": self.task.limits, "parallelism": _CONNECTIONS}
            report = compared(self.pipeline, spark, names, settled=True, **how)
            names = self._compared(report, repaired=False)
            if not report.equal and self.task.repair:
                self._repair(spark, report, how)
        except TailraceError as error:
            if error.code == _NOTHING:
                self._tell("skipped", why=error.detail or error.message)
            else:
                self._tell("failed", code=error.code, message=error.message)
        except (PySparkException, Py4JJavaError) as error:
            ours = parse_error(str(error)) or missing_package(str(error))
            traceback.print_exc()
            self._tell(
                "failed",
                code=None if ours is None else ours.code,
                message="Spark could not compare it" if ours is None else ours.message,
            )
        except Exception as error:  # noqa: BLE001 - the next table is compared all the same
            traceback.print_exc()
            # its text may hold a secret
            self._tell("failed", code=None, message=f"a {type(error).__name__}, see the log file")
        self._tell("ended", tables=names)
        return names

    def _repair(self, spark: SparkSession | None, report: Report, how: dict[str, Any]) -> None:
        def on_request(id_: str) -> None:
            self._tell("requested", id=id_)

        if not self.task.waits:
            on_request(requested(self.pipeline, report)[0])
            return
        after = repair(
            self.pipeline, spark, report, patience_s=self.task.patience_s, on_request=on_request, **how
        )
        self._compared(after, repaired=True)

    def _compared(self, report: Report, *, repaired: bool) -> list[str]:
        for name, why in report.skipped:
            self._tell("skipped", why=f"`{name}`: {why}")
        names: list[str] = []
        for target in report.targets:
            found = target.differences
            names += target.tables
            self._tell(
                "compared",
                tables=list(target.tables),
                target=target.target,
                batch=report.batch,
                source_rows=target.source_rows,
                target_rows=target.target_rows,
                missing=0 if found is None else found.missing,
                extra=0 if found is None else found.extra,
                different=0 if found is None else found.different,
                equal=target.equal,
                at_least=target.examined < target.differing,
                left_out=list(target.left_out),
                repaired=repaired,
            )
        return names or [self.name]

    def _tell(self, event: str, **more: Any) -> None:
        self.emit({"event": event, "sink": self.sink, "table": self.name, **more})


@contextmanager
def _spark(task: Task) -> Iterator[SparkSession | None]:
    """A session of this process, if a sink needs one."""
    if not any(needs_spark(each.sinks[0]) for each in task.sinks.values()):
        yield None
        return
    session = comparing_session(task.pipeline, "verify", connections=_CONNECTIONS, log_file=task.log_file)
    try:
        yield session
    finally:
        stop_session(session)


def _end_with(stream: BinaryIO) -> None:
    """End this process once nobody holds the other end of a pipe."""

    def wait() -> None:
        stream.read()
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> None:
    """Do the task that comes by standard input."""
    # copies that no process inherits: Spark's must not hold the pipes
    source, output = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    task: Task = pickle.load(source)  # noqa: S301 - of the process that has started this one
    _end_with(source)
    os.nice(_NICE)
    if task.log_file is not None:
        with open(task.log_file, "ab", opener=open_private) as log:
            os.dup2(log.fileno(), 2)
    os.dup2(2, 1)

    def emit(event: dict[str, Any]) -> None:
        os.write(output, f"{json.dumps(event)}\n".encode())

    with _spark(task) as spark:
        work(task, spark, emit)
