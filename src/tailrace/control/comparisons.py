"""Comparisons of a subscription's tables with their targets: what is asked for, and what is known.

The process that runs the subscription makes them (`verify.schedule`) when a signal asks for one, and keeps
the results beside the checkpoint. Users ask for jobs (`jobs`), which the subscription's owner makes signals
of (`job_execution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.config.load import chosen
from tailrace.config.model import Pipeline
from tailrace.config.sinks import sink_names
from tailrace.control import jobs
from tailrace.control.jobs import JobKind, TableJob
from tailrace.control.operations import Control
from tailrace.control.streams import pipelines_of, reaching, reading
from tailrace.enumerator.signals import COMPARISONS
from tailrace.pipeline import table_requests
from tailrace.pipeline.job_answers import is_job
from tailrace.pipeline.verify_state import VerifyState
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.comparable import compared_sink, is_comparable


@dataclass(frozen=True)
class Sent:
    """A signal for a comparison that the stream has not accepted yet.

    Args:
        type: `verify` or `repair`.
        tables: how many tables it names; 0: it is about all.
    """

    type: str
    tables: int


@dataclass(frozen=True)
class SourceComparisons:
    """What is known of the comparisons of one source's tables.

    Args:
        pipeline: the pipeline, as it is for this source.
        sinks: the names of its sinks that can be compared.
        state: what is kept beside the checkpoint.
        sent: what else signals ask for, but for those of jobs.
    """

    pipeline: Pipeline
    sinks: Sequence[str]
    state: VerifyState
    sent: Sequence[Sent]


def compare(
    control: Control,
    actor: str,
    name: str,
    kind: JobKind,
    tables: Sequence[str] = (),
    *,
    source: str | None = None,
    key: str | None = None,
) -> tuple[TableJob, bool]:
    """Create a job that compares tables with their targets; the same key once more finds the same job.

    Args:
        control: the control plane.
        actor: who asks for it.
        name: the subscription.
        kind: `repair`: what differs is read again, and compared once more.
        tables: the tables, of one source; none: all.
        source: of this source; None: of all that can be compared, or the only one.
        key: the client's name for it.

    Returns:
        The job, and whether it is new.

    Raises:
        ConfigError: no sink can be compared with the source, or a table is not captured.
        ControlError: there is no such subscription, it is cancelled, or the key is another job's.
    """
    require_comparable(pipelines_of(control, control.get(name)), tables, source)
    with control.database.begin() as connection:
        return jobs.create(connection, actor, name, kind, tables, source=source, key=key)


def require_comparable(
    pipelines: Sequence[Pipeline], tables: Sequence[str], source: str | None
) -> list[Pipeline]:
    """Those of a subscription's pipelines, one of each source, that a job is about.

    Raises:
        ConfigError: no sink can be compared with the source, or a table is not captured.
    """
    found = tuple(pipelines)
    if tables or source is not None:
        found = (chosen(found, source),)
    comparable = [pipeline for pipeline in found if _compared_sinks(pipeline)]
    if not comparable:
        compared_sink(found[0].sinks, found[0].source)
    for pipeline in comparable:
        with reaching(pipeline), reading(pipeline):
            table_requests.require_captured(pipeline, tables, "cannot be compared")
    return comparable


def comparisons(control: Control, name: str) -> list[SourceComparisons]:
    """What is known of the comparisons of a subscription's tables, of each source.

    Raises:
        ControlError: there is no such subscription.
        TailraceError: its file or its checkpoint cannot be read.
    """
    found = []
    for pipeline in pipelines_of(control, control.get(name)):
        with reaching(pipeline), reading(pipeline):
            state = VerifyState.read(pipeline.checkpoint)
            pending = RequestDirectory(requests_path(pipeline.checkpoint)).pending()
        sent = [
            Sent(request.signal.type, len(request.signal.data.get("data-collections") or ()))
            for request in pending
            if request.signal is not None
            and request.signal.type in COMPARISONS
            and not is_job(request.signal.id)
        ]
        sinks = _compared_sinks(pipeline)
        found.append(SourceComparisons(pipeline, sinks, state, sent))
    return found


def _compared_sinks(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of the sinks that can be compared with the source."""
    named = zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True)
    return tuple(name for name, sink in named if is_comparable(sink, pipeline.source))
