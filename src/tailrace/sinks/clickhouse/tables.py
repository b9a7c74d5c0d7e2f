"""Tables on the server: found, created, altered (`target`, `layout`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tailrace.config.sinks import ClickHouseEngine, OnIncompatibleType, WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import sql
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import BATCH, VERSION
from tailrace.sinks.clickhouse.layout import WINDOW, StorageLayout, engine_of
from tailrace.sinks.clickhouse.target import FORMAT, WORD, Target
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import incompatible
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.versions import ReadingStart, batch_of


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
    if noted["v"] > FORMAT:
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
    keys = {table: tuple(key) for table, key in noted.get("keys", {}).items()}
    return Target(name, table, stream, schema, readings, mode, keys)


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
    if not comment.startswith(WORD + "{"):
        return engine, {}
    noted: dict[str, Any] = json.loads(comment.removeprefix(WORD))
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


def create(client: ClickHouseClient, place: sql.Place, target: Target, layout: StorageLayout) -> None:
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


def _require_partitions_of_keys(client: ClickHouseClient, target: Target, layout: StorageLayout) -> None:
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


def alter(client: ClickHouseClient, old: Target, new: Target, layout: StorageLayout) -> None:
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
    client: ClickHouseClient, old: Target, change: RenameColumn | DropColumn, layout: StorageLayout
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
