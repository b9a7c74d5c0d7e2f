"""What is shown and asked of one subscription's streams: status, tables, signals, log.

All of it is read from, or written beside, the subscription's checkpoint; it need not run for that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.config.load import chosen
from tailrace.config.model import Pipeline
from tailrace.control.audit import note
from tailrace.control.operations import Control
from tailrace.control.places import log_file
from tailrace.control.subscriptions import Subscription
from tailrace.errors import StateError
from tailrace.pipeline import table_requests
from tailrace.pipeline.schema_history import RecordedChange, schema_history
from tailrace.pipeline.status import status as look
from tailrace.spark import object_stores

#: Most bytes of a log that are read at a time.
MOST_LOG = 256 * 1024


def status(control: Control, name: str) -> dict[str, Any]:
    """The state of each of a subscription's sources, by its name ("": there is one), as `tailrace status`.

    Raises:
        ControlError: there is no such subscription.
        TailraceError: its checkpoint cannot be read.
    """
    found = {}
    for pipeline in pipelines_of(control, control.get(name)):
        with reaching(pipeline):
            found[pipeline.source_name] = look(pipeline).to_json()
    return found


def resync(
    control: Control,
    actor: str,
    name: str,
    tables: Sequence[str],
    *,
    source: str | None = None,
    where: str | None = None,
) -> str:
    """Read tables again, in place; returns the request's id. See `table_requests.resync`."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        id_ = table_requests.resync(pipeline, tables, where, _arguments(name, pipeline))
    note_request(control, actor, pipeline, "resync", request=id_, tables=list(tables), where=where)
    return id_


def park(control: Control, actor: str, name: str, tables: Sequence[str], *, source: str | None = None) -> str:
    """Leave tables out until they are resumed; returns the request's id."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        id_ = table_requests.park(pipeline, tables)
    note_request(control, actor, pipeline, "park", request=id_, tables=list(tables))
    return id_


def resume_tables(
    control: Control,
    actor: str,
    name: str,
    tables: Sequence[str],
    *,
    source: str | None = None,
    replay: bool = False,
) -> str:
    """Go on with parked tables; returns the request's id. See `table_requests.resume`."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        id_ = table_requests.resume(pipeline, tables, _arguments(name, pipeline), replay=replay)
    note_request(control, actor, pipeline, "resume_tables", request=id_, tables=list(tables), replay=replay)
    return id_


def resume_sink(
    control: Control, actor: str, name: str, sink: str, *, source: str | None = None
) -> list[str] | None:
    """Go on with a parked sink; returns the tables that it lacks, None: all."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        tables = table_requests.resume_sink(pipeline, sink)
    note_request(control, actor, pipeline, "resume_sink", sink=sink)
    return tables


def signal(
    control: Control,
    actor: str,
    name: str,
    kind: str,
    data: Mapping[str, Any],
    *,
    source: str | None = None,
    id_: str | None = None,
) -> str:
    """Send a signal; returns its id. See `table_requests.send_signal`."""
    pipeline = stream_of(control, name, source)
    with reaching(pipeline):
        sent = table_requests.send_signal(pipeline, kind, data, id_)
    # its data may hold a condition with a value of a row
    note_request(control, actor, pipeline, "signal", request=sent, type=kind)
    return sent


def schema_changes(control: Control, name: str) -> list[tuple[str, RecordedChange]]:
    """The schema changes that a subscription's checkpoints hold, with their sources, the newest first.

    Raises:
        ControlError: there is no such subscription.
        TailraceError: its file or its checkpoint cannot be read.
    """
    found = []
    for pipeline in pipelines_of(control, control.get(name)):
        with reaching(pipeline), reading(pipeline):
            found.append([(pipeline.source_name, one) for one in schema_history(pipeline.checkpoint)])
    # clocks may differ: those of one source stay in the order of its log
    return list(heapq.merge(*found, key=lambda one: one[1].at_ms, reverse=True))


def log_tail(control: Control, name: str, after: int | None = None) -> tuple[str, int]:
    """A part of the log of a subscription's worker.

    Args:
        control: the control plane.
        name: the subscription.
        after: begin there, bytes from the start; None: the last part. One beyond the end, as the file has
            been emptied since, begins there in what is kept of it, then at the start.

    Returns:
        Whole lines, and where the next part begins.

    Raises:
        ControlError: there is no such subscription.
        StateError: the file cannot be read.
    """
    path = log_file(control.get(name).name, control.data_dir)
    try:
        if after is not None and (rest := _former(path, after)):
            return rest.decode("utf-8", "replace"), after + len(rest)
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(0, size - MOST_LOG) if after is None else after if after <= size else 0
            file.seek(begin)
            content = file.read(MOST_LOG)
    except FileNotFoundError:
        return "", 0
    except OSError as error:
        raise StateError(
            f"the log of subscription `{name}` cannot be read",
            error.strerror,
            "all servers must reach the same data directory",
            code="TR-8430",
        ) from None
    if after is None and begin > 0:
        first = content.find(b"\n") + 1
        begin, content = begin + first, content[first:]
    # a part of a line is read again with its rest, unless it fills everything
    whole = content[: content.rfind(b"\n") + 1] or (content if len(content) == MOST_LOG else b"")
    return whole.decode("utf-8", "replace"), begin + len(whole)


def _former(path: Path, after: int) -> bytes:
    """What follows in the former content of a log that has been emptied (`pipeline.log_output`)."""
    kept = path.with_name(f"{path.name}.1")
    if after <= path.stat().st_size or not kept.exists():
        return b""
    with kept.open("rb") as file:
        file.seek(after)
        content = file.read(MOST_LOG)
    # its last line is whole, unless more follows
    return content[: content.rfind(b"\n") + 1] or content


def pipelines_of(control: Control, subscription: Subscription) -> tuple[Pipeline, ...]:
    """A subscription's pipeline, once for each of its sources, with the packages that it needs.

    Raises:
        ConfigError: the file is wrong, or not allowed on this server, or a package is missing.
    """
    found = control.pipelines(subscription.spec, subscription.name)
    for pipeline in found:
        pipeline.require_extras()
    return found


def stream_of(control: Control, name: str, source: str | None) -> Pipeline:
    """A subscription's pipeline, as it is for one source.

    Raises:
        ConfigError: the file is wrong, or it has several sources and none is named.
        ControlError: there is no such subscription.
    """
    return chosen(pipelines_of(control, control.get(name)), source)


def _arguments(name: str, pipeline: Pipeline) -> str:
    return f"{name} --source {pipeline.source_name}" if pipeline.named else name


@contextmanager
def reaching(pipeline: Pipeline) -> Iterator[None]:
    """Object stores are reached with the pipeline's settings inside, in this thread."""
    with object_stores.used(pipeline.settings.spark):
        yield


@contextmanager
def reading(pipeline: Pipeline) -> Iterator[None]:
    """Errors of the file system that holds the checkpoint are ours inside."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StateError(
            f"checkpoint `{pipeline.checkpoint}` cannot be reached",
            getattr(error, "strerror", None) or type(error).__name__,
            "all servers must reach the checkpoint, as the same user",
            code="TR-8465",
        ) from None


def note_request(control: Control, actor: str, pipeline: Pipeline, kind: str, **values: Any) -> None:
    """Put what somebody asked of a stream into the audit."""
    name = pipeline.settings.name if pipeline.named is None else pipeline.named.pipeline
    after = {"source": pipeline.source_name, **values}
    with control.database.begin() as connection:
        note(connection, actor, f"subscription.{kind}", name, after={k: v for k, v in after.items() if v})
