"""The target side of a replica: tables in a database of the source's kind, read like the source's tables.

A database cannot show an earlier state of a table. So the sink must not write while its tables are read. The
sink's ledger (`sinks.replica.ledger`) tells whether it did: it records the begin of a batch before the first
row is written, and its end after the last. Rows that others write are reported as differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.errors import StateError
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sinks.replica.dialect import Dialect
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.sink import open_dialect
from tailrace.sinks.tables.columns import stored_schema
from tailrace.sources import registry
from tailrace.sources.base import Page
from tailrace.verify.checksum import Checksums, rows_in
from tailrace.verify.source import PAGE_ROWS, as_stored


@dataclass(frozen=True)
class ReplicaTarget:
    """A table of a replica.

    Args:
        options: options for reading it like a source.
        schema: its schema.
        version: the last batch written to it.
    """

    options: SourceOptions
    schema: TableSchema
    version: int

    @property
    def columns(self) -> pa.Schema:
        """Its columns, with the types in which rows are compared."""
        return stored_schema(self.schema)

    def checksums(self, names: Sequence[str], key: Sequence[str]) -> Checksums:
        """See ComparedTarget."""
        return Checksums.of(self._rows(names), key)

    def rows(self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray) -> pa.Table:
        """See ComparedTarget."""
        kept = [rows_in(rows, key, buckets) for rows in self._rows(names)]
        return pa.Table.from_batches(kept, self._select(names))

    def _rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        split = SnapshotSplit(self.schema, None, None, {}, PAGE_ROWS)
        pages = _postgres_pages if self.options.dialect == "postgresql" else _mysql_pages
        for page in pages(self.options, split):
            yield as_stored(page.rows, self._select(names), self.schema)

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


def _mysql_pages(options: SourceOptions, split: SnapshotSplit) -> Iterator[Page]:
    with closing(registry.session(options)) as session:
        yield from session.pages(split)


def _postgres_pages(options: SourceOptions, split: SnapshotSplit) -> Iterator[Page]:
    """Read without a source's session, which needs a snapshot exported by a replication slot."""
    from tailrace.sources.postgres.connection import connect  # noqa: PLC0415 - an extra
    from tailrace.sources.postgres.snapshot.select import copy_pages  # noqa: PLC0415

    connection = connect(options, purpose="verifying")
    try:
        yield from copy_pages(connection, split, split.table)
    finally:
        connection.break_off()


@dataclass(frozen=True)
class ReplicaTargets:
    """A replica after a batch.

    Args:
        options: the source's options with the replica's address, so that both sides read values alike.
        dialect: the replica's dialect.
        batch: number of the last committed batch.
        done: the last batch written to each target that was opened, by name.
    """

    options: SourceOptions
    dialect: Dialect
    batch: int
    done: dict[str, int]

    @classmethod
    def open(
        cls, source: SourceOptions, sink: MySqlSettings | PostgresSettings, batch: int
    ) -> ReplicaTargets:
        """Open the replica that `sink` writes for `source`."""
        scheme, host, port, database = sink.address
        options = replace(
            source,
            dialect=scheme,
            host=host,
            port=port,
            database=database,
            user=sink.user,
            password=sink.password,
            tls=sink.tls,
        )
        return cls(options, open_dialect(sink, source.dialect), batch, {})

    def target(self, name: str, key: Sequence[str]) -> ReplicaTarget | None:  # noqa: ARG002 - it has its own
        """See ComparedTargets.

        Raises:
            StateError: the stream is writing it.
        """
        entry = self._entries([name]).get(name)
        if entry is None:
            return None
        if entry.begun != entry.done or entry.done > self.batch:
            raise self._busy(name, entry)
        table = self.dialect.place(name)
        options = replace(self.options, tables=(re.escape(f"{table.schema}.{table.table}"),))
        with closing(registry.source(options)) as replica:
            schemas = [table.schema for table in replica.tables()]
        self.done[name] = entry.done
        return ReplicaTarget(options, schemas[0], entry.done) if schemas else None

    def confirm(self) -> None:
        """See ComparedTargets."""
        for name, entry in self._entries(self.done).items():
            if entry.begun != self.done[name]:
                raise self._busy(name, entry)

    def _entries(self, names: Sequence[str] | dict[str, int]) -> dict[str, Entry]:
        with closing(self.dialect.connect()) as session:
            return Ledger(self.dialect).entries(session, names) if names else {}

    def _busy(self, name: str, entry: Entry) -> StateError:
        return StateError(
            f"target `{name}` is being written and cannot be compared",
            f"it has batch {entry.done}, batch {entry.begun} has begun; the checkpoint has {self.batch}",
            "a replica cannot show an earlier state: stop the pipeline between two batches (Ctrl-C), or let a"
            " `trigger: available-now` run end, then verify again",
        )
