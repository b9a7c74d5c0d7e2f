"""Flat rows in JSON (`flat-json`): what Debezium's transform ExtractNewRecordState makes of its messages.

    value   the columns of the row after the change, then `__deleted`, then the added fields
    delete  `tombstone`                 no value: the tombstone alone
            `rewrite`                   the deleted row, with `__deleted` "true"
            `rewrite-with-tombstone`    the same, then the tombstone

Columns are written as in the envelope. Keys, headers and topics are Debezium's. Logical messages have no row
and stay as they are, as with the transform.

Source: Debezium documentation, "New Record State Extraction"; debezium/debezium
(`ExtractNewRecordState`, `AbstractExtractRecordStrategy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.flat_fields import DELETED, AddedField
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.base import SchemaIds
from tailrace.formats.connect.source_block import origin_values, source_fields
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.layout import Cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.formats.row import op_letters
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableSchema


@dataclass(frozen=True)
class Flat:
    """What `flat-json` writes.

    Args:
        added: the fields after the columns.
        has_rows_of_deletes: whether a delete has its row, with DELETED, rather than no value.
        has_tombstones: whether a message without a value follows a delete.
    """

    added: Sequence[AddedField] = ()
    has_rows_of_deletes: bool = False
    has_tombstones: bool = False


@dataclass(frozen=True)
class FlatEncoding:
    """Values as flat rows, keys as Debezium's JSON.

    Args:
        format: writes keys, and rows as objects.
        flat: what is written.

    Raises:
        ConfigError: the source's kind has no such field.
    """

    format: DebeziumFormat
    flat: Flat

    def __post_init__(self) -> None:
        connector = self.format.envelopes.connector
        names = [field.name for field in source_fields(connector)]
        for added in self.flat.added:
            if added.struct == "source" and added.field not in names:
                raise ConfigError(
                    "`sink.add-fields` names a field that no message has",
                    f"found `{added.field}`; `source` of {connector} has {', '.join(names)}",
                    "name one of these, or remove the item",
                    code="TR-1010",
                )

    @property
    def has_tombstones(self) -> bool:
        """See Encoding."""
        return self.flat.has_tombstones

    def key_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def value_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:  # noqa: ARG002 - has no schemas
        """See Encoding."""
        return self.format.keys(batch)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:  # noqa: ARG002
        """See Encoding.

        Raises:
            SinkError: a column has the name of an added field.
        """
        if batch.table == MESSAGES:
            return self.format.values(batch, now_ms)
        deleted = pa.array(operations(batch) == OP_DELETE)
        cells = [self._cell(field, batch, now_ms) for field in self.flat.added]
        if self.flat.has_rows_of_deletes:
            marks = pc.if_else(deleted, "true", "false")
            cells.insert(0, Cell(f',"{DELETED}":', marks, value_kinds.STRING))
        self._check_names(batch.table)
        rows = self.format.rows(batch, cells)
        if self.flat.has_rows_of_deletes or not pc.any(deleted).as_py():
            return rows
        return pc.if_else(deleted, pa.scalar(None, pa.binary()), rows)

    def _check_names(self, table: TableSchema) -> None:
        names = {field.name for field in self.flat.added} | (
            {DELETED} if self.flat.has_rows_of_deletes else set()
        )
        for column in table.columns:
            if column.name in names:
                raise SinkError(
                    f"column `{column.name}` of table `{table.id}` has the name of an added field",
                    f"`flat-json` adds {', '.join(f'`{name}`' for name in sorted(names))}",
                    "set `add-fields-prefix`, or rename the column with a transform",
                    code="TR-7005",
                )

    def _cell(self, field: AddedField, batch: ChangeBatch, now_ms: int) -> Cell:
        """The values of an added field."""
        label = f",{dumps(field.name)}:"
        if field.struct == "transaction":
            return _of_transaction(label, field.field, batch)
        if field.field == "op" and not field.struct:
            return Cell(label, op_letters(batch), value_kinds.STRING)
        if not field.struct:
            return _constant(label, str(now_ms), batch)
        block = self.format.envelopes.source
        of = next(f for f in source_fields(block.connector) if f.name == field.field)
        if of.column is None:
            return _constant(label, dumps(block.constants(batch.table.id).get(of.name)), batch)
        return Cell(label, origin_values(batch, of.column), of.kind, of.absent)


def _of_transaction(label: str, field: str, batch: ChangeBatch) -> Cell:
    """A field of the block `transaction`, null where a change has none."""
    if batch.order is None:
        return _constant(label, "null", batch)
    if field == "id":
        return Cell(label, batch.origin.column("txn").dictionary_decode(), value_kinds.STRING)
    return Cell(label, pc.struct_field(batch.order, field), value_kinds.INT64)


def _constant(label: str, text: str, batch: ChangeBatch) -> Cell:
    """The same JSON text for each change."""
    return Cell(label, pa.nulls(len(batch), pa.string()), value_kinds.STRING, text)
