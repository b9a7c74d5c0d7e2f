"""Rows that a table that was read again no longer has: their documents are deleted, or marked.

Every row that the table has was written since the reading began, so its document has at least the version
with which the reading began (`indices`). All others are of rows that are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.model.change import REREAD
from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.opensearch.bulk import portions, send
from tailrace.sinks.opensearch.client import ClusterAnswer, OpenSearchClient, unavailable
from tailrace.sinks.opensearch.documents import json_value
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.mapping import VERSION
from tailrace.sinks.opensearch.writer import Attempt
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versions import version_of

#: Documents of one page of a search, with the whole document or without, and how long a page may take.
_WHOLE_PAGE, _PAGE, _KEEP_ALIVE = 50, 5000, "5m"


@dataclass(frozen=True)
class _Document:
    id: str
    routing: str | None
    source: Mapping[str, Any]


def remove(attempt: Attempt, index: Index, refresh: Refresh) -> None:
    """Delete or mark the documents of rows that a table no longer has.

    Args:
        attempt: the attempt at the batch that ends the reading.
        index: the target's index.
        refresh: the reading.

    Raises:
        SinkError: a document is refused.
        TransientSinkError: the cluster does not answer.
    """
    version = version_of(attempt.batch, REREAD)
    client = attempt.client
    marks = None if refresh.marks is None else _Marks.of(refresh.marks, index)
    if marks is not None and not marks.gone:
        return
    client.request("POST", f"/{index.path}/_refresh")
    for page in _pages(attempt, index, refresh):
        lines, marked = [], []
        for document in page:
            if refresh.shard is not None and document.source.get(refresh.shard) != refresh.name:
                continue
            if marks is None:
                lines.append(_line("delete", document, version))
            elif not marks.are_in(document.source):
                marked.append(document)
        composed = attempt.composer(index.target).fields_of_sources([document.source for document in marked])
        for document, fields in zip(marked, composed, strict=True):
            assert marks is not None
            source = {**document.source, **marks.gone, **fields, VERSION: version}
            text = json.dumps(source, ensure_ascii=False).encode()
            lines.append(_line("index", document, version) + text + b"\n")
        for portion in portions(pa.array(lines, pa.binary())):
            for refused in send(client, index.path, portion):
                raise SinkError(
                    f"a document of target `{index.target}` whose row is gone cannot be removed",
                    f"HTTP {refused.status}: {refused.kind}",
                    "remove the cause",
                    code="TR-7303",
                )


def _pages(attempt: Attempt, index: Index, refresh: Refresh) -> Iterator[Sequence[_Document]]:
    """The documents with a lower version than the reading's first, or none."""
    client, first = attempt.client, index.readings[refresh.name].first
    needed = True if refresh.marks else [refresh.shard] if refresh.shard else False
    body = {
        "size": _PAGE if refresh.marks is None else _WHOLE_PAGE,
        "query": {"bool": {"must_not": {"range": {VERSION: {"gte": first}}}}},
        "sort": ["_doc"],
        "_source": needed,
    }
    for hits in documents_of(client, index, body):
        yield [_Document(hit["_id"], hit.get("_routing"), hit.get("_source", {})) for hit in hits]


def documents_of(
    client: OpenSearchClient, index: Index, body: Mapping[str, Any]
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """What a search finds, page by page, on primary shards: with segment replication others may be behind.

    Args:
        client: the cluster.
        index: the index.
        body: the search.

    Raises:
        TransientSinkError: the cluster does not answer.
    """
    query = f"scroll={_KEEP_ALIVE}&allow_partial_search_results=false&preference=_primary"
    answer = client.request("POST", f"/{index.path}/_search?{query}", body)
    scroll = answer.body["_scroll_id"]
    try:
        while hits := answer.body["hits"]["hits"]:
            yield hits
            position = {"scroll": _KEEP_ALIVE, "scroll_id": scroll}
            answer = client.request("POST", "/_search/scroll", position)
            _require_all_shards(index, answer)
            scroll = answer.body["_scroll_id"]
    finally:
        client.request("DELETE", "/_search/scroll", {"scroll_id": [scroll]}, accepted=(404,))


def _require_all_shards(index: Index, answer: ClusterAnswer) -> None:
    """Raises TransientSinkError if an answer lacks the documents of a shard."""
    if answer.body["_shards"]["failed"]:
        raise unavailable(f"a search in `{index.alias}` has failed on a shard")


@dataclass(frozen=True)
class _Marks:
    """How documents are marked whose rows are gone, with values as documents have them.

    Args:
        gone: the values of fields that mark a document.
        there: by field that tells documents apart, its values in those of rows that exist.
    """

    gone: Mapping[str, Any]
    there: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, marks: SoftDelete, index: Index) -> _Marks:
        held = {column.name.lower(): column for column in index.schema.arrow}

        def value(name: str, of: object) -> Any:
            return json_value(of, held[name.lower()].type)

        def names(of: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
            return ((name, held[name.lower()].name) for name in of)

        telling = marks.of_existing
        return cls(
            {field: value(name, marks.gone[name]) for name, field in names(marks.gone)},
            {field: [value(name, of) for of in telling[name]] for name, field in names(telling)},
        )

    def are_in(self, source: Mapping[str, Any]) -> bool:
        """Whether a document is marked already."""
        return bool(self.there) and all(source.get(name) not in of for name, of in self.there.items())


def _line(operation: str, document: _Document, version: int) -> bytes:
    action = {"_id": document.id, "version": version, "version_type": "external"}
    if document.routing is not None:
        action["routing"] = document.routing
    return json.dumps({operation: action}, ensure_ascii=False).encode() + b"\n"
