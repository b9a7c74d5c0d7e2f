"""Parents whose children have changed: their documents are composed anew.

    tasks      those whose children the batch has changed, by the keys of the changes
    driver   all of them, once a child has been read again: its index may have lost rows that they still have

A document that has a version of this batch is left alone: it has been composed with the same children. Each
other one gets this batch's version, whether its children differ or not, so that no late task can compose it
with later ones. `_tailrace_version` stays that of its own row (`vanished`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tailrace.errors import TailraceError, concerning, from_json
from tailrace.failpoints import failpoint
from tailrace.model.cell import decode_cell
from tailrace.model.change import LOG, SNAPSHOT
from tailrace.sinks.base import CellBatch
from tailrace.sinks.opensearch.bulk import portions, send
from tailrace.sinks.opensearch.documents import references, routings_of
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.nested import Link
from tailrace.sinks.opensearch.vanished import documents_of
from tailrace.sinks.opensearch.writer import Attempt, Writer, read_documents, refused_document
from tailrace.sinks.replica.changes import changed_keys
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.versions import version_of
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

Batches = Iterator[pa.RecordBatch]
_KEYS_COLUMNS = "id string, routing string"
_KEYS = pa.schema([pa.field(name, pa.string()) for name in ("id", "routing")])
_ERRORS_COLUMNS = "error string"
_ERRORS = pa.schema([pa.field("error", pa.string())])
#: Most documents that are read, and composed, at once.
_DOCUMENTS = 100


@dataclass(frozen=True)
class _Document:
    id: str
    routing: str | None
    source: Mapping[str, Any]


def compose_affected(batch: CellBatch, work: Work, attempt: Attempt, target: str, parallelism: int) -> None:
    """Compose the documents of a target whose children a batch has changed.

    Args:
        batch: the batch.
        work: all that it has, by target.
        attempt: the attempt at the batch.
        target: the parents' target.
        parallelism: how many tasks write at the same time.

    Raises:
        SinkError: a document is refused, or has too many children.
        TransientSinkError: the cluster does not answer.
    """
    index = attempt.indices[target]
    links = {
        str(part.table): (link, attempt.children[link.child].schema)
        for link, _ in index.nested
        for part in work.get(link.child, ())
    }
    if not links:
        return
    cells = batch.frame.where(f.col("table").isin(sorted(links))).select("table", "cell")
    keys = map_in_arrow(cells, _keys_of_parents(index, links), _KEYS_COLUMNS)
    apart = keys.repartition(parallelism, f.col("id")).dropDuplicates(["id"])
    try:
        for row in map_in_arrow(apart, _compose(attempt, target), _ERRORS_COLUMNS).collect():
            raise from_json(row["error"])
    except PySparkException as error:
        raise parse_error(str(error)) or error from error


def compose_all(attempt: Attempt, target: str) -> None:
    """Compose all documents of a target that the batch has not written; see `compose_affected`."""
    index, writer = attempt.indices[target], Writer(attempt, target)
    query: dict[str, Any] = {
        "query": {"match_all": {}},
        "_source": True,
        "size": _DOCUMENTS,
        "version": True,
        "sort": ["_doc"],
    }
    attempt.client.request("POST", f"/{index.path}/_refresh")
    for hits in documents_of(attempt.client, index, query):
        old = [hit for hit in hits if hit["_version"] < version_of(attempt.batch, SNAPSHOT)]
        _write(writer, [_Document(hit["_id"], hit.get("_routing"), hit["_source"]) for hit in old])


def _keys_of_parents(index: Index, links: Mapping[str, tuple[Link, Any]]) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) of children to rows of _KEYS."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                link, schema = links[name.as_py()]
                changes = decode_cell(cell.as_buffer())
                with concerning(changes.table.id, sink=True):
                    keys = changed_keys(changes, schema)
                columns = dict(zip(link.key, link.columns, strict=True))
                arrays = [keys.column(columns[key]) for key in index.schema.key]
                rows = pa.Table.from_batches([pa.RecordBatch.from_arrays(arrays, list(index.schema.key))])
                for part in rows.drop_null().group_by(list(index.schema.key)).aggregate([]).to_batches():
                    ids = references(part, index.schema.key)
                    nothing = pa.nulls(len(part), pa.string())
                    routings = nothing if index.routing is None else routings_of(part, index.routing)
                    yield pa.RecordBatch.from_arrays([ids, routings], schema=_KEYS)

    return task


def _compose(attempt: Attempt, target: str) -> Callable[[Batches], Batches]:
    """A task: rows of _KEYS to rows of _ERRORS."""

    def task(batches: Batches) -> Batches:
        writer, routed = Writer(attempt, target), attempt.indices[target].routing is not None
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, _DOCUMENTS):
                    ids, routings = (c.to_pylist() for c in batch.slice(start, _DOCUMENTS).columns)
                    _write(writer, list(_existing(attempt, writer.index, ids, routings if routed else None)))
        except TailraceError as error:
            if error.retryable:
                raise
            yield pa.RecordBatch.from_pylist([{"error": error.to_json()}], schema=_ERRORS)
            return
        failpoint("sink.task")
        yield pa.RecordBatch.from_pylist([], schema=_ERRORS)

    return task


def _existing(
    attempt: Attempt, index: Index, ids: Sequence[str], routings: Sequence[str] | None
) -> Iterator[_Document]:
    """Documents that are there, and that the batch has not written."""
    found = read_documents(attempt.client, index, ids, routings)
    named: Sequence[str | None] = [None] * len(ids) if routings is None else routings
    for id_, routing, document in zip(ids, named, found, strict=True):
        if document["found"] and document["_version"] < version_of(attempt.batch, SNAPSHOT):
            yield _Document(id_, routing, document["_source"])


def _write(writer: Writer, documents: Sequence[_Document]) -> None:
    """Write documents with their children as they are now."""
    attempt, index = writer.attempt, writer.index
    version = version_of(attempt.batch, LOG)
    composed = attempt.composer(index.target).fields_of_sources([d.source for d in documents])
    lines = []
    for document, fields in zip(documents, composed, strict=True):
        action = {"_id": document.id, "version": version, "version_type": "external"}
        if document.routing is not None:
            action["routing"] = document.routing
        pair = (
            json.dumps(line, ensure_ascii=False)
            for line in ({"index": action}, {**document.source, **fields})
        )
        lines.append("\n".join((*pair, "")).encode())
    for portion in portions(pa.array(lines, pa.binary())):
        for refused in send(attempt.client, index.path, portion, before=writer.require_epoch):
            raise refused_document(index, refused)
