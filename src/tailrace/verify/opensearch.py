"""The target side of OpenSearch: an index as a batch left it, at a point in time.

A point in time keeps what a refreshed index has, whatever is written later. It is opened between two batches
(`verify.moments`), and searched page by page, some slices of it at the same time, until the comparison ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tailrace.config.sinks import OpenSearchSettings
from tailrace.errors import SinkError
from tailrace.model.table import TableSchema
from tailrace.sinks.bounded_http import AnswerTooLargeError
from tailrace.sinks.opensearch import indices, state
from tailrace.sinks.opensearch.client import OpenSearchClient, unavailable
from tailrace.sinks.opensearch.documents import routings_of
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.sources import rows_of
from tailrace.sinks.opensearch.state import Progress
from tailrace.verify.checksum import Shards
from tailrace.verify.moments import keep_between_batches
from tailrace.verify.portion import KeyRanges
from tailrace.verify.streamed import Rows, StreamedTarget

#: How long a point in time is kept after its last search: the source may take long to read.
_KEEP_ALIVE = "1h"
#: Documents of a page.
_PAGE = 1000


@dataclass(frozen=True)
class OpenSearchTarget(StreamedTarget):
    """An index at a point in time.

    Args:
        client: the cluster.
        index: the target's index.
        version: the last batch written to it.
        point: the point in time.
        slices: in how many parts it is searched at the same time.
        shards: the rows that count; None: all.
    """

    client: OpenSearchClient
    index: Index
    version: int
    point: str
    slices: int
    shards: Shards | None = None

    @property
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""
        return self.index.schema.arrow

    @property
    def readers(self) -> int:
        """See StreamedTarget."""
        return self.slices

    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:  # noqa: ARG002 - its rows are filtered
        return [partial(self._slice, names, number) for number in range(self.slices)]

    def _slice(self, names: Sequence[str], number: int) -> Rows:
        schema = self._select(names)
        for sources in self._pages(number):
            rows = rows_of(sources, schema, self.index.target)
            yield rows if self.shards is None else self.shards.of(rows)

    def _pages(self, number: int) -> Iterator[list[dict[str, Any]]]:
        size, after = _PAGE, None
        while True:
            body: dict[str, Any] = {
                "size": size,
                "pit": {"id": self.point, "keep_alive": _KEEP_ALIVE},
                "sort": [{"_shard_doc": "asc"}],
                "track_total_hits": False,
            }
            if self.slices > 1:
                body["slice"] = {"id": number, "max": self.slices}
            if after is not None:
                body["search_after"] = after
            fields = "_shards,hits.hits._source,hits.hits._routing,hits.hits.sort"
            query = f"allow_partial_search_results=false&filter_path={fields}"
            try:
                answer = self.client.request("POST", f"/_search?{query}", body)
            except AnswerTooLargeError:
                if size == 1:
                    raise
                size //= 2
                continue
            if answer.body["_shards"]["failed"]:
                raise unavailable(f"a search in `{self.index.alias}` has failed on a shard")
            hits = answer.body.get("hits", {}).get("hits", [])
            if not hits:
                return
            sources = [hit["_source"] for hit in hits]
            if self.index.routing is not None:
                self._require_routing(self.index.routing, sources, [hit.get("_routing") for hit in hits])
            yield sources
            after = hits[-1]["sort"]

    def _require_routing(
        self, column: str, sources: Sequence[Mapping[str, Any]], found: Sequence[str | None]
    ) -> None:
        """Refuse documents that the sink would not find.

        Raises:
            SinkError: one has another routing than its row.
        """
        rows = rows_of(sources, pa.schema([self.columns.field(column)]), self.index.target)
        if routings_of(rows, column).to_pylist() != found:
            raise SinkError(
                f"a document of target `{self.index.target}` has a routing of its own",
                f"it is not stored by its value of column `{column}`, so the sink does not find it",
                "somebody else has written it: have its table read again: tailrace resync PIPELINE.YAML"
                " TABLE",
                code="TR-7322",
            )


@dataclass(frozen=True)
class _Points:
    """Points in time.

    Args:
        client: the cluster.
        ids: their ids, by target.
    """

    client: OpenSearchClient
    ids: dict[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of them."""
        if self.ids:
            body = {"pit_id": list(self.ids.values())}
            self.client.request("DELETE", "/_search/point_in_time", body, accepted=(404,))
            self.ids.clear()


@dataclass(frozen=True)
class OpenSearchTargets:
    """The indices of a sink at a moment between two batches.

    Args:
        client: the cluster.
        indices: the indices, by target.
        points: the points in time.
        progress: how far they were, by target.
        connections: how many searches there are at the same time.
    """

    client: OpenSearchClient
    indices: Mapping[str, Index]
    points: _Points
    progress: Mapping[str, Progress]
    connections: int

    @classmethod
    def open(
        cls,
        settings: OpenSearchSettings,
        last: Callable[[], tuple[int, Collection[str]]],
        patience_s: float,
        connections: int,
    ) -> tuple[OpenSearchTargets, int]:
        """Open the indices that a sink writes; returns their batch, too.

        Args:
            settings: the sink's settings.
            last: asks for the last committed batch, and the targets of the stream then.
            patience_s: how long to wait for a moment between two batches.
            connections: how many searches there are at the same time.

        Raises:
            StateError: the stream has been writing them all the time.
        """
        client = OpenSearchClient.of(settings)
        held: dict[str, Index] = {}

        def notes(targets: Collection[str]) -> dict[str, Progress]:
            held.clear()
            found: dict[str, Progress] = {}
            for name in targets:
                index = indices.noted(client, name)
                if index is not None:
                    held[name] = index
                    found |= state.read(client, [name], index.stream)
            return found

        def keep(found: Mapping[str, Progress]) -> _Points:
            points = _Points(client)
            for name in found:
                client.request("POST", f"/{held[name].path}/_refresh")
                path = f"/{held[name].path}/_search/point_in_time?keep_alive={_KEEP_ALIVE}"
                points.ids[name] = client.request("POST", path).body["pit_id"]
            return points

        points, progress, batch = keep_between_batches(last, notes, keep, patience_s)
        return cls(client, dict(held), points, progress, connections), batch

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> OpenSearchTarget | None:  # noqa: ARG002 - has its own
        """See ComparedTargets."""
        if name not in self.points.ids:
            return None
        done = self.progress[name].done
        point = self.points.ids[name]
        return OpenSearchTarget(self.client, self.indices[name], done, point, self.connections, shards)

    def release(self) -> None:
        """See ComparedTargets: the points are still needed where rows differ."""

    def close(self) -> None:
        """See ComparedTargets."""
        self.points.close()
