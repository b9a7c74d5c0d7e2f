"""Documents of an OpenSearch cluster, kept equal to the rows of tables.

    driver   create indices, or give them columns (`indices`); note the attempt (`state`)
    tasks      documents, each with the version of the batch (`versions`, `documents`)
    tasks      documents of other targets in which changed ones are nested (`nested`, `parents`)
    driver   delete what tables that were read again no longer have (`vanished`); note that the batch is done

A batch becomes visible document by document, with each refresh of the index. What an attempt has written, the
next one writes no more: that is what versions are for.

A field can be neither renamed nor dropped. So a table whose columns were renamed or dropped is read again,
which writes all of its documents anew; the fields stay in the mapping.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import OpenSearchSettings
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import REREAD
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch
from tailrace.sinks.claims import Claims
from tailrace.sinks.opensearch import indices, parents, quarantine, state, vanished
from tailrace.sinks.opensearch.bulk import index_gone
from tailrace.sinks.opensearch.client import OpenSearchClient, unavailable
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.mapping import require_names
from tailrace.sinks.opensearch.names import location
from tailrace.sinks.opensearch.nested import (
    Link,
    require_free_field,
    require_same_links,
    require_same_types,
    shared_target,
)
from tailrace.sinks.opensearch.routing import require_same_routing, routing_column
from tailrace.sinks.opensearch.state import Progress
from tailrace.sinks.opensearch.writer import Attempt
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import Outcome, write_batch
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.route import Router
from tailrace.sinks.tables.former_columns import DropColumn, former_columns, kept_columns, missed_columns
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versioned_sink import VersionedSink
from tailrace.sinks.versions import NEVER, ReadingStart, version_of
from tailrace.spark.cells import TableBatch


class OpenSearchSink(VersionedSink[Attempt]):
    """Keeps documents of a cluster equal to the rows of tables.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    gone = "TR-7306"

    def __init__(self, settings: OpenSearchSettings, router: Router) -> None:
        super().__init__(Claims(router, lambda table: [location(router, table)]), settings.parallelism)
        self._settings = settings
        self._client: OpenSearchClient | None = None
        self._links = tuple(Link.of(given) for given in settings.nested)
        #: Parents that have missed batches with changes of their children, or may have.
        self._behind: set[str] = set()
        #: The indices of targets, as this sink has found or left them.
        self._indices: dict[str, Index] = {}

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: what is durable is visible after the index's refresh interval."""
        return 0

    def close(self) -> None:
        """See `Sink.close`."""
        self._client, self._indices = None, {}

    def _open(self) -> OpenSearchClient:
        if self._client is None:
            client = OpenSearchClient.of(self._settings)
            state.create(client)
            if self._settings.on_refused_row is RefusedRow.QUARANTINE:
                quarantine.create(client)
            self._client = client
        return self._client

    def _forget(self) -> None:
        self._indices = {}

    def _done(self, batch: CellBatch, targets: Collection[str]) -> dict[str, int]:
        children = {link.child for link in self._links if link.parent in targets}
        found = state.read(self._open(), {*targets, *children}, batch.stream)
        done = {name: p.done for name, p in found.items()}
        self._behind = {
            link.parent
            for link in self._links
            if done.get(link.parent, NEVER) == NEVER
            or done.get(link.child, NEVER) > done.get(link.parent, NEVER)
        }
        return done

    def _attempt(self, batch: CellBatch, targets: Collection[str]) -> Attempt:
        return Attempt(
            self._open(),
            {name: self._indices[name] for name in targets},
            batch.id,
            uuid.uuid4().hex,
            self._settings.on_refused_row,
            self._settings.max_quarantined,
            {link.child: self._indices[link.child] for link in self._links if link.child in self._indices},
            self._settings.max_nested,
        )

    def _note(self, batch: CellBatch, attempt: Attempt, done: Mapping[str, int]) -> None:
        query, pipeline = batch.stream.query, batch.stream.pipeline
        progress = [Progress(n, query, pipeline, batch.id, last, attempt.epoch) for n, last in done.items()]
        state.write(attempt.client, progress)

    def _add_dependent(self, work: dict[str, list[TableBatch]], batch: CellBatch) -> None:
        # nothing is done with the targets of tables that are left out
        parked = {self._claims.router.target(TableId.parse(table)) for table in batch.left_out}
        for parent in {link.parent for link in self._links if link.child in work} - parked:
            work.setdefault(parent, [])

    def _stages(self, work: Work) -> Sequence[Sequence[str]]:
        last = {link.parent for link in self._links} & set(work)
        return [[name for name in work if name not in last], [name for name in work if name in last]]

    def _begin(self, attempt: Attempt, todo: Collection[str]) -> None:
        children = sorted({link.child for link in self._links if link.parent in todo} & set(attempt.children))
        for name in children:
            path = f"/{attempt.children[name].path}/_refresh"
            answer = attempt.client.request("POST", path, accepted=(404,))
            if answer.status == 404:
                raise index_gone(f"the children in `{attempt.children[name].alias}` cannot be read")
            if answer.body["_shards"]["failed"]:
                raise unavailable(f"a refresh of `{attempt.children[name].alias}` has failed on a shard")
        if children:
            failpoint("sink.nested")

    def _complete(
        self,
        batch: CellBatch,
        attempt: Attempt,
        name: str,
        work: Work,
        readings: Mapping[str, Sequence[Refresh]],
    ) -> None:
        children = [link.child for link in self._links if link.parent == name]
        if not children:
            return
        are_read = any(refresh.reread.done for child in children for refresh in readings.get(child, ()))
        if are_read or name in self._behind:
            parents.compose_all(attempt, name)
        else:
            parents.compose_affected(batch, work, attempt, name, self._parallelism)

    def _note_done(self, batch: CellBatch, attempt: Attempt, name: str) -> None:
        # a child is noted with its parents, so that one which lacks a batch is known to (`_behind`)
        if any(link.child == name and link.parent in attempt.indices for link in self._links):
            return
        children = {link.child for link in self._links if link.parent == name} & set(attempt.indices)
        self._note(batch, attempt, dict.fromkeys((name, *sorted(children)), batch.id))

    def _write_rows(self, batch: CellBatch, work: Work, attempt: Attempt) -> Outcome:
        return write_batch(batch, work, attempt, self._parallelism)

    def _remove(self, attempt: Attempt, name: str, refresh: Refresh) -> None:
        vanished.remove(attempt, self._indices[name], refresh)

    def _prepare(
        self, batch: CellBatch, name: str, parts: Sequence[TableBatch], readings: Sequence[Refresh]
    ) -> bool:
        client = self._open()
        for schema in (schema for part in parts for schema in part.schemas):
            require_names(schema)
        old = self._indices.get(name) or indices.find(client, name, batch.stream)
        if old is None and not parts:
            return False
        current = None if old is None else self._without_former_columns(batch, old, parts)
        schemas = [schema for part in parts for schema in part.schemas]
        needed = schema_for(name, schemas, current, batch.following) if schemas else current
        assert needed is not None
        if old is not None:
            _require_same_ids(old.schema, needed)
        routing = routing_column(self._settings, name, needed)
        if old is not None:
            require_same_routing(old, routing)
        nested, within = self._nesting(batch, name, needed)
        if old is not None:
            held = [*(link for link, _ in old.nested), *([old.within] if old.within else [])]
            links = [*(link for link, _ in nested), *([within] if within else [])]
            require_same_links(name, old.name, held, links)
        index = Index(
            name, batch.stream, needed, {} if old is None else old.readings, routing, nested, within
        )
        for refresh in readings:
            reading = ReadingStart(refresh.reread.id, version_of(batch.id, REREAD))
            index = indices.with_reading(index, refresh.name, reading)
        if old is None:
            batch.creates(name, self._claims.of(name))
            indices.create(client, index, self._settings.index_settings)
        elif index != old:
            indices.update(client, index, old)
        self._indices[name] = index
        return True

    def _nesting(
        self, batch: CellBatch, name: str, schema: TargetSchema
    ) -> tuple[tuple[tuple[Link, TargetSchema | None], ...], Link | None]:
        """What is nested in a target, and what the target is nested in.

        Raises:
            SinkError: it cannot be nested, or cannot have nested rows.
        """
        nested: list[tuple[Link, TargetSchema | None]] = []
        within = None
        for link in self._links:
            if name not in (link.parent, link.child):
                continue
            for table in self._claims.of(name):
                if self._claims.share(table):
                    raise shared_target(link, name)
            if link.child == name:
                within = link.of_child(schema.key)
                continue
            child = self._index(link.child, batch)
            of_parent = link.of_parent(schema.key)
            if child is not None:
                of_parent = of_parent.of_child(child.schema.key)
                require_same_types(of_parent, schema, child.schema)
            require_free_field(link, schema)
            nested.append((of_parent, None if child is None else child.schema))
        return tuple(nested), within

    def _index(self, name: str, batch: CellBatch) -> Index | None:
        """The index of another target, if there is one."""
        if name not in self._indices:
            found = indices.find(self._open(), name, batch.stream)
            if found is None:
                return None
            self._indices[name] = found
        return self._indices[name]

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
