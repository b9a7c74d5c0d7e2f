"""The target side of a replica: tables in a database, read like a source's tables.

A database shows its tables as they are now, or as they were when a transaction began. So each of a few
connections begins one between two of the stream's batches, which goes on meanwhile (`verify.moments`, by the
sink's ledger). They read a table side by side, each a range of its keys.

The transactions end with the target's checksums. A schema change of the target, by the stream too, waits for
that. Where rows differ, they are read at another moment (`verify.run`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.enumerator.snapshot import KeyRange
from tailrace.model.table import TableSchema
from tailrace.sinks.replica.dialect import Dialect
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.sink import open_dialect
from tailrace.sinks.tables.columns import stored_schema
from tailrace.sources import registry
from tailrace.sources.base import FrozenTables
from tailrace.verify.checksum import Shards
from tailrace.verify.foreign import ForeignTypes
from tailrace.verify.moments import keep_between_batches
from tailrace.verify.portion import KeyRanges, has_numbers_as_key, key_ranges
from tailrace.verify.range_reader import PAGE_ROWS, SourceTable, as_stored
from tailrace.verify.source import ranges
from tailrace.verify.streamed import Rows, StreamedTarget


@dataclass(frozen=True)
class ReplicaTarget(StreamedTarget):
    """A table of a replica at one moment.

    Args:
        tables: the replica at that moment.
        schema: its schema.
        version: the last batch written to it.
        foreign: its types, if its database is of another kind than the source's.
        ranges: the ranges of its keys in which it is read.
        connections: how many are read at the same time.
        shards: the rows that count; None: all.
    """

    tables: FrozenTables
    schema: TableSchema
    version: int
    foreign: ForeignTypes | None
    ranges: Sequence[KeyRange]
    connections: int
    shards: Shards | None = None

    @property
    def readers(self) -> int:
        """See StreamedTarget."""
        return self.connections

    @property
    def columns(self) -> pa.Schema:
        """Its columns, with the types in which rows are compared."""
        return stored_schema(self.schema) if self.foreign is None else self.foreign.columns(self.schema)

    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:
        found: Sequence[KeyRange] = self.ranges
        if only is not None and has_numbers_as_key(self.schema) and self.schema.key[0] == only.column:
            found = key_ranges(self.schema, only.ranges)
        return [partial(self._range, names, part) for part in found]

    def _range(self, names: Sequence[str], part: KeyRange) -> Rows:
        for page in self.tables.read_range(self.schema, part.after, part.upto, PAGE_ROWS):
            found = page.rows
            if self.foreign is not None:
                found = self.foreign.as_of_source(found, self.schema)
            rows = as_stored(found, self._select(names), self.schema)
            yield rows if self.shards is None else self.shards.of(rows)


@dataclass(frozen=True)
class ReplicaTargets:
    """A replica at one moment between two batches.

    Args:
        options: the source's options with the replica's address, so that both sides read values alike.
        dialect: the replica's dialect.
        entries: the ledger at that moment, by target.
        tables: the replica's tables at that moment.
        is_foreign: whether the source is a database of another kind.
        connections: how many ranges of tables can be read at the same time.
    """

    options: SourceOptions
    dialect: Dialect
    entries: Mapping[str, Entry]
    tables: FrozenTables
    is_foreign: bool
    connections: int

    @classmethod
    def open(
        cls,
        source: SourceOptions,
        sink: MySqlSettings | PostgresSettings,
        last: Callable[[], tuple[int, Collection[str]]],
        patience_s: float,
        connections: int,
    ) -> tuple[ReplicaTargets, int]:
        """Open the replica that `sink` writes for `source`; returns its batch, too.

        Args:
            source: the source's options.
            sink: the sink.
            last: asks for the last committed batch, and the targets of the stream then.
            patience_s: how long to wait for a moment between two batches.
            connections: how many read the replica at the same time.

        Raises:
            StateError: the stream has been writing it all the time.
        """
        server = sink.server
        names = (
            "dialect",
            "host",
            "port",
            "database",
            "user",
            "password",
            "authentication",
            "aws_region",
            "tls",
            "route",
            "allow_cleartext_password",
            "allow_public_key_retrieval",
            "server_public_key_file",
        )
        options = replace(source, **{name: getattr(server, name) for name in names})
        dialect = open_dialect(sink, source.dialect)
        ledger = Ledger(dialect)
        with closing(dialect.connect()) as session, closing(registry.source(options)) as replica:
            tables, entries, batch = keep_between_batches(
                last,
                lambda targets: ledger.entries(session, targets),
                lambda _: replica.frozen(connections),
                patience_s,
            )
        is_foreign = source.dialect not in sink.schemes
        return cls(options, dialect, entries, tables, is_foreign, connections), batch

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> ReplicaTarget | None:  # noqa: ARG002 - has its own
        """See ComparedTargets."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        place = self.dialect.table_name(name)
        options = replace(self.options, tables=(re.escape(f"{place.schema}.{place.table}"),))
        with closing(registry.source(options)) as replica:
            tables = replica.tables()
            found = next((held for held in tables if held.schema.id.table == place.table), None)
            found = found or next(iter(tables), None)
            if found is None:
                return None
            # any ranges will do, if they have all keys: the moment's may be others than those of now
            parts = ranges(replica, SourceTable(found.schema, found.estimated_rows), self.connections)
            return ReplicaTarget(
                self.tables,
                found.schema,
                entry.done,
                self._foreign(entry),
                list(parts),
                self.connections,
                shards,
            )

    def _foreign(self, entry: Entry) -> ForeignTypes | None:
        if not self.is_foreign:
            return None
        rewrites_json = isinstance(self.dialect, MySqlDialect) and not self.dialect.mariadb
        return ForeignTypes({c.name.lower(): c.type for c in entry.schema.columns}, rewrites_json)

    def release(self) -> None:
        """See ComparedTargets."""
        self.tables.close()

    def close(self) -> None:
        """See ComparedTargets."""
        self.tables.close()
