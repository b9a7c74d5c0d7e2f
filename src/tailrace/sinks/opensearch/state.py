"""How far targets are: one document for each, in the index `tailrace_state`.

    begun    the last batch that something may have been written of
    done     the last batch that the target has as a whole
    epoch    the attempt that may write: tasks of all others stop (`versions`)

What must not be lost is in the index of the target itself (`indices`). Without these documents, a batch that
comes again is written again, to no effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.errors import TransientSinkError
from tailrace.sinks.base import StreamId
from tailrace.sinks.opensearch.bulk import action, send_all
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.names import alias_of
from tailrace.sinks.versions import NEVER

INDEX = "tailrace_state"


@dataclass(frozen=True)
class Progress:
    """How far a target is.

    Args:
        target: its name.
        stream: the id of the stream that owns it.
        pipeline: the stream's pipeline.
        begun: the last batch that something may have been written of.
        done: the last batch that the target has.
        epoch: identifies the attempt that may write.
    """

    target: str
    stream: str
    pipeline: str
    begun: int = NEVER
    done: int = NEVER
    epoch: str = ""


def create(client: OpenSearchClient) -> None:
    """Create the index, unless it exists."""
    body = {
        "settings": {"index": {"hidden": True, "number_of_shards": 1}},
        "mappings": {"dynamic": False, "properties": {}},
    }
    if client.request("GET", f"/{INDEX}", accepted=(404,)).status == 404:
        client.request("PUT", f"/{INDEX}", body, accepted=(400,))  # 400: another process has made it


def read(client: OpenSearchClient, targets: Iterable[str], stream: StreamId) -> dict[str, Progress]:
    """How far those targets are that have begun, by name; of another stream, none has."""
    by_id = {alias_of(target): target for target in targets}
    if not by_id:
        return {}
    answer = client.request("POST", f"/{INDEX}/_mget", {"ids": list(by_id)}, accepted=(404,))
    found = {}
    for doc in answer.body.get("docs", []):
        source: Mapping[str, Any] = doc.get("_source") or {}
        if doc.get("found") and source["stream"] == stream.query:
            found[by_id[doc["_id"]]] = Progress(**source)
    return found


def write(client: OpenSearchClient, progress: Iterable[Progress]) -> None:
    """Note how far targets are."""
    lines = [
        f"{action('index', alias_of(p.target))}\n{json.dumps(asdict(p), ensure_ascii=False)}\n".encode()
        for p in progress
    ]
    send_all(client, INDEX, lines)


def require_epoch(client: OpenSearchClient, target: str, epoch: str) -> None:
    """Check that no other attempt has begun.

    Raises:
        TransientSinkError: one has.
    """
    answer = client.request("POST", f"/{INDEX}/_mget", {"ids": [alias_of(target)]})
    (doc,) = answer.body["docs"]
    if doc.get("_source", {}).get("epoch") != epoch:
        raise TransientSinkError(
            f"target `{target}` is being written by another run of the stream",
            hint="if two processes run the pipeline, stop one of them",
            code="TR-7010",
        )
