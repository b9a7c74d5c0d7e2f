"""The target side of DuckDB: tables as a batch left them.

A connection that reads keeps the stream from writing: so the tables stay as they are while they are compared,
and the stream waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa

from tailrace.config.sinks import DuckDbSettings, WriteMode
from tailrace.errors import StateError, TransientSinkError
from tailrace.model.table import TableSchema
from tailrace.sinks.duckdb import change_log, sql, state
from tailrace.sinks.duckdb.client import connected
from tailrace.sinks.duckdb.table import Table
from tailrace.sinks.tables.columns import held_names
from tailrace.verify.checksum import Shards
from tailrace.verify.portion import KeyRanges
from tailrace.verify.streamed import Rows, StreamedTarget

_POLL_S = 0.1
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class DuckTarget(StreamedTarget):
    """A table's rows.

    Args:
        table: the target's table.
        version: the last batch written to it.
        columns_: the source's columns that it has.
        key: the key's columns, of a change log.
        shards: the rows that count; None: all.
    """

    table: Table
    version: int
    columns_: pa.Schema
    key: tuple[str, ...]
    shards: Shards | None

    @property
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""
        return self.columns_

    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:
        return [partial(self._rows, names, only)]  # the engine reads with all its cores

    def _rows(self, names: Sequence[str], only: KeyRanges | None) -> Rows:
        schema = self._select(names)
        among = "true" if only is None else only.condition(sql.name(only.column))
        rows = f"{self.table.path} WHERE {among}"
        if self.table.mode is WriteMode.CHANGELOG:
            rows = change_log.state(self.table, self.columns_.names, self.key, f"({among})")
        cursor = self.table.connection.cursor()
        reader = cursor.execute(f"SELECT {sql.names(names)} FROM {rows}").to_arrow_reader(_BATCH_ROWS)
        for found in reader:
            batch = found.cast(schema)
            yield batch if self.shards is None else self.shards.of(batch)


@dataclass(frozen=True)
class DuckTargets:
    """The tables of a sink after a batch.

    Args:
        connection: reads them.
        settings: the sink's settings.
        notes: what is noted of them, by target.
        stack: ends the connection.
    """

    connection: duckdb.DuckDBPyConnection
    settings: DuckDbSettings
    notes: Mapping[str, state.TargetNote]
    stack: ExitStack

    @classmethod
    def open(
        cls, settings: DuckDbSettings, last: Callable[[], tuple[int, Collection[str]]], patience_s: float
    ) -> tuple[DuckTargets, int]:
        """Open the tables that a sink writes, between two batches; returns their batch, too.

        Args:
            settings: the sink's settings.
            last: asks for the last committed batch, and the targets of the stream then.
            patience_s: how long to wait for a moment between two batches.

        Raises:
            StateError: the stream has been writing them all the time.
            TransientSinkError: another program has the database open.
        """
        until_s = time.monotonic() + patience_s
        while True:
            stack = ExitStack()
            try:
                connection = stack.enter_context(connected(settings, read_only=True))
                notes = state.read(connection)
                batch, targets = last()
                newer = [name for name in targets if name in notes and notes[name].batch > batch]
                if not newer:
                    return cls(connection, settings, notes, stack), batch
                busy: Exception = StateError(
                    f"target `{newer[0]}` is being written and cannot be compared",
                    f"it has batch {notes[newer[0]].batch}, the checkpoint has {batch}",
                    "verify again when the batch is committed. If the pipeline was killed within a batch,"
                    " start it",
                    code="TR-8104",
                )
            except TransientSinkError as error:
                busy = error
            stack.close()
            if time.monotonic() >= until_s:
                raise busy
            time.sleep(_POLL_S)

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> DuckTarget | None:
        """See ComparedTargets."""
        note, held = self.notes.get(name), Table(self.connection, name, self.settings.mode)
        if note is None or note.mode != str(self.settings.mode) or not held.exists():
            return None
        columns = held.columns()
        key = table.key if shards is None else (*table.key, shards.column)
        return DuckTarget(held, note.batch, columns, tuple(held_names(columns, key)), shards)

    def release(self) -> None:
        """See ComparedTargets: rows that differ are still to be read."""

    def close(self) -> None:
        """See ComparedTargets."""
        self.stack.close()
