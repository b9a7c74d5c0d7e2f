"""Documents of OpenSearch: the targets of tests, and a row of the contract suite."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.config.sinks import OpenSearchSettings
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.mapping import PARENT, VERSION
from tailrace.sinks.opensearch.names import alias_of, quoted
from tailrace.sinks.opensearch.sink import OpenSearchSink
from tailrace.sinks.replica.target_schema import TargetSchema
from tests.support.sinks.case import Row, SinkCase


@dataclass(frozen=True)
class Cluster:
    """A cluster without indices.

    Args:
        url: its address.
    """

    url: str

    @property
    def settings(self) -> OpenSearchSettings:
        """Settings of a sink that writes there."""
        return OpenSearchSettings(self.url, index_settings={"number_of_replicas": "0"})

    @property
    def client(self) -> OpenSearchClient:
        return OpenSearchClient((self.url,))

    def documents(self, name: str) -> dict[str, dict[str, Any]]:
        """The sources of a target's documents, by id."""
        alias = quoted(alias_of(name))
        self.client.request("POST", f"/{alias}/_refresh")
        answer = self.client.request("POST", f"/{alias}/_search", {"size": 10_000, "version": True})
        hits = answer.body["hits"]["hits"]
        assert all(hit["_version"] == hit["_source"][VERSION] for hit in hits)
        return {hit["_id"]: {k: v for k, v in hit["_source"].items() if k != VERSION} for hit in hits}

    def hits(self, name: str) -> list[dict[str, Any]]:
        """A target's documents as searches find them, with their shards, versions and routings, by id."""
        alias = quoted(alias_of(name))
        self.client.request("POST", f"/{alias}/_refresh")
        body = {"size": 10_000, "version": True, "explain": True}
        answer = self.client.request("POST", f"/{alias}/_search", body)
        return sorted(answer.body["hits"]["hits"], key=lambda hit: hit["_id"])

    def by_id(self, name: str) -> dict[int, dict[str, Any]]:
        """The sources of a target's documents, by their column `id`, which no two have in common."""
        return {key[0]: row for key, row in self.by_key(name, ("id",)).items()}

    def by_key(self, name: str, key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The sources of a target's documents, by columns that no two have in common."""
        hits = self.hits(name)
        found = {tuple(hit["_source"][column] for column in key): hit["_source"] for hit in hits}
        assert len(found) == len(hits)
        own = (VERSION, PARENT)
        return {of: {k: v for k, v in row.items() if k not in own} for of, row in found.items()}

    def rows(self, name: str) -> list[Row]:
        """A target's rows, with values as the contract suite has them."""
        return [
            {column: _as_python(column, value) for column, value in source.items()}
            for source in self.documents(name).values()
        ]

    def typed_rows(self, name: str) -> list[Row]:
        """A target's rows, with values of the types that the sink has noted."""
        answer = self.client.request("GET", f"/{quoted(alias_of(name))}", accepted=(404,))
        if answer.status == 404:
            return []
        (index,) = answer.body.values()
        noted = json.dumps(index["mappings"]["_meta"]["tailrace"]["schema"])
        types = {field.name: field.type for field in TargetSchema.from_json(name, noted).arrow}
        return [
            {column: _of_type(types[column], value) for column, value in source.items()}
            for source in self.documents(name).values()
        ]

    def drop(self, name: str) -> None:
        """Delete the index of a target."""
        self.client.request("DELETE", f"/{quoted(alias_of(name))}-tailrace")

    def clear(self) -> None:
        """Delete all indices."""
        found = self.client.request("GET", "/_all/_alias?expand_wildcards=all").body
        for index in found:
            self.client.request("DELETE", f"/{quoted(index)}")


def _as_python(column: str, value: Any) -> Any:
    """A value of the contract suite's columns."""
    if value is None:
        return None
    match column:
        case "price":
            return Decimal(value)
        case "at":
            return datetime.fromisoformat(value)
        case "data":
            return base64.b64decode(value)
    return value


def _of_type(type_: pa.DataType, value: Any) -> Any:
    """A value of a document as Python has it."""
    if value is None:
        return None
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    return base64.b64decode(value) if pa.types.is_binary(type_) else value


def cluster(request: Any) -> Cluster:
    """A cluster without indices, cleared at the end of the test."""
    found = Cluster(request.getfixturevalue("opensearch").url)
    found.clear()
    request.addfinalizer(found.clear)
    return found


def opensearch(request: Any) -> SinkCase:
    target = cluster(request)
    return SinkCase(
        lambda router: OpenSearchSink(target.settings, router),
        target.drop,
        rows=target.rows,
        takes_parts=True,
    )
