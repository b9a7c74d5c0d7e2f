"""Composes the documents of parents: their children as they are in the child's index, in requests for many.

Children are written, and visible, before the first parent of a batch is composed (`sink`). They are searched
on primary shards: with segment replication, the others may be behind a refresh.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.sinks.bounded_http import AnswerTooLargeError
from tailrace.sinks.opensearch.bulk import index_gone
from tailrace.sinks.opensearch.client import OpenSearchClient, unavailable
from tailrace.sinks.opensearch.documents import references
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.mapping import PARENT, VERSION
from tailrace.sinks.opensearch.sources import rows_of

#: Most parents that are composed at once, and most documents that a search may find (`max_result_window`).
PARENTS, _FOUND = 500, 10_000
_FIELDS = "hits.total.value,hits.hits._source,_shards.failed,timed_out,error"
_OWN = (VERSION, PARENT)


@dataclass(frozen=True)
class Composer:
    """Composes the documents of a parent.

    Args:
        client: the cluster.
        index: the parent's index.
        children: the indices of its children, as far as there are any.
        most: most children of one table that a document may have.
    """

    client: OpenSearchClient
    index: Index
    children: Mapping[str, Index]
    most: int

    def fields(self, rows: pa.RecordBatch) -> dict[str, pa.StringArray]:
        """The fields of parents with their children, as JSON texts.

        Args:
            rows: the parents' keys, among other columns.

        Raises:
            SinkError: a parent has too many children.
            TransientSinkError: the cluster does not answer.
        """
        composed = {}
        for link, _ in self.index.nested:
            child = self.children.get(link.child)
            refs = references(rows, link.key).to_pylist()
            found = {} if child is None else self._children(child, list(dict.fromkeys(refs)))
            texts = [json.dumps(found.get(ref, []), ensure_ascii=False) for ref in refs]
            composed[link.field] = pa.array(texts, pa.string())
        return composed

    def fields_of_sources(self, sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The same for documents, as values."""
        if not self.index.nested:
            return [{} for _ in sources]
        columns = self.index.schema.arrow
        keys = pa.schema([columns.field(name) for name in self.index.schema.key])
        composed = self.fields(rows_of(sources, keys, self.index.target))
        return [
            {field: json.loads(texts[number].as_py()) for field, texts in composed.items()}
            for number in range(len(sources))
        ]

    def _children(self, child: Index, parents: list[str]) -> dict[str, list[dict[str, Any]]]:
        """The children of each parent that has some, in the order of their keys."""
        found: dict[str, list[dict[str, Any]]] = {}
        for source in self._sources(child, parents):
            found.setdefault(source[PARENT], []).append(source)
        for rows in found.values():
            if len(rows) > self.most:
                raise self._too_many(child)
            rows.sort(key=lambda row: [_in_order(row[name]) for name in child.schema.key])
        return {
            parent: [{name: v for name, v in row.items() if name not in _OWN} for row in rows]
            for parent, rows in found.items()
        }

    def _sources(self, child: Index, parents: list[str]) -> list[dict[str, Any]]:
        if not parents:
            return []
        body = {
            "size": _FOUND,
            "query": {"terms": {PARENT: parents}},
            "sort": ["_doc"],
            "track_total_hits": True,
        }
        query = f"allow_partial_search_results=false&preference=_primary&filter_path={_FIELDS}"
        too_large = False
        try:
            answer = self.client.request("POST", f"/{child.path}/_search?{query}", body, accepted=(404,))
        except AnswerTooLargeError:
            if len(parents) == 1:
                raise
            too_large = True
        if not too_large:
            if answer.status == 404:
                raise index_gone(f"the children in `{child.alias}` cannot be read")
            if answer.body.get("timed_out") or answer.body["_shards"]["failed"]:
                raise unavailable(f"a search in `{child.alias}` has failed on a shard")
            if answer.body["hits"]["total"]["value"] <= _FOUND:
                return [hit["_source"] for hit in answer.body["hits"].get("hits", ())]
            if len(parents) == 1:
                raise self._too_many(child)
        middle = len(parents) // 2
        return self._sources(child, parents[:middle]) + self._sources(child, parents[middle:])

    def _too_many(self, child: Index) -> SinkError:
        return SinkError(
            f"a row of target `{self.index.target}` has too many rows of `{child.target}` to nest",
            f"needed at most {self.most} (`sink.max-nested`)",
            "raise `sink.max-nested`; or leave the table out of `sink.nested`, and search its own index",
            code="TR-7325",
        )


def _in_order(value: Any) -> tuple[bool, bool, Any]:
    """A value that can be compared with others of its column: NULL, and numbers that are texts (NaN), too."""
    return value is not None, isinstance(value, str), value
