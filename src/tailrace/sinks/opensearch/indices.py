"""The index of a target: whose it is, and which columns it has.

    <target>              an alias, for readers and for our writes: its name in lower case
    <target>-tailrace     the index

Writes go through the alias with `require_alias`, so OpenSearch never makes an index of its own accord in
place of one that was deleted. What we know of the index is in its mapping (`_meta`), and goes with it:

    stream      the stream that owns it; an index of another stream, or of nobody, is not touched
    schema      the columns and the key of its documents
    routing     the column of the key that decides a document's shard, if one does
    nested      the tables whose rows its documents have nested, and their columns
    within      the table whose documents have its rows nested
    readings    by table that is read again: the reading's id, and the version that it began with
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError, StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.opensearch.client import ClusterAnswer, OpenSearchClient
from tailrace.sinks.opensearch.mapping import PARENT, VERSION, fields_of, most_fields, settings_of
from tailrace.sinks.opensearch.names import alias_of, index_of, quoted
from tailrace.sinks.opensearch.nested import Link
from tailrace.sinks.opensearch.versions import LEAST_MEMORY_S
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import incompatible
from tailrace.sinks.versions import ReadingStart

#: The format of what the mapping notes: 2 if there is a routing, by which documents must be written; 3 if
#: documents are nested in others, or have nested ones.
_PLAIN, _ROUTED, _NESTED = 1, 2, 3
_DURATION = re.compile(r"(\d+)(d|h|m|s|ms|micros|nanos)")
_UNITS_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "micros": 1e-6, "nanos": 1e-9}


@dataclass(frozen=True)
class Index:
    """A target's index.

    Args:
        target: the target's name.
        stream: the stream that owns it.
        schema: the columns and the key of its documents.
        readings: its tables that are read again, or were at last.
        routing: the column of the key that decides a document's shard; None: its id does.
        nested: the tables whose rows its documents have nested, with their columns as far as there are any.
        within: the table whose documents have its rows nested.
    """

    target: str
    stream: StreamId
    schema: TargetSchema
    readings: Mapping[str, ReadingStart] = field(default_factory=dict)
    routing: str | None = None
    nested: tuple[tuple[Link, TargetSchema | None], ...] = ()
    within: Link | None = None

    @property
    def alias(self) -> str:
        """The name to write to, and to read from."""
        return alias_of(self.target)

    @property
    def path(self) -> str:
        """The alias in a request's path."""
        return quoted(self.alias)

    @property
    def name(self) -> str:
        """The index's own name."""
        return index_of(self.target)

    @property
    def meta(self) -> dict[str, Any]:
        """What the mapping notes."""
        noted: dict[str, Any] = {
            "v": _NESTED if self.nested or self.within else _ROUTED if self.routing else _PLAIN,
            "stream": self.stream.query,
            "pipeline": self.stream.pipeline,
            "target": self.target,
            "schema": json.loads(self.schema.to_json()),
            "readings": {t: {"id": r.id, "first": r.first} for t, r in self.readings.items()},
        }
        if self.routing is not None:
            noted["routing"] = self.routing
        if self.nested:
            noted["nested"] = [
                {"link": link.to_json(), "schema": schema and json.loads(schema.to_json())}
                for link, schema in self.nested
            ]
        if self.within is not None:
            noted["within"] = self.within.to_json()
        return {"tailrace": noted}

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its documents for columns, and for nested rows."""
        fields = fields_of(self.schema.columns)
        for link, schema in self.nested:
            properties = {} if schema is None else fields_of(schema.columns)
            fields[link.field] = {"type": "nested", "dynamic": "strict", "properties": properties}
        return fields

    @property
    def columns(self) -> int:
        """How many columns its documents have, those of nested rows included."""
        return len(self.schema.columns) + sum(len(s.columns) + 1 for _, s in self.nested if s is not None)


def find(client: OpenSearchClient, target: str, stream: StreamId) -> Index | None:
    """The index of a target; None if there is none.

    Raises:
        StateError: it belongs to another stream, or to nobody.
    """
    alias = alias_of(target)
    answer = client.request("GET", f"/{quoted(alias)}", accepted=(404,))
    if answer.status == 404:
        return None
    if list(answer.body) != [index_of(target)]:
        raise _not_ours(target, f"found `{'`, `'.join(answer.body)}`, which Tailrace did not make", stream)
    (found,) = answer.body.values()
    noted = found.get("mappings", {}).get("_meta", {}).get("tailrace")
    if noted is None:
        raise _not_ours(target, f"found `{index_of(target)}`, which Tailrace did not make", stream)
    if noted["stream"] != stream.query:
        raise _not_ours(target, f"it belongs to stream {noted['stream']}", stream)
    if noted["target"] != target:
        raise _not_ours(target, f"`{alias}` is the target `{noted['target']}`", stream)
    if noted["v"] > _NESTED:
        raise _not_ours(target, "a newer version of Tailrace has written it", stream)
    _require_memory(target, found.get("settings", {}).get("index", {}))
    return _index(target, noted)


def noted(client: OpenSearchClient, target: str) -> Index | None:
    """The index of a target, whichever stream owns it; None if there is none of ours."""
    answer = client.request("GET", f"/{quoted(alias_of(target))}", accepted=(404,))
    if answer.status == 404 or list(answer.body) != [index_of(target)]:
        return None
    (found,) = answer.body.values()
    held = found.get("mappings", {}).get("_meta", {}).get("tailrace")
    return _index(target, held) if held and held["target"] == target else None


def _index(target: str, noted: Mapping[str, Any]) -> Index:
    schema = TargetSchema.from_json(target, json.dumps(noted["schema"]))
    readings = {table: ReadingStart(r["id"], r["first"]) for table, r in noted["readings"].items()}
    stream = StreamId(noted["pipeline"], noted["stream"])
    nested = []
    for entry in noted.get("nested", ()):
        link, of_child = Link.from_json(entry["link"]), entry["schema"]
        columns = of_child and TargetSchema.from_json(link.child, json.dumps(of_child))
        nested.append((link, columns))
    within = Link.from_json(noted["within"]) if "within" in noted else None
    return Index(target, stream, schema, readings, noted.get("routing"), tuple(nested), within)


def _require_memory(target: str, settings: Mapping[str, Any]) -> None:
    """Refuse an index that forgets deleted documents while a task of an earlier attempt may live.

    Raises:
        SinkError: it does.
    """
    held = str(settings.get("gc_deletes", "60s"))
    found = _DURATION.fullmatch(held)
    if held != "-1" and (found is None or int(found[1]) * _UNITS_S[found[2]] < LEAST_MEMORY_S):
        raise SinkError(
            f"the index of target `{target}` forgets deleted documents too early",
            f"found index.gc_deletes = {held}, needed at least {LEAST_MEMORY_S}s: a late write could bring a"
            " deleted document back",
            f'PUT /{index_of(target)}/_settings {{"index.gc_deletes": "15m"}}; and leave `gc_deletes` out of'
            " `sink.index-settings`",
            code="TR-7307",
        )


def create(client: OpenSearchClient, index: Index, settings: Mapping[str, str]) -> None:
    """Create the index of a target.

    Raises:
        StateError: an index of that name exists, which does not have the alias.
        SinkError: OpenSearch refuses the fields or settings.
    """
    fields = {**index.fields, VERSION: {"type": "long"}}
    if index.within is not None:
        fields[PARENT] = {"type": "keyword"}
    own = settings_of(index.columns, settings)
    _require_memory(index.target, own)
    mappings: dict[str, Any] = {"dynamic": "strict", "_meta": index.meta, "properties": fields}
    if index.routing is not None:
        mappings["_routing"] = {"required": True}
    body = {"settings": {"index": own}, "aliases": {index.alias: {}}, "mappings": mappings}
    answer = client.request("PUT", f"/{quoted(index.name)}", body, accepted=(400,))
    if answer.kind == "resource_already_exists_exception":
        # it may be that an earlier attempt at this request was not answered
        if find(client, index.target, index.stream) is not None:
            return
        found = f"found `{index.name}`, without the alias `{index.alias}`"
        raise _not_ours(index.target, found, index.stream)
    _require_accepted(index, answer)


def update(client: OpenSearchClient, index: Index, old: Index) -> None:
    """Give an index other columns, or note other readings.

    Raises:
        SinkError: a field cannot hold a column's values.
    """
    held = fields_of(old.schema.columns)
    needed = fields_of(index.schema.columns)
    for name, field_ in needed.items():
        if name in held and held[name] != field_:
            found = f"the field is {held[name]['type']}, the column needs {field_['type']}"
            raise incompatible(name, index.target, found, OnIncompatibleType.PARK)
    added = {name: field_ for name, field_ in index.fields.items() if old.fields.get(name) != field_}
    if added:
        limit = {"index": {"mapping.total_fields.limit": most_fields(index.columns)}}
        client.request("PUT", f"/{index.path}/_settings", limit)
    body = {"_meta": index.meta, "properties": added}
    answer = client.request("PUT", f"/{index.path}/_mapping", body, accepted=(400,))
    _require_accepted(index, answer)


def with_reading(index: Index, table: str, reading: ReadingStart) -> Index:
    """`index` with a table that is read again; a reading that is noted already stays as it is."""
    known = index.readings.get(table)
    if known is not None and known.id == reading.id:
        return index
    return replace(index, readings={**index.readings, table: reading})


def _require_accepted(index: Index, answer: ClusterAnswer) -> None:
    if answer.status < 400:
        return
    raise SinkError(
        f"target `{index.target}` cannot have the columns of its source",
        f"HTTP {answer.status}: {answer.reason}",
        "leave the column out by a transform, or delete the index and read the table again: tailrace resync"
        " PIPELINE.YAML TABLE",
        code="TR-7001",
    )


def _not_ours(target: str, found: str, stream: StreamId) -> StateError:
    return StateError(
        f"target `{target}` is not this stream's",
        f"{found}; this stream is {stream.query}",
        "route the table to another name, continue with that stream's checkpoint, or delete the index",
        code="TR-6101",
    )
