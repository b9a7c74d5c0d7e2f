"""Layouts of Spark rows: the option `shape`.

A layout is pickled to tasks, so it is plain data. The rows of a query have one schema for the query's
lifetime. If a table's columns have changed since the start, its changes are projected to that schema by
column name.

Spark starts four Python processes for a query and imports this module in each; most of them never process a
row. So modules that load kernels are imported where they are used.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.formats.connect.modes import Modes
from tailrace.formats.envelope_rows import envelope_schema, to_envelopes
from tailrace.formats.row import row_schema, to_rows
from tailrace.model.cell import CELL_SCHEMA, cell_row
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.schema_projection import fit_batch


class RowLayout(Protocol):
    """Turns changes into record batches of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of `changes`."""


def row_layout(options: SourceOptions, table: TableSchema | None) -> RowLayout:
    """The layout that `options` select.

    Args:
        options: the stream's options.
        table: the table, for the layouts of a single table.
    """
    if options.shape == "cells":
        return CellLayout()
    if options.shape == "debezium":
        modes = Modes(
            options.decimal_handling_mode,
            options.time_precision_mode,
            options.bigint_unsigned_handling_mode,
            options.binary_handling_mode,
            options.enable_time_adjuster,
        )
        return MessageLayout(
            options.topic_prefix or "tailrace",
            options.schemas_enable,
            options.dialect,
            modes,
            str(uuid.uuid4()) if options.extended_headers_enabled else None,
            options.database,
        )
    assert table is not None
    if options.shape == "row":
        return TableRowLayout(table)
    return EnvelopeLayout(table, options.topic_prefix or "tailrace", options.dialect)


@dataclass(frozen=True)
class TableRowLayout:
    """The table's columns and `_op`, `_seq`, `_ts_ms`, `_txn`, `_position`."""

    table: TableSchema

    @property
    def schema(self) -> pa.Schema:
        """See RowLayout."""
        return row_schema(self.table)

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See RowLayout."""
        for batch in changes:
            yield to_rows(fit_batch(batch, self.table))


@dataclass(frozen=True)
class EnvelopeLayout:
    """before, after, op, source and ts_ms, with the images and `source` as structs."""

    table: TableSchema
    name: str
    connector: str

    @property
    def schema(self) -> pa.Schema:
        """See RowLayout."""
        return envelope_schema(self.table)

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See RowLayout."""
        for batch in changes:
            fitted = fit_batch(batch, self.table)
            yield to_envelopes(fitted, name=self.name, now_ms=_now_ms(), connector=self.connector)


@dataclass(frozen=True)
class MessageLayout:
    """Debezium's topic, key, value, headers, partition."""

    topic_prefix: str
    schemas: bool
    connector: str
    modes: Modes
    run_id: str | None
    database: str

    @property
    def schema(self) -> pa.Schema:
        """See RowLayout."""
        from tailrace.formats.debezium.messages import debezium_schema  # noqa: PLC0415 - see the module

        return debezium_schema()

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See RowLayout."""
        from tailrace.formats.connect.envelopes import Envelopes  # noqa: PLC0415
        from tailrace.formats.connect.topics import Topics  # noqa: PLC0415
        from tailrace.formats.debezium.headers import context_of  # noqa: PLC0415
        from tailrace.formats.debezium.messages import DebeziumFormat  # noqa: PLC0415 - see the module

        prefix, connector = self.topic_prefix, self.connector
        envelopes = Envelopes(
            Topics(prefix, messages=connector == "postgresql"),
            connector,
            modes=self.modes,
            database=self.database,
        )
        context = None if self.run_id is None else context_of(prefix, connector, self.run_id)
        format_ = DebeziumFormat(envelopes, self.schemas, context)
        for batch in changes:
            yield format_.to_messages(batch, now_ms=_now_ms())


@dataclass(frozen=True)
class CellLayout:
    """Arrow cells, for pipelines."""

    @property
    def schema(self) -> pa.Schema:
        """See RowLayout."""
        return CELL_SCHEMA

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See RowLayout."""
        return map(cell_row, changes)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
