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
from tailrace.model.table import TableSchema
from tailrace.sinks.replica.dialect import Dialect
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.sink import open_dialect
from tailrace.sinks.tables.columns import stored_schema
from tailrace.sources import registry
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
        with closing(registry.source(self.options)) as source:
            for page in source.read_table(self.schema, PAGE_ROWS):
                yield as_stored(page.rows, self._select(names), self.schema)

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


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
        """See ComparedTargets.

        Raises:
            StateError: the stream is writing it.
        """
        entry = self._entries([name]).get(name)
        if entry is None:
            return None
        if entry.begun != entry.done or entry.done > self.batch:
            raise self._busy(name, entry)
        place = self.dialect.table_name(name)
        options = replace(self.options, tables=(re.escape(f"{place.schema}.{place.table}"),))
        with closing(registry.source(options)) as replica:
            found = [table.schema for table in replica.tables()]
            schemas = [schema for schema in found if schema.id.table == place.table] or found
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
            code="TR-8104",
        )
