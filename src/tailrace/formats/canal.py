"""Canal's flat messages in JSON (`canal-json`), one row per message: for consumers of Canal's topics.

    data       the row after the change (INSERT, UPDATE) or before it (DELETE), in an array
    old        UPDATE: old values of the columns that changed; null otherwise
    type       INSERT (also for rows of a snapshot), UPDATE, DELETE
    es, ts     commit time and processing time, milliseconds since 1970 UTC
    mysqlType, sqlType, pkNames   the columns' declared types, their JDBC codes, the key columns
    gtid, id   the transaction; the log position of the change's event (Canal: a sequence number)

All values are text, as MySQL prints them (`formats.connect.plaintext`). ENUM and SET values are labels; Canal
writes their numbers. A key update is a DELETE and an INSERT, as everywhere in Tailrace; Canal writes one
UPDATE. There are no tombstones. Columns that the log omits (`binlog_row_image`) are omitted.

Source: alibaba/canal wiki and `FlatMessage`; Apache Flink documentation, "Canal Format".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.base import SchemaIds
from tailrace.formats.connect.plaintext import as_text
from tailrace.formats.connect.sql_types import declared_type, jdbc_code
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.json_documents import operations
from tailrace.formats.encodings.layout import dumps
from tailrace.formats.encodings.records import Field, FieldGroup, write
from tailrace.formats.kernels import records
from tailrace.formats.row import absent_columns
from tailrace.model.change import OP_DELETE, OP_UPDATE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType

_TYPES = pa.array(["INSERT", "INSERT", "UPDATE", "DELETE", "INSERT"])


@dataclass(frozen=True)
class CanalEncoding:
    """Values as Canal writes them; keys as Debezium's JSON, because Canal has none.

    Args:
        keys_as: writes the keys.
    """

    keys_as: DebeziumFormat
    has_tombstones: bool = False

    def key_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def value_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:  # noqa: ARG002 - has no schemas
        """See Encoding."""
        return self.keys_as.keys(batch)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:  # noqa: ARG002
        """See Encoding."""
        table, origin = batch.table, batch.origin
        op = operations(batch)
        before, after = ([as_text(c, t) for c, t in _columns(batch, side)] for side in ("before", "after"))
        updated = op == OP_UPDATE
        es = pc.divide(origin.column("ts_us"), 1000).cast(pa.string())
        types = {c.name: declared_type(c.type) for c in table.columns}
        codes = {c.name: jdbc_code(c.type) for c in table.columns}
        keys = dumps(list(table.key)) if table.key else "null"
        names = f'"sqlType":{dumps(codes)},"table":{dumps(table.id.table)},"ts":{now_ms},"type":'
        closing = f',"pkNames":{keys},"sql":"",{names}'
        data = _data(batch, op, before, after)
        parts = [
            FieldGroup(records.ALWAYS, data, b'{"data":[', records.OBJECT),
            FieldGroup(
                records.ALWAYS,
                [
                    _raw(f'}}],"database":{dumps(table.id.database)},"es":', es),
                    _text(',"gtid":', origin.column("txn").dictionary_decode(), '""'),
                    _raw(',"id":', origin.column("pos").cast(pa.string())),
                    _literal(f',"isDdl":false,"mysqlType":{dumps(types)},"old":'),
                ],
            ),
            FieldGroup(
                records.IF_SET,
                _old(batch, updated, before, after),
                b"[",
                records.OBJECT,
                b"null",
                pa.array(updated, mask=~updated),
            ),
            FieldGroup(records.IF_SET, [_literal("}]")], image=pa.array(updated, mask=~updated)),
            FieldGroup(records.ALWAYS, [_text(closing, _TYPES.take(batch.op)), _literal("}")]),
        ]
        return write(parts, batch, zigzag=False)


def _columns(batch: ChangeBatch, side: str) -> list[tuple[pa.Array, ColumnType]]:
    """The columns of an image with their types; values of a missing image are null."""
    image = batch.image(side).flatten()
    return [(array, column.type) for array, column in zip(image, batch.table.columns, strict=True)]


def _data(batch: ChangeBatch, op: np.ndarray, before: list[pa.Array], after: list[pa.Array]) -> list[Field]:
    """The fields of `data`; an unchanged column of an update may be in the before image only."""
    lacking = {side: set(absent_columns(batch, side)) for side in ("before", "after")}
    deleted = op == OP_DELETE
    fields = []
    for column, old, new in zip(batch.table.columns, before, after, strict=True):
        from_old, left_out = deleted.copy(), np.zeros(len(batch), bool)
        if column.name in lacking["before"]:
            left_out |= deleted
        if column.name in lacking["after"]:
            unchanged = op == OP_UPDATE
            if column.name in lacking["before"]:
                left_out |= unchanged
            else:
                from_old |= unchanged
            left_out |= ~deleted & ~unchanged
        shown = new if not from_old.any() else pc.if_else(pa.array(from_old), old, new)
        skip = left_out if left_out.any() else None
        fields.append(_text(f",{dumps(column.name)}:", shown, skip=skip))
    return fields


def _old(
    batch: ChangeBatch, updated: np.ndarray, before: list[pa.Array], after: list[pa.Array]
) -> list[Field]:
    """The fields of `old`: columns that updates changed, with their old values."""
    if not updated.any():
        return []
    unknown = {*absent_columns(batch, "before"), *absent_columns(batch, "after")}
    fields = []
    for column, old, new in zip(batch.table.columns, before, after, strict=True):
        same = pc.fill_null(pc.equal(old, new), False)
        both_null = pc.and_(old.is_null(), new.is_null())
        skip = pc.or_(same, both_null).to_numpy(zero_copy_only=False)
        if column.name in unknown:
            skip = np.ones(len(batch), bool)
        if not skip[updated].all():
            fields.append(_text(f",{dumps(column.name)}:", old, skip=skip))
    return fields


def _text(label: str, array: pa.Array, null: str = "null", skip: np.ndarray | None = None) -> Field:
    named = label.encode()
    return Field(label, named, array, records.JSON_TEXT, named + null.encode(), skip=skip)


def _raw(label: str, array: pa.Array) -> Field:
    return Field(label, label.encode(), array, records.RAW_TEXT, label.encode() + b"null")


def _literal(text: str) -> Field:
    return Field(text, text.encode())
