"""Changes as CloudEvents in JSON (`cloudevents`): what Debezium's CloudEventsConverter makes of its messages.

    id, source, specversion, type, time, datacontenttype    CloudEvents' own attributes
    iodebezium...                                           the operation, `source` and `transaction`
    data                                                    `before` and `after`, with their schema or without

Extension attributes have no 64-bit integers: those are texts. `id` is that of Debezium: the rows of one event
of MySQL's binlog share it.

Data in Avro does not exist here: the converter names the data's schema alike for all tables, and hands it to
Confluent's or Apicurio's converter and registry, so that there is nothing of Debezium's to compare with.

Source: debezium/debezium v3.6.1 (`CloudEventsConverter`, `CloudEventsMaker`, `MySqlCloudEventsMaker`,
`PostgresCloudEventsMaker`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.base import SchemaIds
from tailrace.formats.connect.builders import struct
from tailrace.formats.connect.schemas import row_schema
from tailrace.formats.connect.source_block import ORACLE, POSTGRES, SourceField, origin_values, source_fields
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.json_documents import row_texts
from tailrace.formats.encodings.layout import Cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.formats.row import op_letters
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema

_EXTENSION = "iodebezium"
#: Fields of `source` in the event's id.
_ID = {POSTGRES: ("lsn", "txId", "sequence"), ORACLE: ("scn", "commit_scn")}
_ID_OF_BINLOG = ("file", "pos")


@dataclass(frozen=True)
class CloudEventsEncoding:
    """Values as CloudEvents, keys as Debezium's JSON.

    Args:
        format: writes keys and rows; with their schemas, if it has them.
        has_extensions: whether events have the attributes `iodebezium...`.
    """

    format: DebeziumFormat
    has_extensions: bool = True
    has_tombstones: bool = True

    def key_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def value_schema(self, table: TableSchema) -> None:
        """See Encoding."""

    def keys(self, batch: ChangeBatch, ids: SchemaIds) -> pa.Array:  # noqa: ARG002 - has no schemas
        """See Encoding."""
        return self.format.keys(batch)

    def values(self, batch: ChangeBatch, now_ms: int, ids: SchemaIds) -> pa.Array:  # noqa: ARG002
        """See Encoding."""
        block = self.format.envelopes.source
        logical_name = dumps(f"/debezium/{block.connector}/{block.name}")
        kind = f'"type":"io.debezium.connector.{block.connector}.DataChangeEvent"'
        cells = [
            Cell('{"id":', self._ids(batch), value_kinds.STRING),
            Cell(
                f',"source":{logical_name},"specversion":"1.0",{kind},"time":',
                _times(batch),
                value_kinds.STRING,
            ),
        ]
        label = ',"datacontenttype":"application/json"'
        if self.has_extensions:
            extensions, label = self._extensions(batch, label)
            cells += extensions
        cells.append(Cell(f'{label},"data":', self._data(batch), value_kinds.RAW))
        return row_texts(cells, "}", len(batch), batch.table)

    def _ids(self, batch: ChangeBatch) -> pa.Array:
        block = self.format.envelopes.source
        fields = {field.name: field for field in source_fields(block.connector)}
        pieces: list[pa.Array | str] = [f"name:{block.name}"]
        for name in _ID.get(block.connector, _ID_OF_BINLOG):
            pieces += [f";{name}:", _text(fields[name], batch).fill_null("null")]
        return pc.binary_join_element_wise(*pieces, "")

    def _extensions(self, batch: ChangeBatch, label: str) -> tuple[list[Cell], str]:
        """The attributes behind `label`, and the text behind them."""
        block = self.format.envelopes.source
        constants = block.constants(batch.table.id)
        cells = [Cell(f'{label},"{_EXTENSION}op":', op_letters(batch), value_kinds.STRING)]
        label = ""
        for field in source_fields(block.connector):
            label += f',"{_name(field.name)}":'
            if field.column is None:
                label += dumps(constants.get(field.name))
            elif field.type == "int32":
                array = origin_values(batch, field.column)
                cells.append(Cell(label, array, field.kind, field.absent))
                label = ""
            else:
                cells.append(Cell(label, _text(field, batch), value_kinds.STRING))
                label = ""
        names = [_name(f"tx{name}") for name in ("id", "total_order", "data_collection_order")]
        if batch.order is None:
            return cells, label + "".join(f',"{name}":null' for name in names)
        order = [pc.struct_field(batch.order, i).cast(pa.string()) for i in range(2)]
        id_ = batch.origin.column("txn").dictionary_decode()
        for name, array in zip(names, [id_, *order], strict=True):
            cells.append(Cell(f'{label},"{name}":', array, value_kinds.STRING))
            label = ""
        return cells, label

    def _data(self, batch: ChangeBatch) -> pa.Array:
        """The rows before and after each change, as JSON texts."""
        form, table = self.format, batch.table
        opening, end = "", ""
        if form.schemas:
            of = form.envelopes
            row = row_schema(table, of.topics.topic(table.id), of.modes, optional=True)
            name = f"io.debezium.connector.{of.connector}.Data"
            schema = struct([{**row, "field": side} for side in ("before", "after")], name)
            opening, end = f'{{"schema":{dumps(schema)},"payload":', "}"
        return form.images(batch, opening, end).cast(pa.string())


def _name(field: str) -> str:
    """The name of an attribute: letters and digits."""
    return _EXTENSION + "".join(c for c in field if c.isascii() and c.isalnum())


def _text(field: SourceField, batch: ChangeBatch) -> pa.Array:
    """A field of `source` as text, null where it is null."""
    assert field.column is not None
    array = origin_values(batch, field.column)
    if field.type == "string":
        return array.fill_null("") if field.absent == '""' else array
    if field.absent != "null":
        array = array.fill_null(int(field.absent))
    if field.kind == value_kinds.MILLIS:
        array = pc.divide(array, 1000)
    elif field.kind == value_kinds.NANOS:
        array = pc.multiply(array, 1000)
    return array.cast(pa.string())


def _times(batch: ChangeBatch) -> pa.Array:
    """The commit's time of each change in RFC 3339, in milliseconds."""
    ms = pc.divide(batch.origin.column("ts_us").fill_null(0), 1000)
    texts = ms.cast(pa.timestamp("ms")).cast(pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")
