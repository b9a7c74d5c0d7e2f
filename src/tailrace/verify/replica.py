"""A replica's side: tables in a database of the source's kind, read as the source's are.

A database shows no earlier state of a table. So nothing may be written while its tables are read, and what
the sink notes there of its batches (`sinks.replica.ledger`) says whether anything was: a batch is noted as
begun before its first row is written, and as done behind its last. Rows that others write are differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
from tailrace.verify.checksum import Checksums, bucket_of
from tailrace.verify.source import PAGE_ROWS, as_stored


@dataclass(frozen=True)
class ReplicaTarget:
    """A table of a replica.

    Args:
        options: how to read it.
        schema: its shape.
        version: the last batch written to it.
    """

    options: SourceOptions
    schema: TableSchema
    version: int

    @property
    def columns(self) -> pa.Schema:
        """Its columns, with the types that rows are compared in."""
        return stored_schema(self.schema)

    def checksums(self, names: Sequence[str], key: Sequence[str]) -> Checksums:
        """The checksums of the columns `names`."""
        sums = Checksums.empty()
        for rows in self._rows(names):
            sums.add(rows, key)
        return sums

    def rows(self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray) -> pa.Table:
        """The rows of some buckets."""
        kept = [rows.filter(pa.array(np.isin(bucket_of(rows, key), buckets))) for rows in self._rows(names)]
        return pa.Table.from_batches(kept, self._select(names))

    def _rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        split = SnapshotSplit(self.schema, None, None, {}, PAGE_ROWS)
        pages = _postgres_pages if self.options.dialect == "postgresql" else _mysql_pages
        for page in pages(self.options, split):
            yield as_stored(page.rows, self._select(names), self.schema)

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


def _mysql_pages(options: SourceOptions, split: SnapshotSplit) -> Iterator[Page]:
    session = registry.session(options)
    try:
        yield from session.pages(split)
    finally:
        session.close()


def _postgres_pages(options: SourceOptions, split: SnapshotSplit) -> Iterator[Page]:
    """A source's session would need a snapshot that a replication slot has exported."""
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
        options: the source's, at the replica's server: values are read alike.
        dialect: the replica's.
        batch: number of a batch that is wholly written.
        done: of each target looked at the last batch written to it.
    """

    options: SourceOptions
    dialect: Dialect
    batch: int
    done: dict[str, int]

    @classmethod
    def open(
        cls, source: SourceOptions, sink: MySqlSettings | PostgresSettings, batch: int
    ) -> ReplicaTargets:
        """The replica that `sink` writes for `source`."""
        server = sink.server
        options = replace(
            source,
            **{
                name: getattr(server, name)
                for name in (
                    "dialect",
                    "host",
                    "port",
                    "database",
                    "user",
                    "password",
                    "tls",
                    "allow_cleartext_password",
                    "allow_public_key_retrieval",
                    "server_public_key_file",
                )
            },
        )
        return cls(options, open_dialect(sink, source.dialect), batch, {})

    def target(self, name: str, table: TableSchema) -> ReplicaTarget | None:  # noqa: ARG002 - has its own
        """See Targets.

        Raises:
            StateError: the stream writes it.
        """
        entry = self._entries([name]).get(name)
        if entry is None:
            return None
        if entry.begun != entry.done or entry.done > self.batch:
            raise self._is_written(name, entry)
        place = self.dialect.table_name(name)
        options = replace(self.options, tables=(re.escape(f"{place.schema}.{place.table}"),))
        there = registry.source(options)
        try:
            found = [table.schema for table in there.tables()]
            schemas = [schema for schema in found if schema.id.table == place.table] or found
        finally:
            there.close()
        self.done[name] = entry.done
        return ReplicaTarget(options, schemas[0], entry.done) if schemas else None

    def confirm(self) -> None:
        """See Targets."""
        for name, entry in self._entries(self.done).items():
            if entry.begun != self.done[name]:
                raise self._is_written(name, entry)

    def _entries(self, names: Sequence[str] | dict[str, int]) -> dict[str, Entry]:
        session = self.dialect.connect()
        try:
            return Ledger(self.dialect).entries(session, names) if names else {}
        finally:
            session.close()

    def _is_written(self, name: str, entry: Entry) -> StateError:
        return StateError(
            f"target `{name}` is being written and cannot be compared",
            f"it has batch {entry.done}, batch {entry.begun} was begun; the stream has noted {self.batch}",
            "a replica shows no earlier state: stop the pipeline between two batches (Ctrl-C), or let a"
            " `trigger: available-now` end, then verify again",
        )
