"""Where a pipeline's data comes from and goes to, as events of OpenLineage.

    START      the process has begun: all captured tables and their targets
    RUNNING    the tables or their columns have changed; every five minutes, what targets have received
    COMPLETE   everything is read, or the pipeline was stopped
    FAIL       an error has ended it

A process is a run; a stream that starts again after a transient error is the same run. A thread of its own
asks the source for columns and sends: a receiver that does not answer costs events, never the stream.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

import pyspark
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from tailrace import __version__
from tailrace.config.model import Pipeline, TriggerMode
from tailrace.config.telemetry import LineageSettings
from tailrace.errors import ConfigError, TailraceError
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.datasets import DatasetName, holds_rows, source_dataset, target_dataset
from tailrace.pipeline.log_output import in_this_log
from tailrace.pipeline.progress import schema_changes
from tailrace.pipeline.tables_in_force import with_tables_in_force
from tailrace.printable import printable
from tailrace.sinks.base import Written
from tailrace.sinks.route import Router
from tailrace.sources import registry

_log = logging.getLogger(__name__)

#: What makes the events; OpenLineage wants a URI.
PRODUCER = f"urn:tailrace:{__version__}"
#: Time between two events that say how much targets have received, seconds.
_INTERVAL_S = 300.0
#: How often the thread looks whether something is to be sent, seconds.
_LOOK_S = 0.5
#: How long an end waits for the receiver, seconds.
_LAST_S = 5.0

Ask = Callable[[], Iterable[TableSchema]]


class Lineage:
    """Sends events; a `Watcher` and a context manager.

    Args:
        pipeline: the pipeline; has a section `lineage`.
        tell: tells the user something.
        ask: gives the captured tables; default: asks the source.

    Raises:
        ConfigError: OpenLineage's configuration is wrong, or names no receiver.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None], ask: Ask | None = None) -> None:
        self._pipeline = pipeline
        self._tell = tell
        self._ask = ask or self._captured
        self._settings = pipeline.lineage or LineageSettings()
        self._client = _client(self._settings)
        set_producer(PRODUCER)
        self._router = Router(pipeline.routes)
        self._run_id = str(generate_new_uuid())
        self._tables: dict[TableId, TableSchema | None] = {}
        #: Rows and changes by table, since the last event.
        self._received: Counter[TableId] = Counter()
        #: All tables that were written.
        self._written: set[TableId] = set()
        self._lock = threading.Lock()
        self._asks = True
        self._has_failed = False
        self._waiting: queue.SimpleQueue[tuple[RunState, str | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=in_this_log(self._run), name="lineage", daemon=True)

    def __enter__(self) -> Lineage:
        self._waiting.put((RunState.START, None))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is None:
            self._waiting.put((RunState.COMPLETE, None))
        else:
            self._waiting.put((RunState.FAIL, _text(error)))
        self._thread.join(_LAST_S)
        return False

    # ---- events ----

    def on_written(self, batch_id: int, written: list[Written]) -> None:  # noqa: ARG002
        """See `Watcher`."""
        with self._lock:
            for part in written:
                self._received[part.table] += part.snapshot_rows + part.changes
                self._written.add(part.table)
                self._asks = self._asks or part.table not in self._tables

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        if any(schema_changes(progress)):
            with self._lock:
                self._asks = True

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

    # ---- in the thread ----

    def _run(self) -> None:
        next_s = time.monotonic() + _INTERVAL_S
        while True:
            try:
                state, error = self._waiting.get(timeout=_LOOK_S)
            except queue.Empty:
                is_new = self._look()
                is_due = time.monotonic() >= next_s and bool(self._received)
                if not (is_new or is_due):
                    continue
                state, error = RunState.RUNNING, None
            else:
                self._look()
            next_s = time.monotonic() + _INTERVAL_S
            self._send(state, error)
            if state in (RunState.COMPLETE, RunState.FAIL):
                self._client.close(0)
                return

    def _look(self) -> bool:
        """Ask for the tables, if something about them is new; whether it was."""
        with self._lock:
            asks, self._asks = self._asks, False
            new = self._written - self._tables.keys()
        if not asks:
            return False
        found: dict[TableId, TableSchema | None] = dict.fromkeys(new)
        try:
            found |= {schema.id: schema for schema in self._ask()}
        except TailraceError as error:  # the stream reports it
            _log.warning("lineage has no columns: %s", error.message)
        with self._lock:
            before, self._tables = self._tables, {**self._tables, **found}
            return self._tables != before

    def _captured(self) -> Iterable[TableSchema]:
        with closing(registry.source(with_tables_in_force(self._pipeline).source)) as source:
            return [table.schema for table in source.tables()]

    def _send(self, state: RunState, error: str | None) -> None:
        with self._lock:
            received, self._received = self._received, Counter()
        try:
            self._client.emit(self._event(state, error, received))
            self._has_failed = False
        except Exception as failure:  # noqa: BLE001 - of any transport
            if not self._has_failed:
                self._has_failed = True
                self._tell(f"lineage is lost: {printable(f'{type(failure).__name__}: {failure}')[:300]}")

    def _event(self, state: RunState, error: str | None, received: Counter[TableId]) -> RunEvent:
        run_facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=pyspark.__version__, name="spark", openlineageAdapterVersion=__version__
            )
        }
        if error is not None:
            run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON")
        settings = self._pipeline.settings
        streams = settings.trigger is not TriggerMode.AVAILABLE_NOW
        kind: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet(
                processingType="STREAMING" if streams else "BATCH", integration="TAILRACE", jobType="PIPELINE"
            )
        }
        namespace = self._settings.namespace or _environment_namespace()
        inputs: list[InputDataset] = []
        outputs: dict[DatasetName, OutputDataset] = {}
        for table, schema in sorted(self._tables.items()):
            inputs.append(self._input(table, schema))
            for name, dataset in self._outputs(table, schema, received[table]):
                outputs[name] = _merged(outputs.get(name), dataset)
        return RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._run_id, run_facets),
            job=Job(namespace, settings.name, kind),
            eventType=state,
            inputs=inputs,
            outputs=list(outputs.values()),
        )

    def _input(self, table: TableId, schema: TableSchema | None) -> InputDataset:
        name = source_dataset(self._pipeline.source, table)
        facets: dict[str, DatasetFacet] = {}
        if schema is not None:
            facets["schema"] = schema_dataset.SchemaDatasetFacet(
                fields=[
                    schema_dataset.SchemaDatasetFacetFields(c.name, c.type.native, ordinal_position=i)
                    for i, c in enumerate(schema.columns, 1)
                ]
            )
        return InputDataset(name.namespace, name.name, facets=facets)

    def _outputs(
        self, table: TableId, schema: TableSchema | None, rows: int
    ) -> Iterable[tuple[DatasetName, OutputDataset]]:
        """The targets of a table. What a transform does to columns is not told."""
        rules = self._pipeline.transforms
        is_changed = any(re.fullmatch(rule.source_table, str(table), re.DOTALL) for rule in rules)
        for settings in self._pipeline.sinks:
            name = target_dataset(settings, self._router, table)
            if name is None:
                continue
            facets: dict[str, DatasetFacet] = {}
            if schema is not None and holds_rows(settings) and not is_changed:
                columns = [column.name for column in schema.columns]
                facets["schema"] = schema_dataset.SchemaDatasetFacet(
                    fields=[schema_dataset.SchemaDatasetFacetFields(column) for column in columns]
                )
                facets["columnLineage"] = self._column_lineage(table, columns)
            count = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
            counts: dict[str, OutputDatasetFacet] = {"outputStatistics": count} if rows else {}
            yield name, OutputDataset(name.namespace, name.name, counts, facets=facets)

    def _column_lineage(self, table: TableId, columns: Iterable[str]) -> DatasetFacet:
        source = source_dataset(self._pipeline.source, table)
        same = column_lineage_dataset.Transformation("DIRECT", "IDENTITY")
        return column_lineage_dataset.ColumnLineageDatasetFacet(
            {
                column: column_lineage_dataset.Fields(
                    [column_lineage_dataset.InputField(source.namespace, source.name, column, [same])]
                )
                for column in columns
            }
        )


def _text(error: BaseException) -> str:
    if isinstance(error, TailraceError):
        return f"{error.message} [{error.code}]" if error.code else error.message
    return type(error).__name__


def _merged(one: OutputDataset | None, other: OutputDataset) -> OutputDataset:
    """A target that several tables share."""
    if one is None:
        return other
    facets = {**(one.facets or {})}
    theirs: Any = (other.facets or {}).get("columnLineage")
    ours: Any = facets.get("columnLineage")
    if ours is not None and theirs is not None:
        for column, found in theirs.fields.items():
            if column in ours.fields:
                ours.fields[column].inputFields.extend(found.inputFields)
            else:
                ours.fields[column] = found
    counts: dict[str, Any] = {**(one.outputFacets or {})}
    more: Any = (other.outputFacets or {}).get("outputStatistics")
    if more is not None:
        rows = counts["outputStatistics"].rowCount if counts else 0
        counts["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows + more.rowCount
        )
    return OutputDataset(one.namespace, one.name, counts, facets=facets)


def _client(settings: LineageSettings) -> OpenLineageClient:
    config: dict[str, Any] = {}
    if settings.url is not None:
        config["transport"] = {"type": "http", "url": settings.url}
        if settings.api_key is not None:
            key = settings.api_key.resolve("`lineage.api-key`")
            config["transport"]["auth"] = {"type": "api_key", "apiKey": key}
    try:
        client = OpenLineageClient(config=config)
    except Exception as error:  # each transport has errors of its own; their texts may show a secret
        raise ConfigError(
            "OpenLineage's configuration is wrong",
            f"its client raised {type(error).__name__}",
            "check openlineage.yml and the variables OPENLINEAGE_*, or give `lineage.url`",
            code="TR-1230",
        ) from error
    if client.transport.kind == "console":
        raise ConfigError(
            "section `lineage` names no receiver",
            "OpenLineage's client would print its events",
            "give `lineage.url`, a transport in openlineage.yml, or OPENLINEAGE_URL",
            code="TR-1231",
        )
    return client


def _environment_namespace() -> str:
    return os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
