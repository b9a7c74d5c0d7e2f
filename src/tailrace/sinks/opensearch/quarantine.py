"""Refused rows in the index `tailrace_quarantine`, for all streams.

A row's document has an id made of stream, target, batch and key: a batch that comes again puts it there once.
Rows are put aside by the task that meets them, before it notes anything of the batch.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.sinks import OpenSearchSettings
from tailrace.sinks.opensearch.bulk import action, send_all
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.quarantine import QuarantinedRow, too_many

INDEX = "tailrace_quarantine"
_KEEP_ALIVE = "5m"
#: Rows of one page of a search.
_PAGE = 500
_FIELDS = {name: {"type": "keyword"} for name in ("stream", "target", "table")} | {"batch": {"type": "long"}}


def create(client: OpenSearchClient) -> None:
    """Create the index, unless it exists."""
    body = {
        "settings": {"index": {"hidden": True, "number_of_shards": 1}},
        "mappings": {"dynamic": False, "properties": _FIELDS},
    }
    if client.request("GET", f"/{INDEX}", accepted=(404,)).status == 404:
        client.request("PUT", f"/{INDEX}", body, accepted=(400,))  # 400: another process has made it


def put(client: OpenSearchClient, stream: str, rows: Mapping[str, QuarantinedRow], most: int) -> None:
    """Put rows aside.

    Args:
        client: the cluster.
        stream: the stream's id.
        rows: rows of one target and batch, by the ids of their documents.
        most: how many rows of a source table the quarantine may have of a target.

    Raises:
        SinkError: a table has more rows.
    """
    listed = {_id(stream, row, document): row for document, row in rows.items()}
    client.request("POST", f"/{INDEX}/_refresh")
    for table, count in sorted(Counter(row.table for row in rows.values()).items()):
        one = next(row for row in rows.values() if row.table == table)
        others: dict[str, Any] = {
            "filter": [
                {"term": {"stream": stream}},
                {"term": {"target": one.target}},
                {"term": {"table": table}},
            ],
            "must_not": {"ids": {"values": list(listed)}},
        }
        found = client.request("POST", f"/{INDEX}/_count", {"query": {"bool": others}})
        if int(found.body["count"]) + count > most:
            raise too_many(table, most, one.reason)
    lines = []
    for id_, row in listed.items():
        noted = {"stream": stream, "target": row.target, "table": row.table, "batch": row.batch}
        text = json.dumps({**noted, "row": row.to_json()}, ensure_ascii=False)
        lines.append(f"{action('index', id_)}\n{text}\n".encode())
    send_all(client, INDEX, lines)


@dataclass(frozen=True)
class OpenSearchQuarantine:
    """See `SinkQuarantine`.

    Args:
        settings: the sink's.
        stream: the stream's id.
    """

    settings: OpenSearchSettings
    stream: str

    def rows(self) -> list[QuarantinedRow]:
        """See `SinkQuarantine`."""
        found = [QuarantinedRow.from_json(text) for text in self._texts()]
        return sorted(found, key=lambda row: (row.table, row.batch, row.position))

    def clear(self, table: str) -> int:
        """See `SinkQuarantine`."""
        client = OpenSearchClient.of(self.settings)
        if client.request("POST", f"/{INDEX}/_refresh", accepted=(404,)).status == 404:
            return 0
        query = {"bool": {"filter": [{"term": {"stream": self.stream}}, {"term": {"table": table}}]}}
        answer = client.request("POST", f"/{INDEX}/_delete_by_query?refresh=true", {"query": query})
        return int(answer.body["deleted"])

    def _texts(self) -> Iterator[str]:
        client = OpenSearchClient.of(self.settings)
        if client.request("POST", f"/{INDEX}/_refresh", accepted=(404,)).status == 404:
            return
        body = {"size": _PAGE, "query": {"term": {"stream": self.stream}}, "sort": ["_doc"]}
        answer = client.request("POST", f"/{INDEX}/_search?scroll={_KEEP_ALIVE}", body)
        scroll = answer.body["_scroll_id"]
        try:
            while hits := answer.body["hits"]["hits"]:
                yield from (hit["_source"]["row"] for hit in hits)
                position = {"scroll": _KEEP_ALIVE, "scroll_id": scroll}
                answer = client.request("POST", "/_search/scroll", position)
                scroll = answer.body["_scroll_id"]
        finally:
            client.request("DELETE", "/_search/scroll", {"scroll_id": [scroll]}, accepted=(404,))


def _id(stream: str, row: QuarantinedRow, document: str) -> str:
    of = json.dumps([stream, row.target, row.batch, document])
    return hashlib.sha256(of.encode()).hexdigest()
