"""The table of a target: whose it is, and which columns it has.

    ENGINE = ReplacingMergeTree(_tailrace_version, _tailrace_deleted) ORDER BY (the key)

Of a key's rows ClickHouse keeps the one with the highest version (`sinks.versions`), at some time; with FINAL
it reads that one alone, or none if it is deleted. The deleted row stays, so that no stale row brings its key
back.

What we know of the table is in its comment, after the word `Tailrace`, and goes with it. An ALTER TABLE sets
the comment together with the columns.

    stream      the stream that owns it; a table of another stream, or of nobody, is not touched
    schema      its columns and its key
    readings    by source table that is read again: the reading's id, and the version that it began with
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError, StateError
from tailrace.model.table import Column
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import DELETED, VERSION, type_of
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import incompatible
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.versions import ReadingStart, batch_of

#: The format of what the comment notes, and what it begins with.
_FORMAT, _WORD = 1, "Tailrace "
_ENGINE = "ReplacingMergeTree"
#: What an INSERT has written is to outlive a crash of the machine; by default it outlives one of the server.
_SETTINGS = "fsync_after_insert = 1, fsync_part_directory = 1"


@dataclass(frozen=True)
class Target:
    """A target's table.

    Args:
        name: the target's name.
        table: the table's name.
        stream: the stream that owns it.
        schema: its columns and its key.
        readings: its source tables that are read again, or were at last.
    """

    name: str
    table: TableName
    stream: StreamId
    schema: TargetSchema
    readings: Mapping[str, ReadingStart] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The table's name, quoted."""
        return sql.qualified(self.table)

    @property
    def comment(self) -> str:
        """What the table's comment notes."""
        noted = {
            "v": _FORMAT,
            "stream": self.stream.query,
            "pipeline": self.stream.pipeline,
            "target": self.name,
            "schema": json.loads(self.schema.to_json()),
            "readings": {t: {"id": r.id, "first": r.first} for t, r in self.readings.items()},
        }
        return _WORD + json.dumps(noted, separators=(",", ":"))

    def with_reading(self, table: str, reading: ReadingStart) -> Target:
        """This target with a table that is read again; a reading that is noted already stays as it is."""
        known = self.readings.get(table)
        if known is not None and known.id == reading.id:
            return self
        return replace(self, readings={**self.readings, table: reading})

    def type_of(self, column: Column) -> str:
        """The type of a column."""
        return type_of(column, self.schema)


def find(client: ClickHouseClient, place: sql.Place, name: str, stream: StreamId) -> Target | None:
    """The table of a target; None if there is none.

    Raises:
        StateError: it belongs to another stream, or to nobody.
        SinkError: its rows may be on several servers.
    """
    table = place.table(name)
    engine, noted = _noted(client, table)
    if not engine:
        return None
    if not noted:
        raise _not_ours(name, f"found {engine} {sql.qualified(table)}, which Tailrace did not make", stream)
    if noted["v"] > _FORMAT:
        raise _not_ours(name, "a newer version of Tailrace has written it", stream)
    if noted["stream"] != stream.query:
        raise _not_ours(name, f"it belongs to stream {noted['stream']}", stream)
    if noted["target"] != name:
        raise _not_ours(name, f"{sql.qualified(table)} is the target `{noted['target']}`", stream)
    if engine != _ENGINE:
        raise SinkError(
            f"target `{name}` is a table of engine {engine}",
            f"needed {_ENGINE}: a server with replicas may answer with older rows than the ones just written",
            f"set `sink.url` to a server, and `sink.database` or a route to a database, where {_ENGINE} stays"
            " what it is",
            code="TR-7705",
        )
    schema = TargetSchema.from_json(name, json.dumps(noted["schema"]))
    readings = {table: ReadingStart(r["id"], r["first"]) for table, r in noted["readings"].items()}
    target = Target(name, table, stream, schema, readings)
    _require_columns(client, target)
    return target


def newest_batch(client: ClickHouseClient, place: sql.Place, name: str, stream: StreamId) -> int | None:
    """The newest batch of which a target has rows; None: there are none of the stream."""
    table = place.table(name)
    _, noted = _noted(client, table)
    if noted.get("stream") != stream.query or noted["target"] != name:
        return None
    found = client.select(f"SELECT count(), max({VERSION}) FROM {sql.qualified(table)}")
    rows, version = (column[0].as_py() for column in found.columns)
    return batch_of(version) if rows else None


def _noted(client: ClickHouseClient, table: TableName) -> tuple[str, dict[str, Any]]:
    """A table's engine, empty if there is no table; and what its comment notes, empty if nothing of ours."""
    rows = client.select(
        f"SELECT engine, comment FROM system.tables WHERE database = {sql.text(table.schema)}"
        f" AND name = {sql.text(table.table)}"
    )
    if not rows.num_rows:
        return "", {}
    engine, comment = (rows.column(i)[0].as_py().decode() for i in range(2))
    if not comment.startswith(_WORD + "{"):
        return engine, {}
    noted: dict[str, Any] = json.loads(comment.removeprefix(_WORD))
    return engine, noted


def _require_columns(client: ClickHouseClient, target: Target) -> None:
    """Refuse a table whose columns are not those that we gave it: ClickHouse converts values to other ones.

    Raises:
        SinkError: a column was altered, or dropped.
    """
    rows = client.select(
        f"SELECT name, type FROM system.columns WHERE database = {sql.text(target.table.schema)}"
        f" AND table = {sql.text(target.table.table)}"
    )
    names, types = ([value.decode() for value in column.to_pylist()] for column in rows.columns)
    found = dict(zip(names, types, strict=True))
    for column in target.schema.columns:
        type_, needed = found.get(column.name, "not there"), target.type_of(column)
        if _plain(type_) != _plain(needed):
            raise SinkError(
                f"column `{column.name}` of target `{target.name}` was altered",
                f"found {type_}, needed {needed}",
                "alter it back; or drop the table and read the source's again: tailrace resync PIPELINE.YAML"
                " TABLE",
                code="TR-7706",
            )


def _plain(type_: str) -> str:
    """A type without what says only how its values are stored."""
    prefix = "LowCardinality("
    return type_[len(prefix) : -1] if type_.startswith(prefix) else type_


def create(client: ClickHouseClient, place: sql.Place, target: Target) -> None:
    """Create the table of a target, and its database unless it exists.

    Raises:
        StateError: somebody has made such a table meanwhile.
        SinkError: the server refuses the columns, or makes a table of another engine.
    """
    schema = target.schema
    columns = [f"{sql.name(c.name)} {target.type_of(c)}" for c in schema.columns]
    columns += [f"{VERSION} UInt64", f"{DELETED} UInt8"]
    client.run(f"CREATE DATABASE IF NOT EXISTS {sql.name(target.table.schema)}")
    try:
        client.run(
            f"CREATE TABLE IF NOT EXISTS {target.path} ({', '.join(columns)})"
            f" ENGINE = {_ENGINE}({VERSION}, {DELETED}) ORDER BY ({sql.names(schema.key)})"
            f" SETTINGS {_SETTINGS} COMMENT {sql.text(target.comment)}"
        )
    except SinkError as error:
        raise _cannot_have(target, error) from error
    found = find(client, place, target.name, target.stream)
    if found != target:
        raise _not_ours(target.name, "somebody has made such a table meanwhile", target.stream)


def alter(client: ClickHouseClient, old: Target, new: Target) -> None:
    """Give a table further or wider columns, or note other readings.

    Raises:
        SinkError: a column cannot hold the values of its source's.
    """
    held = {column.name: old.type_of(column) for column in old.schema.columns}
    changes, last = [], ""
    for column in new.schema.columns:
        type_, before = new.type_of(column), held.get(column.name)
        definition = f"COLUMN {sql.name(column.name)} {type_}"
        if before is None:
            changes.append(f"ADD {definition} AFTER {last}")
        elif before != type_:
            if before.startswith("Array") is not type_.startswith("Array"):
                found = f"the column is {before}, and no array is NULL"
                raise incompatible(column.name, new.name, found, OnIncompatibleType.PARK)
            changes.append(f"MODIFY {definition}")
        last = sql.name(column.name)
    changes.append(f"MODIFY COMMENT {sql.text(new.comment)}")
    try:
        client.run(f"ALTER TABLE {new.path} {', '.join(changes)}")
    except SinkError as error:
        raise _cannot_have(new, error) from error


def follow(client: ClickHouseClient, old: Target, change: RenameColumn | DropColumn) -> Target:
    """Rename or drop a column, as the source has.

    Raises:
        SinkError: the server refuses it.
    """
    new = replace(old, schema=old.schema.after(change))
    if isinstance(change, RenameColumn):
        altered = f"RENAME COLUMN {sql.name(change.old)} TO {sql.name(change.new)}"
    else:
        altered = f"DROP COLUMN {sql.name(change.old)}"
    client.run(f"ALTER TABLE {old.path} {altered}, MODIFY COMMENT {sql.text(new.comment)}")
    return new


def _cannot_have(target: Target, error: SinkError) -> SinkError:
    if error.retryable or error.code != "TR-7703":
        return error
    return SinkError(
        f"target `{target.name}` cannot have the columns of its source",
        error.detail,
        "leave the column out by a transform, or drop the table and read the source's again: tailrace resync"
        " PIPELINE.YAML TABLE",
        code="TR-7001",
    )


def _not_ours(target: str, found: str, stream: StreamId) -> StateError:
    return StateError(
        f"target `{target}` is not this stream's",
        f"{found}; this stream is {stream.query}",
        "route the table to another name, continue with that stream's checkpoint, or drop the table",
        code="TR-6101",
    )
