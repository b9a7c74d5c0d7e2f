"""Documents of an OpenSearch cluster, kept equal to the rows of tables.

    driver   create indices, or give them columns (`indices`); note the attempt (`state`)
    tasks      documents, each with the version of the batch (`versions`, `documents`)
    driver   delete what tables that were read again no longer have (`vanished`); note that the batch is done

A batch becomes visible document by document, with each refresh of the index. What an attempt has written, the
next one writes no more: that is what versions are for.

A field can be neither renamed nor dropped. So a table whose columns were renamed or dropped is read again,
which writes all of its documents anew; the fields stay in the mapping.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tailrace.config.sinks import OpenSearchSettings, RefusedRow
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import REREAD
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.opensearch import indices, quarantine, state, vanished
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.mapping import require_names
from tailrace.sinks.opensearch.names import location
from tailrace.sinks.opensearch.state import Progress
from tailrace.sinks.opensearch.writer import Attempt
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import Outcome, write_batch
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.route import Router
from tailrace.sinks.tables.former_columns import DropColumn, former_columns, kept_columns, missed_columns
from tailrace.sinks.tables.rereads import Refresh, refreshes_by_target
from tailrace.sinks.tables.targets import add_targets_without_rows, by_target, of_one_table, written
from tailrace.sinks.timings import COMMIT
from tailrace.sinks.versions import ReadingStart, version_of
from tailrace.spark.cells import TableBatch

_log = logging.getLogger(__name__)

#: An index was deleted while it was written.
_GONE = "TR-7306"


class OpenSearchSink:
    """Keeps documents of a cluster equal to the rows of tables.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    def __init__(self, settings: OpenSearchSettings, router: Router) -> None:
        self._settings = settings
        self._client: OpenSearchClient | None = None
        self._claims = Claims(router, lambda table: [location(router, table)])
        #: The indices of targets, as this sink has found or left them.
        self._indices: dict[str, Index] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.ROW, holds_rows=True, follows_schema=True
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: what is durable is visible after the index's refresh interval."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        work = by_target(batch.table_batches, self._claims)
        readings = refreshes_by_target(batch, self._claims)
        read = [name for name, of_target in readings.items() if any(r.reread.done for r in of_target)]
        add_targets_without_rows(work, batch, self._claims, read)
        if work:
            with batch.timings.step(batch.sink, COMMIT):
                try:
                    self._write(batch, work, readings)
                except SinkError as error:
                    self._indices = {}
                    if error.code != _GONE:
                        raise
                    self._write(batch, work, readings)
        return written(work)

    def close(self) -> None:
        """See `Sink.close`."""
        self._client, self._indices = None, {}

    def _write(self, batch: CellBatch, work: Work, readings: Mapping[str, Sequence[Refresh]]) -> None:
        client = self._open()
        progress = state.read(client, work, batch.stream)
        todo = {}
        for name, parts in work.items():
            with of_one_table({part.table for part in parts} or self._claims.of(name)):
                index = self._prepare(client, batch, name, parts, readings.get(name, ()))
            if index is not None and (name not in progress or progress[name].done < batch.id):
                todo[name] = parts
        attempt = Attempt(
            client,
            {name: self._indices[name] for name in todo},
            batch.id,
            uuid.uuid4().hex,
            self._settings.on_refused_row,
            self._settings.max_quarantined,
        )
        begun = {
            name: Progress(
                name,
                batch.stream.query,
                batch.stream.pipeline,
                batch.id,
                progress[name].done if name in progress else state.NEVER,
                attempt.epoch,
            )
            for name in todo
        }
        state.write(client, begun.values())
        filled = {name: parts for name, parts in todo.items() if parts}
        outcome = write_batch(batch, filled, attempt, self._settings.parallelism) if filled else Outcome()
        for name, error in outcome.errors.items():
            with of_one_table(part.table for part in filled[name]):
                raise error
        for table, count in outcome.quarantined.items():
            batch.quarantined[batch.sink, table] += count
            _log.warning("batch %d: %d rows of table %s refused, now in quarantine", batch.id, count, table)
        for name in todo:
            done = [refresh for refresh in readings.get(name, ()) if refresh.reread.done]
            if done:
                failpoint("sink.seen")
            for refresh in done:
                with of_one_table([refresh.table]):
                    vanished.remove(attempt, self._indices[name], refresh)
            state.write(client, [replace(begun[name], done=batch.id)])
            if done:
                failpoint("sink.reread")
            failpoint("sink.table")

    def _open(self) -> OpenSearchClient:
        if self._client is None:
            client = OpenSearchClient.of(self._settings)
            state.create(client)
            if self._settings.on_refused_row is RefusedRow.QUARANTINE:
                quarantine.create(client)
            self._client = client
        return self._client

    def _prepare(
        self,
        client: OpenSearchClient,
        batch: CellBatch,
        name: str,
        parts: Sequence[TableBatch],
        readings: Sequence[Refresh],
    ) -> Index | None:
        """Create a target's index, or give it the batch's columns; None: none exists, none is needed."""
        for schema in (schema for part in parts for schema in part.schemas):
            require_names(schema)
        old = self._indices.get(name) or indices.find(client, name, batch.stream)
        if old is None and not parts:
            return None
        current = None if old is None else self._without_former_columns(batch, old, parts)
        schemas = [schema for part in parts for schema in part.schemas]
        needed = schema_for(name, schemas, current, batch.following) if schemas else current
        assert needed is not None
        if old is not None:
            _require_same_ids(old.schema, needed)
        index = Index(name, batch.stream, needed, {} if old is None else old.readings)
        for refresh in readings:
            reading = ReadingStart(refresh.reread.id, version_of(batch.id, REREAD))
            index = indices.with_reading(index, refresh.name, reading)
        if old is None:
            batch.creates(name, self._claims.of(name))
            indices.create(client, index, self._settings.index_settings)
        elif index != old:
            indices.update(client, index, old)
        self._indices[name] = index
        return index

    def _without_former_columns(
        self, batch: CellBatch, index: Index, parts: Sequence[TableBatch]
    ) -> TargetSchema:
        """The schema without the columns that the source has renamed or dropped.

        Documents get their new fields, and lose the former ones, as the table is read again.
        """
        schema, tables = index.schema, self._claims.of(index.target)
        if len(tables) != 1:  # of which only one has changed
            changed = {event.table for event in batch.column_events if event.changes}
            batch.lacks_columns(index.target, [t for t in tables if str(t) in changed])
            return schema
        table, names = str(tables[0]), [column.name for column in schema.columns]
        changes = former_columns(batch.column_events, table, names, schema.key)
        if changes or kept_columns(batch.column_events, table, names, changes):
            batch.lacks_columns(index.target, tables)
        old = {change.old for change in changes}
        missed = missed_columns(parts, table, names, schema.key) if batch.drops_columns else []
        for change in (*changes, *(change for change in missed if change.old not in old)):
            schema = schema.after(DropColumn(change.old))
        return schema


def _require_same_ids(held: TargetSchema, needed: TargetSchema) -> None:
    """Refuse a key that gives rows other ids.

    Raises:
        SinkError: the key's columns, or their types, have changed.
    """
    old, new = ([column.type.arrow for column in schema.key_columns] for schema in (held, needed))
    is_integer = {"int8", "int16", "int32", "int64"}
    same = [a == b or {str(a), str(b)} <= is_integer for a, b in zip(old, new, strict=False)]
    names = [[name.lower() for name in schema.key] for schema in (held, needed)]
    if names[0] == names[1] and all(same):
        return
    raise SinkError(
        f"target `{held.target}` cannot follow its source: the key has changed",
        f"the target's key is ({', '.join(held.key)}), the source's ({', '.join(needed.key)}); documents are"
        " found by the text of their key",
        "delete the index and read the table again: tailrace resync PIPELINE.YAML TABLE",
        code="TR-7002",
    )
