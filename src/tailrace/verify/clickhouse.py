"""The target side of ClickHouse: a table as a batch left it.

changelog    each row has its batch: the last change of each key among those of batches up to n, if it is
no delete. So it stays the same while the pipeline goes on.
upsert       a copy, made at a moment between two batches (`verify.moments`): `_tailrace_verify_...`, which
has the table's parts as they were then. ClickHouse makes it of links to files, at once,
whatever the table's size is; it is read with FINAL, and dropped at the end. One that a
comparison has left that was killed is dropped by the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tailrace.config.sinks import ClickHouseSettings, WriteMode
from tailrace.model.table import TableSchema
from tailrace.sinks.clickhouse import sql, state, tables
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import BATCH, read_as
from tailrace.sinks.clickhouse.layout import StorageLayout
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.state import TargetProgress
from tailrace.sinks.clickhouse.target import Target
from tailrace.verify.checksum import Shards
from tailrace.verify.moments import keep_between_batches
from tailrace.verify.portion import KeyRanges
from tailrace.verify.streamed import Rows, StreamedTarget


@dataclass(frozen=True)
class ClickHouseTarget(StreamedTarget):
    """A table's rows at one moment.

    Args:
        client: the server.
        target: the target's table.
        version: the last batch written to it.
        path: the table that is read, quoted.
        key: names of the key's columns, of a change log.
        shards: the rows that count; None: all.
    """

    client: ClickHouseClient
    target: Target
    version: int
    path: str
    key: tuple[str, ...] = ()
    shards: Shards | None = None

    @property
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""
        return self.target.schema.arrow

    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:
        return [partial(self._rows, names, only)]  # the server reads with all its cores

    def _rows(self, names: Sequence[str], only: KeyRanges | None) -> Rows:
        schema = self._select(names)
        among = "" if only is None else only.condition(sql.name(only.column))
        columns = sql.names(names)
        if self.target.mode is WriteMode.UPSERT:
            query = f"SELECT {columns} FROM {self.path} FINAL{f' WHERE {among}' if among else ''}"
        else:
            last = (
                f"SELECT {columns}, _op FROM {self.path} WHERE {BATCH} <= {self.version}"
                f"{f' AND ({among})' if among else ''}"
                f" ORDER BY _seq DESC LIMIT 1 BY {sql.names(self.key)}"
            )
            query = f"SELECT {columns} FROM ({last}) WHERE _op != 'd'"
        for rows in self.client.stream(query):
            found = pa.RecordBatch.from_arrays(
                [read_as(rows.column(field.name), field.type) for field in schema], schema=schema
            )
            yield found if self.shards is None else self.shards.of(found)


@dataclass(frozen=True)
class _Copies:
    """Copies of tables.

    Args:
        client: the server.
        on_cluster: the clause of statements that define something.
        paths: their names, quoted, by target.
    """

    client: ClickHouseClient
    on_cluster: str
    paths: dict[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """Drop them."""
        for name in list(self.paths):
            self.client.run(f"DROP TABLE IF EXISTS {self.paths.pop(name)}{self.on_cluster} SYNC")


@dataclass(frozen=True)
class ClickHouseTargets:
    """The tables of a sink after a batch.

    Args:
        client: the server.
        tables: the tables, by target.
        batch: the batch.
        copies: what is read instead of them.
        progress: how far they were, by target.
    """

    client: ClickHouseClient
    tables: Mapping[str, Target]
    batch: int
    copies: _Copies
    progress: Mapping[str, TargetProgress]

    @classmethod
    def open(
        cls,
        settings: ClickHouseSettings,
        last: Callable[[], tuple[int, Collection[str]]],
        patience_s: float,
    ) -> tuple[ClickHouseTargets, int]:
        """Open the tables that a sink writes; returns their batch, too.

        Args:
            settings: the sink's settings.
            last: asks for the last committed batch, and the targets of the stream then.
            patience_s: how long to wait for a moment between two batches.

        Raises:
            StateError: the stream has been writing them all the time.
        """
        client, place = ClickHouseClient(settings), Place(settings.database)
        layout = StorageLayout.of(settings, "")
        held: dict[str, Target] = {}

        def notes(targets: Collection[str]) -> dict[str, TargetProgress]:
            held.clear()
            found: dict[str, TargetProgress] = {}
            for name in targets:
                target = tables.noted(client, place, name)
                if target is not None and target.mode is settings.mode:
                    held[name] = target
                    found |= state.read(client, place, [name], target.stream)
            return found

        if settings.mode is WriteMode.CHANGELOG:
            batch, targets = last()
            notes(targets)
            return cls(client, held, batch, _Copies(client, ""), {}), batch

        def copy(found: Mapping[str, TargetProgress]) -> _Copies:
            copies = _Copies(client, layout.on_cluster)
            for name in found:
                copies.paths[name] = _copied(client, place, layout, held[name])
            return copies

        copies, progress, batch = keep_between_batches(last, notes, copy, patience_s)
        return cls(client, dict(held), batch, copies, progress), batch

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> ClickHouseTarget | None:
        """See ComparedTargets."""
        found = self.tables.get(name)
        if found is None:
            return None
        if found.mode is WriteMode.CHANGELOG:
            by_name = {column.name.lower(): column.name for column in found.schema.columns}
            key = [by_name[column.lower()] for column in table.key]
            key += [] if shards is None else [by_name[shards.column.lower()]]
            return ClickHouseTarget(self.client, found, self.batch, found.path, tuple(key), shards)
        if name not in self.copies.paths:
            return None
        return ClickHouseTarget(
            self.client, found, self.progress[name].done, self.copies.paths[name], shards=shards
        )

    def release(self) -> None:
        """See ComparedTargets: the copies are still needed where rows differ."""

    def close(self) -> None:
        """See ComparedTargets."""
        self.copies.close()
        self.client.close()


def _copied(client: ClickHouseClient, place: Place, layout: StorageLayout, target: Target) -> str:
    """A copy of a table as it is; returns its name, quoted."""
    digest = hashlib.sha256(json.dumps([target.stream.query, target.name]).encode()).hexdigest()[:24]
    path = place.own(f"verify_{digest}")
    client.run(f"DROP TABLE IF EXISTS {path}{layout.on_cluster} SYNC")
    client.run(f"CREATE TABLE {path}{layout.on_cluster} AS {target.path}")
    # the comment of a target says whose it is; this is nobody's
    client.run(
        f"ALTER TABLE {path}{layout.on_cluster} MODIFY COMMENT 'Tailrace: a copy that is being compared'"
    )
    client.run(f"ALTER TABLE {path} ATTACH PARTITION ALL FROM {target.path}")
    return path
