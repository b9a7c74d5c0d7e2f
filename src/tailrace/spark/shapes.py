"""How changes become Spark rows: the option `shape`.

A shape is pickled to tasks, so it is plain data. The rows of a query have one schema for its whole life;
changes of a table whose columns have changed since are fitted to it by column name.

Spark starts four Python processes for a query and imports this module in each; most never see a row. So what
loads kernels (numba alone takes most of a second) is imported where it is used.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.formats.envelope import envelope_schema, to_envelopes
from tailrace.formats.modes import Modes
from tailrace.formats.row import row_schema, to_rows
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.fit import fit_batch

#: Columns of a cell's row (design §3): one row is one batch of changes.
CELLS = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("changes", pa.int32()),
        pa.field("min_seq", pa.string()),
        pa.field("max_seq", pa.string()),
        pa.field("cell", pa.binary()),
    ]
)


class Shape(Protocol):
    """Turns changes into record batches of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of `changes`."""


def shape_of(options: SourceOptions, table: TableSchema | None) -> Shape:
    """The shape that `options` ask for; `table` for the shapes of one table."""
    if options.shape == "cells":
        return Cells()
    if options.shape == "debezium":
        modes = Modes(
            options.decimal_handling_mode,
            options.time_precision_mode,
            options.bigint_unsigned_handling_mode,
            options.binary_handling_mode,
        )
        return Messages(
            options.topic_prefix or "tailrace",
            options.schemas_enable,
            options.dialect,
            modes,
            str(uuid.uuid4()) if options.extended_headers_enabled else None,
            options.database,
        )
    assert table is not None
    if options.shape == "row":
        return Rows(table)
    return Envelopes(table, options.topic_prefix or "tailrace", options.dialect)


@dataclass(frozen=True)
class Rows:
    """The table's columns and `_op`, `_seq`, `_ts_ms`, `_txn`, `_position`."""

    table: TableSchema

    @property
    def schema(self) -> pa.Schema:
        """See Shape."""
        return row_schema(self.table)

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See Shape."""
        for batch in changes:
            yield to_rows(fit_batch(batch, self.table))


@dataclass(frozen=True)
class Envelopes:
    """before, after, op, source, ts_ms as structs."""

    table: TableSchema
    name: str
    connector: str

    @property
    def schema(self) -> pa.Schema:
        """See Shape."""
        return envelope_schema(self.table)

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See Shape."""
        for batch in changes:
            fitted = fit_batch(batch, self.table)
            yield to_envelopes(fitted, name=self.name, now_ms=_now_ms(), connector=self.connector)


@dataclass(frozen=True)
class Messages:
    """Debezium's topic, key, value, headers, partition."""

    topic_prefix: str
    schemas: bool
    connector: str
    modes: Modes
    run_id: str | None
    database: str

    @property
    def schema(self) -> pa.Schema:
        """See Shape."""
        from tailrace.formats.debezium import debezium_schema  # noqa: PLC0415 - see the module

        return debezium_schema()

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See Shape."""
        from tailrace.formats.debezium import DebeziumFormat  # noqa: PLC0415 - see the module
        from tailrace.formats.envelopes import Envelopes  # noqa: PLC0415
        from tailrace.formats.headers import context_of  # noqa: PLC0415
        from tailrace.formats.topics import Topics  # noqa: PLC0415

        prefix, connector = self.topic_prefix, self.connector
        envelopes = Envelopes(Topics(prefix), connector, modes=self.modes, database=self.database)
        context = None if self.run_id is None else context_of(prefix, connector, self.run_id)
        format_ = DebeziumFormat(envelopes, self.schemas, context)
        for batch in changes:
            yield format_.to_messages(batch, now_ms=_now_ms())


@dataclass(frozen=True)
class Cells:
    """Arrow cells, for pipelines."""

    @property
    def schema(self) -> pa.Schema:
        """See Shape."""
        return CELLS

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See Shape."""
        for batch in changes:
            seq = batch.origin.column("seq")
            values = [
                str(batch.table.id),
                batch.table.fingerprint,
                "snapshot" if batch.is_snapshot else "log",
                len(batch),
                seq[0].as_py(),
                seq[-1].as_py(),
            ]
            arrays = [pa.array([v], f.type) for v, f in zip(values, CELLS, strict=False)]
            yield pa.RecordBatch.from_arrays([*arrays, _one_binary(batch.to_cell())], schema=CELLS)


def _one_binary(value: pa.Buffer) -> pa.BinaryArray:
    """An array of one value, which is not copied."""
    ends = pa.py_buffer(struct.pack("<ii", 0, value.size))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
