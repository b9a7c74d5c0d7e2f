"""Fields of the envelope beside a flat row, as values or headers: `add.fields` and `add.headers`.

A field keeps its type and is optional, as with Debezium's transform. A field of `before` or `after` is there
for tables that have such a column, and null where a change has no such row.

Source: debezium/debezium v3.6.1 (`AbstractExtractNewRecordState.FieldReference`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.flat_fields import ROWS, AddedField
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.connect.builders import Schema, primitive
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.schemas import TRANSACTION, type_schema
from tailrace.formats.connect.source_block import origin_values, source_fields
from tailrace.formats.encodings.json_documents import row_texts
from tailrace.formats.encodings.layout import Cell, cell, dumps
from tailrace.formats.encodings.records import FieldValues
from tailrace.formats.kernels import value_kinds
from tailrace.formats.row import op_letters
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema


def check_fields(fields: Sequence[AddedField], connector: str, setting: str) -> None:
    """Check that messages of a connector have these fields.

    Raises:
        ConfigError: they have not.
    """
    names = [field.name for field in source_fields(connector)]
    for added in fields:
        if added.struct == "source" and added.field not in names:
            raise ConfigError(
                f"`sink.{setting}` names a field that no message has",
                f"found `{added.field}`; `source` of {connector} has {', '.join(names)}",
                "name one of these, or remove the item",
                code="TR-1010",
            )


def of_table(fields: Sequence[AddedField], table: TableSchema) -> list[AddedField]:
    """Those of the fields that messages of a table have."""
    columns = table.arrow.names
    return [added for added in fields if added.struct not in ROWS or added.field in columns]


def added_schema(added: AddedField, table: TableSchema, envelopes: Envelopes) -> Schema:
    """The schema of a field, one that the table has.

    Raises:
        SinkError: it is a list, or has fields of its own.
    """
    if added.struct in ROWS:
        schema = type_schema(table.column(added.field).type, envelopes.modes, optional=True)
        if schema["type"] in ("struct", "array"):
            raise SinkError(
                f"column `{added.field}` of table `{table.id}` cannot be added to rows",
                f"`{added.struct}.{added.field}` is a list, or has fields of its own",
                "leave the item out; with a pattern for several tables, rename the column by a transform",
                code="TR-7614",
            )
    elif added.struct == "source":
        schema = next(f for f in source_fields(envelopes.connector) if f.name == added.field).schema
    elif added.struct == "transaction":
        schema = next(f for f in TRANSACTION["fields"] if f["field"] == added.field)
    else:
        schema = primitive("string" if added.field == "op" else "int64", added.field)
    return {
        **{name: value for name, value in schema.items() if name not in ("default", "field")},
        "optional": True,
        "field": added.name,
    }


def added_values(
    fields: Sequence[AddedField], batch: ChangeBatch, now_ms: int, envelopes: Envelopes
) -> Iterator[FieldValues]:
    """The values of the fields that the batch's table has.

    Raises:
        SinkError: a column cannot be added.
    """
    for added in of_table(fields, batch.table):
        schema = added_schema(added, batch.table, envelopes)
        found = _values(added, batch, now_ms, envelopes)
        yield FieldValues(schema, found) if isinstance(found, Cell) else FieldValues(schema, None, found)


def as_json(values: FieldValues, rows: int, label: str) -> Cell:
    """Values as a cell of a JSON document, behind `label`."""
    if values.cell is not None:
        c = values.cell
        return Cell(label, c.array, c.kind, c.absent, c.detail)
    return Cell(label, pa.nulls(rows, pa.string()), value_kinds.STRING, dumps(values.constant))


def header_values(
    fields: Sequence[AddedField], batch: ChangeBatch, now_ms: int, envelopes: Envelopes, *, schemas: bool
) -> Mapping[str, pa.Array]:
    """The fields as headers of each change, as Connect's JSON converter writes them.

    Raises:
        SinkError: a column cannot be added.
    """
    found = {}
    for values in added_values(fields, batch, now_ms, envelopes):
        schema = {name: value for name, value in values.schema.items() if name != "field"}
        opening, end = (f'{{"schema":{dumps(schema)},"payload":', "}") if schemas else ("", "")
        texts = row_texts([as_json(values, len(batch), opening)], end, len(batch), batch.table)
        found[values.schema["field"]] = texts
    return found


def tombstone_headers(fields: Sequence[AddedField], rows: int, *, schemas: bool) -> Mapping[str, pa.Array]:
    """The headers of tombstones that are kept: the operation alone."""
    document = {"schema": {"type": "string", "optional": False}, "payload": "d"} if schemas else "d"
    text = pa.scalar(dumps(document).encode(), pa.binary())
    return {field.name: pa.repeat(text, rows) for field in fields if field.field == "op" and not field.struct}


def _values(
    added: AddedField, batch: ChangeBatch, now_ms: int, envelopes: Envelopes
) -> Cell | str | int | None:
    """The values, or the one that all changes have."""
    match added.struct, added.field:
        case "before", column:
            return _of_row(batch, batch.before, column, envelopes.modes)
        case "after", column:
            return _of_row(batch, batch.after, column, envelopes.modes)
        case "transaction", _ if batch.order is None:
            return None
        case "transaction", "id":
            return Cell("", batch.origin.column("txn").dictionary_decode(), value_kinds.STRING)
        case "transaction", field:
            return Cell("", pc.struct_field(batch.order, field), value_kinds.INT64)
        case "source", field:
            block = envelopes.source
            of = next(f for f in source_fields(block.connector) if f.name == field)
            if of.column is None:
                return block.constants(batch.table.id).get(field)
            array = origin_values(batch, of.column)
            default = json.loads(of.absent)
            return Cell("", array if default is None else array.fill_null(default), of.kind)
        case _, "op":
            return Cell("", op_letters(batch), value_kinds.STRING)
    return now_ms * {"ts_ms": 1, "ts_us": 1000, "ts_ns": 1_000_000}[added.field]


def _of_row(batch: ChangeBatch, image: pa.StructArray | None, name: str, modes: Modes) -> Cell | None:
    """A column of a row image, null where a change has no such row."""
    if image is None:
        return None
    at = batch.table.arrow.get_field_index(name)
    array = pc.struct_field(image, at)  # null where the row is
    made = cell("", array, batch.table.column(name), modes, batch.table.id)
    if made.absent == "null":
        return made
    # a zero date of a NOT NULL column is the epoch, but a row that is not there has no date
    zero = json.loads(made.absent)
    array = made.array
    if not pa.types.is_string(array.type):
        width = pa.int32() if array.type.bit_width == 32 else pa.int64()
        filler = pa.scalar(int(zero) if not isinstance(zero, str) else 0, width).cast(array.type)
    else:
        filler = pa.scalar(zero, array.type)
    filled = pc.if_else(pc.and_(image.is_valid(), array.is_null()), filler, array)
    return Cell("", filled, made.kind, "null", made.detail)
