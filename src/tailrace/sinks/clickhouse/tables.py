"""The table of a target: whose it is, and which columns it has.

    upsert       ReplacingMergeTree(_tailrace_version, _tailrace_deleted) ORDER BY (the key)
    changelog    MergeTree ORDER BY (_seq)

Of a key's rows ReplacingMergeTree keeps the one with the highest version (`sinks.versions`), at some time;
with FINAL it reads that one alone, or none if it is deleted. The deleted row stays, so that no stale row
brings its key back. A change log keeps all changes, each once (`sinks.clickhouse.division`).

What we know of the table is in its comment, after the word `Tailrace`, and goes with it. An ALTER TABLE sets
the comment together with the columns.

    stream      the stream that owns it; a table of another stream, or of nobody, is not touched
    schema      its columns and its key
    mode        `changelog`, or nothing for rows
    readings    by source table that is read again: the reading's id, and the version that it began with
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.config.sinks import ClickHouseEngine, ClickHouseSettings, OnIncompatibleType, WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.model.table import Column
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import BATCH, DELETED, VERSION, log_columns, row_columns, type_of
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import incompatible
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.versions import ReadingStart, batch_of

#: The format of what the comment notes, and what it begins with.
_FORMAT, _WORD = 1, "Tailrace "
#: What an INSERT has written is to outlive a crash of the machine; by default it outlives one of the server.
_SETTINGS = {"fsync_after_insert": "1", "fsync_part_directory": "1"}
#: How many blocks a change log remembers (`division`), and for how long where there are replicas: a month.
WINDOW = 10_000
_WINDOW = {"non_replicated_deduplication_window": str(WINDOW)}
_REPLICATED_WINDOW = {
    "replicated_deduplication_window": str(WINDOW),
    "replicated_deduplication_window_seconds": "2592000",
}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Target:
    """A target's table.

    Args:
        name: the target's name.
        table: the table's name.
        stream: the stream that owns it.
        schema: its columns and its key.
        readings: its source tables that are read again, or were at last.
        mode: what it holds: rows or changes.
    """

    name: str
    table: TableName
    stream: StreamId
    schema: TargetSchema
    readings: Mapping[str, ReadingStart] = field(default_factory=dict)
    mode: WriteMode = WriteMode.UPSERT

    @property
    def columns(self) -> dict[str, str]:
        """The table's columns, with their types."""
        return (row_columns if self.mode is WriteMode.UPSERT else log_columns)(self.schema)

    @property
    def path(self) -> str:
        """The table's name, quoted."""
        return sql.qualified(self.table)

    @property
    def comment(self) -> str:
        """What the table's comment notes."""
        noted: dict[str, Any] = {
            "v": _FORMAT,
            "stream": self.stream.query,
            "pipeline": self.stream.pipeline,
            "target": self.name,
            "schema": json.loads(self.schema.to_json()),
            "readings": {t: {"id": r.id, "first": r.first} for t, r in self.readings.items()},
        }
        if self.mode is not WriteMode.UPSERT:
            noted["mode"] = self.mode.value
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


def engine_of(mode: WriteMode, engine: ClickHouseEngine) -> str:
    """The engine of targets."""
    plain = "ReplacingMergeTree" if mode is WriteMode.UPSERT else "MergeTree"
    return f"Replicated{plain}" if engine is ClickHouseEngine.REPLICATED else plain


@dataclass(frozen=True)
class Layout:
    """How a new table is laid out, by the sink's settings.

    Args:
        engine: whether it has replicas.
        cluster: the cluster on whose servers it is created and altered; None: this server's alone.
        order_by: the columns that it is sorted by, with commas; empty: the key, or `_seq`.
        partition_by: the expression that it is partitioned by; empty: none.
        settings: its settings.
    """

    engine: ClickHouseEngine = ClickHouseEngine.LOCAL
    cluster: str | None = None
    order_by: str = ""
    partition_by: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ClickHouseSettings, target: str) -> Layout:
        """That of a target."""
        order_by, partition_by = settings.order_by.get(target, ""), settings.partition_by.get(target, "")
        return cls(settings.engine, settings.cluster, order_by, partition_by, settings.table_settings)

    @property
    def on_cluster(self) -> str:
        """The clause of statements that define something."""
        return "" if self.cluster is None else f" ON CLUSTER {sql.name(self.cluster)}"

    def create_database(self, name: str) -> str:
        """The statement that creates a database, unless it exists."""
        return f"CREATE DATABASE IF NOT EXISTS {sql.name(name)}{self.on_cluster}"

    def create(self, target: Target) -> str:
        """The statement that creates a table, unless it exists.

        Raises:
            SinkError: rows of one key would be sorted apart.
        """
        columns = [f"{sql.name(name)} {type_}" for name, type_ in target.columns.items()]
        engine, settings = engine_of(target.mode, self.engine), dict(_SETTINGS)
        if target.mode is WriteMode.UPSERT:
            engine = f"{engine}({VERSION}, {DELETED})"
        else:
            columns.append(f"INDEX {sql.name(BATCH + '_index')} {BATCH} TYPE minmax GRANULARITY 1")
            settings |= _REPLICATED_WINDOW if self.engine is ClickHouseEngine.REPLICATED else _WINDOW
            if self.order_by or self.partition_by:
                settings["allow_nullable_key"] = "1"
        listed = ", ".join(f"{name} = {_literal(v)}" for name, v in {**settings, **self.settings}.items())
        partition = f" PARTITION BY {self.partition_by}" if self.partition_by else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {target.path}{self.on_cluster} ({', '.join(columns)})"
            f" ENGINE = {engine}{partition} ORDER BY ({sql.names(self._order(target))})"
            f" SETTINGS {listed} COMMENT {sql.text(target.comment)}"
        )

    def _order(self, target: Target) -> Sequence[str]:
        by_name = {name.lower(): name for name in target.columns}
        asked = [name.strip() for name in self.order_by.split(",") if name.strip()]
        order = [by_name.get(name.lower(), name) for name in asked]
        if target.mode is WriteMode.CHANGELOG:
            return order or ["_seq"]
        if order and sorted(order) != sorted(target.schema.key):
            raise SinkError(
                f"target `{target.name}` cannot be sorted by ({', '.join(asked)})",
                f"the key is ({', '.join(target.schema.key)}); ClickHouse replaces a row by one with the same"
                " values of the columns that the table is sorted by",
                "list the key's columns at `sink.order-by`, in any order, or leave it out",
                code="TR-7709",
            )
        return order or target.schema.key


def _literal(value: str) -> str:
    """A setting's value: a number, or a text."""
    return value if _NUMBER.fullmatch(value) else sql.text(value)


def find(
    client: ClickHouseClient,
    place: sql.Place,
    name: str,
    stream: StreamId,
    *,
    mode: WriteMode = WriteMode.UPSERT,
    engine: ClickHouseEngine = ClickHouseEngine.LOCAL,
) -> Target | None:
    """The table of a target; None if there is none.

    Raises:
        StateError: it belongs to another stream, or to nobody.
        SinkError: its rows may be on several servers.
    """
    table = place.table(name)
    found, noted = _noted(client, table)
    if not found:
        return None
    if not noted:
        raise _not_ours(name, f"found {found} {sql.qualified(table)}, which Tailrace did not make", stream)
    if noted["v"] > _FORMAT:
        raise _not_ours(name, "a newer version of Tailrace has written it", stream)
    if noted["stream"] != stream.query:
        raise _not_ours(name, f"it belongs to stream {noted['stream']}", stream)
    if noted["target"] != name:
        raise _not_ours(name, f"{sql.qualified(table)} is the target `{noted['target']}`", stream)
    if noted.get("mode", WriteMode.UPSERT) != mode:
        raise _not_ours(name, f"it was made with `mode: {noted.get('mode', WriteMode.UPSERT.value)}`", stream)
    needed = engine_of(mode, engine)
    if found != needed:
        raise SinkError(
            f"target `{name}` is a table of engine {found}",
            f"needed {needed}: a server with replicas may answer with older rows than the ones just written",
            f"set `sink.url` to a server, and `sink.database` or a route to a database, where {needed} stays"
            " what it is; for replicated tables set `sink.engine: replicated`",
            code="TR-7705",
        )
    target = _target(name, table, noted)
    _require_columns(client, target)
    return target


def noted(client: ClickHouseClient, place: sql.Place, name: str) -> Target | None:
    """The table of a target, whichever stream owns it; None if there is none of ours."""
    table = place.table(name)
    _, found = _noted(client, table)
    return _target(name, table, found) if found and found["target"] == name else None


def _target(name: str, table: TableName, noted: Mapping[str, Any]) -> Target:
    schema = TargetSchema.from_json(name, json.dumps(noted["schema"]))
    readings = {table: ReadingStart(r["id"], r["first"]) for table, r in noted["readings"].items()}
    stream = StreamId(noted["pipeline"], noted["stream"])
    mode = WriteMode(noted.get("mode", WriteMode.UPSERT))
    return Target(name, table, stream, schema, readings, mode)


def require_window(client: ClickHouseClient, target: Target, blocks: int) -> None:
    """Check that the server remembers as many blocks as a batch needs (`division`).

    Raises:
        SinkError: it remembers fewer.
    """
    rows = client.select(
        f"SELECT engine_full FROM system.tables WHERE database = {sql.text(target.table.schema)}"
        f" AND name = {sql.text(target.table.table)}"
    )
    engine = rows.column(0)[0].as_py().decode() if rows.num_rows else ""
    setting = "replicated_deduplication_window"
    setting = setting if engine.startswith("Replicated") else f"non_{setting}"
    found = re.search(rf"\b{setting} = '?(\d+)", engine)
    held = int(found[1]) if found else 0
    if held < blocks:
        raise SinkError(
            f"change log `{target.name}` remembers too few blocks",
            f"{setting} = {held}, needed {blocks}: changes of a batch that comes again would be there twice",
            f"ALTER TABLE {target.path} MODIFY SETTING {setting} = {max(WINDOW, blocks)}",
            code="TR-7710",
        )


def newest_batch(client: ClickHouseClient, place: sql.Place, name: str, stream: StreamId) -> int | None:
    """The newest batch of which a target has rows; None: there are none of the stream."""
    table = place.table(name)
    _, noted = _noted(client, table)
    if noted.get("stream") != stream.query or noted["target"] != name:
        return None
    is_log = noted.get("mode") == WriteMode.CHANGELOG
    newest = BATCH if is_log else VERSION
    found = client.select(f"SELECT count(), max({newest}) FROM {sql.qualified(table)}")
    rows, number = (column[0].as_py() for column in found.columns)
    return (number if is_log else batch_of(number)) if rows else None


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
    for name, needed in target.columns.items():
        type_ = found.get(name, "not there")
        if _plain(type_) != _plain(needed):
            raise SinkError(
                f"column `{name}` of target `{target.name}` was altered",
                f"found {type_}, needed {needed}",
                "alter it back; or drop the table and read the source's again: tailrace resync PIPELINE.YAML"
                " TABLE",
                code="TR-7706",
            )


def _plain(type_: str) -> str:
    """A type without what says only how its values are stored."""
    prefix = "LowCardinality("
    return type_[len(prefix) : -1] if type_.startswith(prefix) else type_


def create(client: ClickHouseClient, place: sql.Place, target: Target, layout: Layout) -> None:
    """Create the table of a target, and its database unless it exists.

    Raises:
        StateError: somebody has made such a table meanwhile.
        SinkError: the server refuses the columns, or makes a table of another engine; or the partitions do
            not follow from the key.
    """
    client.run(layout.create_database(target.table.schema))
    try:
        client.run(layout.create(target))
    except SinkError as error:
        raise _cannot_have(target, error) from error
    found = find(client, place, target.name, target.stream, mode=target.mode, engine=layout.engine)
    if found != target:
        raise _not_ours(target.name, "somebody has made such a table meanwhile", target.stream)
    if target.mode is WriteMode.UPSERT and layout.partition_by:
        _require_partitions_of_keys(client, target, layout)


def _require_partitions_of_keys(client: ClickHouseClient, target: Target, layout: Layout) -> None:
    """Refuse partitions by other columns than the key's: old rows of a key would stay in another partition.

    Raises:
        SinkError: they are; the table, which is empty, is dropped again.
    """
    rows = client.select(
        f"SELECT name FROM system.columns WHERE database = {sql.text(target.table.schema)}"
        f" AND table = {sql.text(target.table.table)} AND is_in_partition_key"
    )
    others = sorted({name.decode() for name in rows.column(0).to_pylist()} - set(target.schema.key))
    if others:
        client.run(f"DROP TABLE {target.path}{layout.on_cluster} SYNC")
        raise SinkError(
            f"target `{target.name}` cannot be partitioned by column `{others[0]}`",
            f"found `sink.partition-by`: {layout.partition_by}; the key is ({', '.join(target.schema.key)})."
            " ClickHouse merges the rows of a key in one partition only",
            "partition by columns of the key, or leave it out",
            code="TR-7709",
        )


def alter(client: ClickHouseClient, old: Target, new: Target, layout: Layout) -> None:
    """Give a table further or wider columns, or note other readings.

    Raises:
        SinkError: a column cannot hold the values of its source's.
    """
    held = old.columns
    changes, last = [], ""
    for name, type_ in new.columns.items():
        before = held.get(name)
        definition = f"COLUMN {sql.name(name)} {type_}"
        if before is None:
            changes.append(f"ADD {definition} AFTER {last}")
        elif before != type_:
            if before.startswith("Array") is not type_.startswith("Array"):
                found = f"the column is {before}, and no array is NULL"
                raise incompatible(name, new.name, found, OnIncompatibleType.PARK)
            changes.append(f"MODIFY {definition}")
        last = sql.name(name)
    changes.append(f"MODIFY COMMENT {sql.text(new.comment)}")
    try:
        client.run(f"ALTER TABLE {new.path}{layout.on_cluster} {', '.join(changes)}")
    except SinkError as error:
        raise _cannot_have(new, error) from error


def follow(
    client: ClickHouseClient, old: Target, change: RenameColumn | DropColumn, layout: Layout
) -> Target:
    """Rename or drop a column, as the source has.

    Raises:
        SinkError: the server refuses it.
    """
    new = replace(old, schema=old.schema.after(change))
    if isinstance(change, RenameColumn):
        altered = f"RENAME COLUMN {sql.name(change.old)} TO {sql.name(change.new)}"
    else:
        altered = f"DROP COLUMN {sql.name(change.old)}"
    client.run(f"ALTER TABLE {old.path}{layout.on_cluster} {altered}, MODIFY COMMENT {sql.text(new.comment)}")
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
