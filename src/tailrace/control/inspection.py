"""What is found out about a pipeline file before it runs: preconditions, an estimate, a source's tables.

Nothing is created on the source or written to a target. It connects with the file's own secrets, so the
policy is asked first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import yaml

from tailrace.config.document import read_document
from tailrace.config.model import Pipeline
from tailrace.control.operations import Control
from tailrace.control.places import plain
from tailrace.control.secrets import require_references
from tailrace.control.streams import reaching
from tailrace.errors import ControlError
from tailrace.pipeline import estimate as estimates
from tailrace.pipeline.checks import check as check_rest
from tailrace.sinks.shared_targets import SharedTargets
from tailrace.sources import preflight, registry
from tailrace.sources.preflight import Finding

#: Checks of sinks and transforms start a Spark: one at a time.
_SPARK = threading.Lock()
#: How long somebody waits for another's check, seconds.
_WAIT_S = 120.0
#: How long connecting to a source may take, milliseconds; somebody waits for the answer.
_CONNECT_MS = 5_000
#: How long a source that does not answer is asked again, and all questions of its check may take.
_RETRY_MS = 10_000
#: Connections that a snapshot is estimated for where the file does not say.
_CONNECTIONS = 4


@dataclass(frozen=True)
class Checked:
    """What was found of one source of a file.

    Args:
        source: its name; "": there is one.
        findings: of the source, and if that is in order of everything else.
        estimate: of the first snapshot, see `pipeline.estimate`; None: it was not asked for.
    """

    source: str
    findings: Sequence[Finding]
    estimate: dict[str, Any] | None = None

    @property
    def is_in_order(self) -> bool:
        """Whether no finding keeps the pipeline from running."""
        return not preflight.errors(list(self.findings))


@dataclass(frozen=True)
class FoundTable:
    """A table of a source.

    Args:
        name: its name, as pipeline files name it.
        rows: the catalog's estimate of its rows.
        key: the columns of its key; none: it has none.
        columns: the names of its columns.
    """

    name: str
    rows: int
    key: Sequence[str]
    columns: Sequence[str]


def check(
    control: Control, name: str, spec: str, *, seconds: float | None = None, whole: bool = True
) -> list[Checked]:
    """Check a pipeline file without creating anything: as `tailrace check`, and `tailrace estimate`.

    Args:
        control: the control plane.
        name: of the subscription that it may become.
        spec: the file.
        seconds: how long to measure for an estimate; None: there is none.
        whole: whether sinks and transforms are checked, too; it takes some seconds.

    Raises:
        ConfigError: the file is wrong, or not allowed on this server.
        ControlError: other checks take too long.
        TailraceError: a check could not be made.
    """
    require_references(spec)
    pipelines = control.pipelines(spec, name)
    named = pipelines[0].named
    shared = None if named is None else SharedTargets(named.checkpoint)
    return [_checked(_impatient(pipeline), shared, seconds, whole=whole) for pipeline in pipelines]


def _checked(
    pipeline: Pipeline, shared: SharedTargets | None, seconds: float | None, *, whole: bool
) -> Checked:
    pipeline.require_extras()
    findings = list(registry.check(pipeline.source))
    estimate = None
    if preflight.errors(findings):
        return Checked(pipeline.source_name, findings)
    if whole:
        if not _SPARK.acquire(timeout=_WAIT_S):
            raise ControlError(
                "the check has not been made", "others take long", "try again later", code="TR-8436"
            )
        try:
            with reaching(pipeline):
                findings += check_rest(pipeline, shared)
        finally:
            _SPARK.release()
    if seconds is not None:
        connections = pipeline.settings.parallelism or _CONNECTIONS
        estimate = estimates.estimate(pipeline.source, connections, seconds=seconds).to_json()
    return Checked(pipeline.source_name, findings, estimate)


def tables(control: Control, spec: str) -> dict[str, list[FoundTable]]:
    """The tables that a file's sources have, by the source's name.

    Args:
        control: the control plane.
        spec: the file; `source` or `sources` alone will do. Its `tables` say which ones.

    Raises:
        ConfigError: the file is wrong, or not allowed on this server.
        TailraceError: the source does not answer.
    """
    spec = _with_sink(spec)
    require_references(spec)
    found = {}
    for pipeline in map(_impatient, control.pipelines(spec, "discovery")):
        pipeline.require_extras()
        with closing(registry.source(pipeline.source)) as source:
            found[pipeline.source_name] = [
                FoundTable(
                    str(table.schema.id),
                    table.estimated_rows,
                    tuple(table.schema.key),
                    tuple(column.name for column in table.schema.columns),
                )
                for table in sorted(source.tables(), key=lambda table: str(table.schema.id))
            ]
    return found


def _impatient(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a source that is given up soon if it does not answer.

    `retry-timeout-ms` also limits all questions of a check together.
    """
    source = pipeline.source
    connect_ms = min(source.connect_timeout_ms, _CONNECT_MS)
    retry_ms = min(source.retry_timeout_ms, _RETRY_MS)
    return replace(pipeline, source=replace(source, connect_timeout_ms=connect_ms, retry_timeout_ms=retry_ms))


def _with_sink(spec: str) -> str:
    """The file, or its source alone with a sink that is never written."""
    document = read_document(spec)
    if not isinstance(document, dict) or "sink" in document:
        return spec
    sources = {key: document[key] for key in ("source", "sources") if key in document}
    made = {**sources, "sink": {"type": "console"}, "pipeline": {"checkpoint": "discovery"}}
    return str(yaml.safe_dump(plain(made)))
