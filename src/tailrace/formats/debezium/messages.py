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
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.connect import schemas
from tailrace.formats.connect.builders import Schema
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.source_block import POSTGRES, SourceBlock, source_fields
from tailrace.formats.debezium import logical
from tailrace.formats.debezium.headers import HEADERS, headers_of
from tailrace.formats.encodings.json_documents import Document, operations, write
from tailrace.formats.encodings.json_parts import (
    NO_PART,
    DocumentPart,
    PartTemplate,
    joined,
    part_of,
    row_objects,
)
from tailrace.formats.encodings.layout import Cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.formats.row import op_letters
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId


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
        if headers.null_count == len(headers):
            headers = pa.nulls(len(values), HEADERS)
        elif len(values) > len(batch):
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
        alone = replace(whole, head="", before=NO_PART, middle="", after=NO_PART, source=NO_PART, tail="")
        keys, values = write(alone, batch)
        return keys.filter(values.is_valid())

    def values(self, batch: ChangeBatch, now_ms: int) -> pa.Array:
        """The value of each change; see `to_messages`."""
        if batch.table == MESSAGES:
            return logical.write(batch, self.envelopes, now_ms, schemas=self.schemas)[1]
        whole = self._document(batch, self.topic(batch.table.id), now_ms)
        _, values = write(replace(whole, key_before=NO_PART, key_after=NO_PART), batch)
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
        alone = replace(whole, head=head, source=NO_PART, tail=tail, key_before=NO_PART, key_after=NO_PART)
        _, values = write(alone, batch)
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
        before, after = self._images(batch, opening)
        if added:
            more = part_of(added)
            before, after = (joined(side, more) if len(side) else side for side in (before, after))
        # written as keys are: of the before image for a delete, of the after image otherwise
        rows, values = write(Document("", NO_PART, "", NO_PART, NO_PART, "", before, after, end), batch)
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
        before, after = self._images(batch, "{")
        return Document(
            head=f'{value_opening}"before":',
            before=before,
            middle=',"after":',
            after=after,
            source=self._source(batch),
            tail=now + closing,
            key_before=self._key(batch, batch.before, key_opening),
            key_after=self._key(batch, batch.after, key_opening),
            key_tail=closing,
        )

    def _images(self, batch: ChangeBatch, opening: str) -> tuple[DocumentPart, DocumentPart]:
        """The fields of the rows before and after the changes; none if there is no such image."""
        of, (before, after) = self.envelopes, (batch.before, batch.after)
        is_postgres = of.connector == POSTGRES
        unknown = batch.absent_after if is_postgres else ()
        of_before = row_objects(batch.table, opening, of.modes, filled=is_postgres)
        of_after = row_objects(batch.table, opening, of.modes, unknown=unknown)
        return (
            NO_PART if before is None else of_before.part(before),
            NO_PART if after is None else of_after.part(after),
        )

    def _key(self, batch: ChangeBatch, image: pa.StructArray | None, opening: str) -> DocumentPart:
        """The fields of the keys; none if there is no image, or no key."""
        of, table = self.envelopes, batch.table
        if image is None or not table.key:
            return NO_PART
        part = row_objects(table, opening, of.modes, of_key=True).part(image)
        added = of.topics.key_field(table.id)
        if added is None:
            return part
        name, value = added
        nulls = pa.nulls(len(batch), pa.string())
        return joined(part, part_of([Cell(f",{dumps(name)}:", nulls, value_kinds.STRING, dumps(value))]))

    def _source(self, batch: ChangeBatch) -> DocumentPart:
        """The values from `source` to `op`."""
        block, has_query, has_order = self.envelopes.source, batch.query is not None, batch.order is not None
        arrays = [array for _, array in block.columns(batch) if array is not None]
        if has_order:
            arrays.append(_transactions(batch))
        arrays.append(op_letters(batch))
        template = _origin(block, batch.table.id, has_query=has_query, has_order=has_order)
        return template.part(pa.StructArray.from_arrays(arrays, list(map(str, range(len(arrays))))))


@lru_cache(maxsize=1024)
def _origin(block: SourceBlock, table: TableId, *, has_query: bool, has_order: bool) -> PartTemplate:
    """The values from `source` to `op`; constants are part of the labels."""
    constants, nothing = block.constants(table), pa.nulls(0, pa.string())
    label, cells = ',"source":{', []
    for field in source_fields(block.connector):
        label += f'"{field.name}":'
        if field.has_values(has_query=has_query):
            cells.append(Cell(label, nothing, field.kind, field.absent))
            label = ","
        else:
            label += f"{dumps(constants.get(field.name))},"
    label = label.removesuffix(",") + '},"transaction":'
    if has_order:
        cells.append(Cell(label, nothing, value_kinds.RAW))
        label = ""
    else:
        label += "null"
    cells.append(Cell(f'{label},"op":', nothing, value_kinds.STRING))
    return PartTemplate(cells, range(len(cells)))


def _transactions(batch: ChangeBatch) -> pa.StringArray:
    """The values of `transaction`, as JSON."""
    assert batch.order is not None
    total, own = (batch.order.field(i).cast(pa.string()) for i in range(2))
    # an id consists of characters that JSON does not escape
    txn = batch.origin.column("txn").dictionary_decode()
    pieces = ['{"id":"', txn, '","total_order":', total, ',"data_collection_order":', own, "}", ""]
    return pc.binary_join_element_wise(*pieces)
