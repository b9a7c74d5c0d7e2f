"""The target side of a replica: tables in a database of the source's kind, read like the source's tables.

A database shows its tables as they are now, or as they were when a transaction began. So one is begun between
two of the stream's batches, which goes on meanwhile (`verify.moments`, by the sink's ledger).

The transaction ends with the target's checksums. A schema change of the target, by the stream too, waits for
that. Where rows differ, they are read at another moment (`verify.run`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.model.table import TableSchema
from tailrace.sinks.replica.dialect import Dialect
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.sink import open_dialect
from tailrace.sinks.tables.columns import stored_schema
from tailrace.sources import registry
from tailrace.sources.base import FrozenTables
from tailrace.verify.checksum import Shards
from tailrace.verify.moments import keep_between_batches
from tailrace.verify.range_reader import PAGE_ROWS, as_stored
from tailrace.verify.streamed import StreamedTarget


@dataclass(frozen=True)
class ReplicaTarget(StreamedTarget):
    """A table of a replica at one moment.

    Args:
        tables: the replica at that moment.
        schema: its schema.
        version: the last batch written to it.
        shards: the rows that count; None: all.
    """

    tables: FrozenTables
    schema: TableSchema
    version: int
    shards: Shards | None = None

    @property
    def columns(self) -> pa.Schema:
        """Its columns, with the types in which rows are compared."""
        return stored_schema(self.schema)

    def _rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for page in self.tables.read_table(self.schema, PAGE_ROWS):
            rows = as_stored(page.rows, self._select(names), self.schema)
            yield rows if self.shards is None else self.shards.of(rows)


@dataclass(frozen=True)
class ReplicaTargets:
    """A replica at one moment between two batches.

    Args:
        options: the source's options with the replica's address, so that both sides read values alike.
        dialect: the replica's dialect.
        entries: the ledger at that moment, by target.
        tables: the replica's tables at that moment.
    """

    options: SourceOptions
    dialect: Dialect
    entries: Mapping[str, Entry]
    tables: FrozenTables

    @classmethod
    def open(
        cls,
        source: SourceOptions,
        sink: MySqlSettings | PostgresSettings,
        last: Callable[[], tuple[int, Collection[str]]],
        patience_s: float,
    ) -> tuple[ReplicaTargets, int]:
        """Open the replica that `sink` writes for `source`; returns its batch, too.

        Args:
            source: the source's options.
            sink: the sink.
            last: asks for the last committed batch, and the targets of the stream then.
            patience_s: how long to wait for a moment between two batches.

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
                last, lambda targets: ledger.entries(session, targets), lambda _: replica.frozen(), patience_s
            )
        return cls(options, dialect, entries, tables), batch

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> ReplicaTarget | None:  # noqa: ARG002 - has its own
        """See ComparedTargets."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        place = self.dialect.table_name(name)
        options = replace(self.options, tables=(re.escape(f"{place.schema}.{place.table}"),))
        with closing(registry.source(options)) as replica:
            found = [table.schema for table in replica.tables()]
            schemas = [schema for schema in found if schema.id.table == place.table] or found
        return ReplicaTarget(self.tables, schemas[0], entry.done, shards) if schemas else None

    def release(self) -> None:
        """See ComparedTargets."""
        self.tables.close()

    def close(self) -> None:
        """See ComparedTargets."""
        self.tables.close()
