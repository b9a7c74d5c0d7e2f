"""Routing: a column of a target's key decides the shards of its documents. Pure.

OpenSearch finds a document by its id *and* its routing: the same id under another routing may be another
document. So the routing of a key must never change, or the sink would have to delete the former document, of
which the log need not tell the routing (`binlog_row_image=MINIMAL`, REPLICA IDENTITY DEFAULT). A column of
the key cannot change for a key: where it changes, the stream has a delete of the old key and a create of the
new one. All other columns are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.sinks import OpenSearchSettings
from tailrace.errors import SinkError
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.replica.target_schema import TargetSchema


def routing_column(settings: OpenSearchSettings, target: str, schema: TargetSchema) -> str | None:
    """The column that decides the shards of a target's documents; None: their ids do.

    Raises:
        SinkError: it is no column of the key.
    """
    return key_column(settings, target, schema.key)


def key_column(settings: OpenSearchSettings, target: str, key: Sequence[str]) -> str | None:
    """`routing_column`, by the columns of the key."""
    column = settings.routing.get(target)
    if column is None:
        return None
    for name in key:
        if name.lower() == column.lower():
            return name
    raise SinkError(
        f"target `{target}` cannot be routed by column `{column}`",
        f"the key is ({', '.join(key)}). A document whose routing changed would stay on its former shard",
        "route by a column of the key at `sink.routing`; or make the column a part of the key:"
        f" `primary-keys: [{', '.join((column, *key))}]` in a transform of the table",
        code="TR-7320",
    )


def require_same_routing(index: Index, routing: str | None) -> None:
    """Refuse a routing other than that by which an index has been written.

    Raises:
        SinkError: it is another one.
    """
    if (index.routing or "").lower() == (routing or "").lower():
        return
    found, needed = (f"`{column}`" if column else "their ids" for column in (index.routing, routing))
    raise SinkError(
        f"the documents of target `{index.target}` have another routing",
        f"they are stored by {found}; `sink.routing` says {needed}: they would not be found",
        f"set `sink.routing` back; or delete the index `{index.name}` and read the table again: tailrace"
        " resync PIPELINE.YAML TABLE",
        code="TR-7321",
    )
