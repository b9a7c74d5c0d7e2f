"""The `debezium` shape: Kafka messages as Debezium's connectors write them with the JSON converter.

    topic       `<prefix>.<database>.<table>`
    key         JSON of the key's columns, null for a table without a key
    value       JSON of the envelope: before, after, source, transaction, op, ts_ms, ts_us, ts_ns
    headers     of key updates, of partial row images, and Debezium's context: `formats.debezium.headers`

A delete is followed by a tombstone: the same key and headers, no value. A key update is a delete of the old
key with the header `__debezium.newkey`, its tombstone, and a create of the new key with the header
`__debezium.oldkey`. Readers have already split it (see `sources.mysql.position.seq_of`); only the pair has to
be recognised here. The headers hold the other key as encoded in messages, which is the output of Connect's
JSON converter set as `header.converter`.

The text equals the output of Connect's converter byte for byte (field order, escapes, `1.0E10`), for two
reasons: Kafka compacts and partitions by the bytes of the key, and consumers need no new tests. Where
Debezium's snapshot and log reading differ, both have the log's form: a TIMESTAMP(3) always has three digits.
Values that depend on Debezium's own run are:

* `source.snapshot` is "true" for every row read by a SELECT. Debezium also marks a table's first and last
  rows, which a snapshot concurrent with the log does not know.
* `source.version` is Tailrace's version. `source.ts_ms` is 0 if the commit time is unknown.
* `source.query` is null, as with Debezium's defaults. `transaction` is null unless the changes' order in it
  was counted (ChangeBatch.order).
* The three top-level times are `now_ms`, a parameter: the rest is a pure function of the batch. A replay that
  must give the same bytes passes the same time.

Source: debezium/debezium v3.6.1 (`Envelope`, `SchemaFactory`, `BinlogSourceInfoStructMaker`,
`RelationalChangeRecordEmitter`, `EventDispatcher`, `AbstractTopicNamingStrategy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.connect import postgres, schemas
from tailrace.formats.connect.builders import Schema
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.source_block import POSTGRES
from tailrace.formats.debezium import logical
from tailrace.formats.debezium.headers import HEADERS, headers_of
from tailrace.formats.encodings.json_documents import Document, operations, write
from tailrace.formats.encodings.layout import Cell, cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.formats.row import op_letters
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId, TableSchema


def debezium_schema() -> pa.Schema:
    """The columns of `DebeziumFormat.to_messages`, which are those of Spark's Kafka sink."""
    return pa.schema(
        [
            pa.field("topic", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", HEADERS),
            pa.field("partition", pa.int32()),
        ]
    )


@dataclass(frozen=True)
class DebeziumFormat:
    """Converts changes to Debezium's messages.

    Args:
        envelopes: schemas and names.
        schemas: whether keys and values carry their Connect schema (`schemas.enable`).
        context: the context headers by the suffix of their names (`headers.context_of`); None: none.
        headers: headers that each message has, with their text.
    """

    envelopes: Envelopes
    schemas: bool = False
    context: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes, which is also the prefix of its schemas' names."""
        return self.envelopes.topics.topic(table)

    def to_messages(self, batch: ChangeBatch, now_ms: int) -> pa.RecordBatch:
        """One message per change, two per delete, in the changes' order.

        Args:
            batch: changes of one table.
            now_ms: processing time to write, milliseconds since 1970 UTC.

        Returns:
            A record batch with schema `debezium_schema()`; `partition` is null: Kafka chooses it by the key.

        Raises:
            SinkError: the messages of the batch are larger than 2 GiB.
        """
        topic = self.topic(batch.table.id)
        if batch.table == MESSAGES:
            keys, values = logical.write(batch, self.envelopes, now_ms, schemas=self.schemas)
        else:
            keys, values = write(self._document(batch, topic, now_ms), batch)
        deletes = operations(batch) == OP_DELETE
        # a change's message follows those of earlier changes and their tombstones
        first_message = np.arange(len(batch)) + np.cumsum(deletes) - deletes
        headers = headers_of(
            batch,
            keys,
            first_message,
            schemas=self.schemas,
            context=self.context,
            constants=self.headers,
        )
        if len(values) > len(batch):
            headers = headers.take(pa.array(np.repeat(np.arange(len(batch)), 1 + deletes)))
        columns = [
            pa.repeat(pa.scalar(topic, pa.string()), len(values)),
            keys,
            values,
            headers,
            pa.nulls(len(values), pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=debezium_schema())

    def keys(self, batch: ChangeBatch) -> pa.Array:
        """The key of each change; null for a table without a key."""
        if batch.table == MESSAGES:
            return logical.write(batch, self.envelopes, 0, schemas=self.schemas)[0]
        whole = self._document(batch, self.topic(batch.table.id), 0)
        alone = replace(whole, head="", before=[], middle="", after=[], source=[], tail="")
        keys, values = write(alone, batch)
        return keys.filter(values.is_valid())

    def values(self, batch: ChangeBatch, now_ms: int) -> pa.Array:
        """The value of each change; see `to_messages`."""
        if batch.table == MESSAGES:
            return logical.write(batch, self.envelopes, now_ms, schemas=self.schemas)[1]
        whole = self._document(batch, self.topic(batch.table.id), now_ms)
        _, values = write(replace(whole, key_before=[], key_after=[]), batch)
        return values.drop_null()

    def images(self, batch: ChangeBatch, opening: str, end: str) -> pa.Array:
        """One object per change: the rows before and after it.

        Args:
            batch: changes of one table.
            opening: text before each object.
            end: text behind it.
        """
        whole = self._document(batch, "", 0)
        head, tail = f'{opening}{{"before":', f"}}{end}"
        _, values = write(replace(whole, head=head, source=[], tail=tail, key_before=[], key_after=[]), batch)
        return values.drop_null()

    def rows(self, batch: ChangeBatch, added: Sequence[Cell], schema: Schema | None = None) -> pa.Array:
        """One object per change: the columns of the row after it, or of the deleted row, and `added`.

        Args:
            batch: changes of one table.
            added: further values, one per change; their labels begin with a comma.
            schema: the objects' Connect schema, to be written with each; None: without.
        """
        opening, end = "{", "}"
        if schema is not None:
            opening, end = f'{{"schema":{dumps(schema)},"payload":{{', "}}"
        of, table = self.envelopes, batch.table
        names = [c.name for c in table.columns]
        is_postgres = of.connector == POSTGRES
        before = _image(table, names, batch.before, opening, of.modes, filled=is_postgres)
        unknown = batch.absent_after if is_postgres else ()
        after = _image(table, names, batch.after, opening, of.modes, unknown=unknown)
        # written as keys are: of the before image for a delete, of the after image otherwise
        before, after = ([*side, *added] if side else [] for side in (before, after))
        rows, values = write(Document("", [], "", [], [], "", before, after, end), batch)
        return rows.filter(values.is_valid())

    def _document(self, batch: ChangeBatch, topic: str, now_ms: int) -> Document:
        of, table = self.envelopes, batch.table
        value_opening, key_opening, closing = "{", "{", "}"
        if self.schemas:
            schema = dumps(schemas.envelope_schema(table, topic, of.connector, of.modes))
            value_opening = f'{{"schema":{schema},"payload":{{'
            key_opening = f'{{"schema":{dumps(of.plain_key(table))},"payload":{{'
            closing = "}}"
        now = f',"ts_ms":{now_ms},"ts_us":{now_ms * 1000},"ts_ns":{now_ms * 1_000_000}'
        names = [c.name for c in table.columns]
        unknown = batch.absent_after if of.connector == POSTGRES else ()
        return Document(
            head=f'{value_opening}"before":',
            before=_image(table, names, batch.before, "{", of.modes, filled=of.connector == POSTGRES),
            middle=',"after":',
            after=_image(table, names, batch.after, "{", of.modes, unknown=unknown),
            source=self._source(batch),
            tail=now + closing,
            key_before=self._key(batch, batch.before, key_opening),
            key_after=self._key(batch, batch.after, key_opening),
            key_tail=closing,
        )

    def _key(self, batch: ChangeBatch, image: pa.StructArray | None, opening: str) -> list[Cell]:
        """The fields of the keys; none if there is no image, or no key."""
        of, table = self.envelopes, batch.table
        cells = _image(table, table.key, image, opening, of.modes)
        added = of.topics.key_field(table.id) if cells else None
        if added is None:
            return cells
        name, value = added
        nulls = pa.nulls(len(batch), pa.string())
        return [*cells, Cell(f",{dumps(name)}:", nulls, value_kinds.STRING, dumps(value))]

    def _source(self, batch: ChangeBatch) -> list[Cell]:
        """The values from `source` to `op`; constants are part of the labels."""
        block = self.envelopes.source
        constants = block.constants(batch.table.id)
        label, cells = ',"source":{', []
        for field, array in block.columns(batch):
            label += f'"{field.name}":'
            if array is None:
                label += f"{dumps(constants.get(field.name))},"
            else:
                cells.append(Cell(label, array, field.kind, field.absent))
                label = ","
        return [*cells, *_closing(batch, label.removesuffix(",") + "}")]


def _closing(batch: ChangeBatch, end: str) -> list[Cell]:
    """The values after those of `source`: its `end`, the transaction, the operation."""
    letters = op_letters(batch)
    if batch.order is None:
        return [Cell(f'{end},"transaction":null,"op":', letters, value_kinds.STRING)]
    total, own = (batch.order.field(i).cast(pa.string()) for i in range(2))
    # an id consists of characters that JSON does not escape
    txn = batch.origin.column("txn").dictionary_decode()
    pieces = ['{"id":"', txn, '","total_order":', total, ',"data_collection_order":', own, "}", ""]
    block = pc.binary_join_element_wise(*pieces)
    return [
        Cell(f'{end},"transaction":', block, value_kinds.RAW),
        Cell(',"op":', letters, value_kinds.STRING),
    ]


def _image(
    table: TableSchema,
    names: Sequence[str],
    image: pa.StructArray | None,
    opening: str,
    modes: Modes,
    *,
    unknown: Sequence[str] = (),
    filled: bool = False,
) -> list[Cell]:
    """The named columns of a row image as the fields of an object; none if there is no image.

    Args:
        table: the table.
        names: names of the columns.
        image: the row image.
        opening: text before the first field.
        modes: Debezium's handling modes.
        unknown: columns whose values are unknown: a placeholder is written.
        filled: see `layout.cell`.
    """
    if image is None:
        return []
    index_of = {column.name: i for i, column in enumerate(table.columns)}
    cells: list[Cell] = []
    for name in names:
        column = table.columns[index_of[name]]
        label = f"{',' if cells else opening}{dumps(name)}:"
        if name in unknown:
            placeholder = postgres.placeholder(column.type, modes) or "null"
            cells.append(Cell(label, pa.nulls(len(image), pa.string()), value_kinds.STRING, placeholder))
            continue
        array = image.field(index_of[name])
        cells.append(cell(label, array, column, modes, table.id, filled=filled))
    return cells
