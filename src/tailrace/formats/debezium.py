"""The `debezium` shape: Kafka messages as Debezium's MySQL connector writes them with the JSON converter.

    topic       `<prefix>.<database>.<table>`
    key         JSON of the key's columns, null for a table without a key
    value       JSON of the envelope: before, after, source, transaction, op, ts_ms, ts_us, ts_ns
    headers     only for the halves of a key update

A delete is followed by a tombstone: the same key and headers, no value. A key update is a delete of the
old key with the header `__debezium.newkey`, its tombstone, and a create of the new key with the header
`__debezium.oldkey`; readers have split it already (see `sources.mysql.position.seq_of`), so what is left is
to recognise the pair. The headers hold the other key as it is written in messages, which is what Connect's
JSON converter makes of it when it is set as `header.converter`.

The text is byte for byte what Connect's converter prints (field order, escapes, `1.0E10`), for two reasons:
Kafka compacts and partitions by the bytes of the key, and consumers need no new tests. Where Debezium
differs between its snapshot and its log reading, the log's form is used for both: a TIMESTAMP(3) always
has three digits. What depends on Debezium's own run is filled in thus:

* `source.snapshot` is "true" for every row read by a SELECT. Debezium also marks the first and the last
  row of a table, which a snapshot that runs beside the log cannot know.
* `source.version` is Tailrace's version. `source.ts_ms` is 0 where the commit time is unknown.
* `source.query`, `source.sequence` and `transaction` are null, as with Debezium's defaults.
* the three top-level times are `now_ms`, given by the caller: the rest is a pure function of the batch. A
  replay that must give the same bytes passes the same time.

Source: debezium/debezium v3.6.1 (`Envelope`, `SchemaFactory`, `BinlogSourceInfoStructMaker`,
`RelationalChangeRecordEmitter`, `EventDispatcher`, `AbstractTopicNamingStrategy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import __version__
from tailrace.formats import connect
from tailrace.formats.envelope import snapshot_marks
from tailrace.formats.kernels import documents
from tailrace.formats.layout import Cell, cell, dumps
from tailrace.formats.messages import Document, operations, write
from tailrace.formats.modes import DEFAULT_MODES, Modes
from tailrace.formats.row import op_letters
from tailrace.formats.topics import Topics
from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch
from tailrace.model.table import TableId, TableSchema

NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"

_EVEN_DIGITS, _ODD_DIGITS = pa.array(list("02468ace")), pa.array(list("13579bdf"))
_FALSE = pa.scalar(False)
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def debezium_schema() -> pa.Schema:
    """The columns of `DebeziumFormat.to_messages`: what Spark's Kafka sink takes."""
    return pa.schema(
        [
            pa.field("topic", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", _HEADERS),
            pa.field("partition", pa.int32()),
        ]
    )


@dataclass(frozen=True)
class DebeziumFormat:
    """Makes Debezium's messages of changes.

    Args:
        topic_prefix: Debezium's `topic.prefix`: first part of topics and schema names, and `source.name`.
        schemas: whether keys and values carry their Connect schema (`schemas.enable`).
        connector: kind of source, for `source.connector` and the name of the source's schema.
        version: for `source.version`.
        modes: Debezium's handling modes.
        delimiter: what stands between the parts of topics and schema names.
    """

    topic_prefix: str
    schemas: bool
    connector: str = "mysql"
    version: str = __version__
    modes: Modes = DEFAULT_MODES
    delimiter: str = "."

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes; also the prefix of its schemas' names."""
        return Topics(self.topic_prefix, self.delimiter).topic(table)

    def to_messages(self, batch: ChangeBatch, now_ms: int) -> pa.RecordBatch:
        """One message per change, two per delete, in the changes' order.

        Args:
            batch: changes of one table.
            now_ms: processing time to write, milliseconds since 1970 UTC.

        Returns:
            A record batch with schema `debezium_schema()`; `partition` is null (Kafka's choice by key).

        Raises:
            SinkError: the messages of the batch are larger than 2 GiB.
        """
        topic = self.topic(batch.table.id)
        keys, values = write(self._document(batch, topic, now_ms), batch)
        deletes = operations(batch) == OP_DELETE
        # each change's own message comes after those of the changes before it and their tombstones
        first_message = np.arange(len(batch)) + np.cumsum(deletes) - deletes
        headers = key_update_headers(batch, keys, first_message)
        columns = [
            pa.repeat(pa.scalar(topic, pa.string()), len(values)),
            keys,
            values,
            headers.take(pa.array(np.repeat(np.arange(len(batch)), 1 + deletes))),
            pa.nulls(len(values), pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=debezium_schema())

    def keys(self, batch: ChangeBatch) -> pa.Array:
        """The key of each change, all null for a table without a key."""
        whole = self._document(batch, self.topic(batch.table.id), 0)
        alone = replace(whole, head="", before=[], middle="", after=[], source=[], tail="")
        keys, values = write(alone, batch)
        return keys.filter(values.is_valid())

    def values(self, batch: ChangeBatch, now_ms: int) -> pa.Array:
        """The value of each change; see `to_messages`."""
        whole = self._document(batch, self.topic(batch.table.id), now_ms)
        _, values = write(replace(whole, key_before=[], key_after=[]), batch)
        return values.drop_null()

    def _document(self, batch: ChangeBatch, topic: str, now_ms: int) -> Document:
        table = batch.table
        value_opening, key_opening, closing = "{", "{", "}"
        if self.schemas:
            schema = dumps(connect.envelope_schema(table, topic, self.connector, self.modes))
            value_opening = f'{{"schema":{schema},"payload":{{'
            key_opening = f'{{"schema":{dumps(connect.key_schema(table, topic, self.modes))},"payload":{{'
            closing = "}}"
        now = f',"ts_ms":{now_ms},"ts_us":{now_ms * 1000},"ts_ns":{now_ms * 1_000_000}'
        names = [c.name for c in table.columns]
        return Document(
            head=f'{value_opening}"before":',
            before=_image(table, names, batch.before, "{", self.modes),
            middle=',"after":',
            after=_image(table, names, batch.after, "{", self.modes),
            source=self._source(batch),
            tail=now + closing,
            key_before=_image(table, table.key, batch.before, key_opening, self.modes),
            key_after=_image(table, table.key, batch.after, key_opening, self.modes),
            key_tail=closing,
        )

    def _source(self, batch: ChangeBatch) -> list[Cell]:
        """The values from `source` to `op`; constants are part of the labels."""
        table, origin = batch.table.id, batch.origin
        us = origin.column("ts_us")
        start = f',"source":{{"version":{dumps(self.version)},"connector":{dumps(self.connector)}'
        return [
            Cell(f'{start},"name":{dumps(self.topic_prefix)},"ts_ms":', us, documents.MILLIS, "0"),
            Cell(',"snapshot":', snapshot_marks(batch), documents.STRING),
            Cell(f',"db":{dumps(table.database)},"sequence":null,"ts_us":', us, documents.INT64, "0"),
            Cell(',"ts_ns":', us, documents.NANOS, "0"),
            Cell(
                f',"table":{dumps(table.table)},"server_id":',
                origin.column("server_id"),
                documents.INT64,
                "0",
            ),
            Cell(',"gtid":', origin.column("txn").dictionary_decode(), documents.STRING),
            Cell(',"file":', origin.column("file").dictionary_decode(), documents.STRING, '""'),
            Cell(',"pos":', origin.column("pos"), documents.INT64, "0"),
            Cell(',"row":', origin.column("row"), documents.INT32, "0"),
            Cell(',"thread":', origin.column("thread"), documents.INT64),
            Cell(',"query":null},"transaction":null,"op":', op_letters(batch), documents.STRING),
        ]


def _image(
    table: TableSchema, names: Sequence[str], image: pa.StructArray | None, opening: str, modes: Modes
) -> list[Cell]:
    """The named columns of a row image as the fields of an object; none if there is no image."""
    if image is None:
        return []
    places = {column.name: i for i, column in enumerate(table.columns)}
    cells: list[Cell] = []
    for name in names:
        column = table.columns[places[name]]
        label = f"{',' if cells else opening}{dumps(name)}:"
        cells.append(cell(label, image.field(places[name]), column.type, modes, nullable=column.nullable))
    return cells


def key_update_headers(batch: ChangeBatch, keys: pa.Array, key_of: np.ndarray) -> pa.ListArray:
    """Headers of each change's messages: the other key on the halves of a key update, else null.

    Args:
        batch: changes of one table.
        keys: keys of messages.
        key_of: for each change where among `keys` its own is.
    """
    old = key_updates(batch)
    if not batch.table.key or len(old) == 0:
        return pa.nulls(len(batch), _HEADERS)
    at, other = (np.stack([a, b], axis=1).reshape(-1) for a, b in ((old, old + 1), (old + 1, old)))
    has = np.zeros(len(batch), bool)
    has[at] = True
    names = pa.array([NEW_KEY_HEADER, OLD_KEY_HEADER]).take(pa.array(np.arange(len(at)) % 2))
    values = pa.StructArray.from_arrays(
        [names, keys.take(pa.array(key_of[other]))], fields=list(_HEADERS.value_type)
    )
    offsets = np.concatenate([[0], np.cumsum(has)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=_HEADERS, mask=pa.array(~has))


def key_updates(batch: ChangeBatch) -> np.ndarray:
    """Rows that are the first half of a key update whose second half is the next row.

    The halves have one event and row, so one `seq` but for its last digit: even, then odd.
    """
    ops = operations(batch)
    candidates = np.flatnonzero((ops[:-1] == OP_DELETE) & (ops[1:] == OP_CREATE))
    if len(candidates) == 0:
        return candidates
    seq = batch.origin.column("seq")
    first, second = (seq.take(pa.array(candidates + half)) for half in (0, 1))
    same_row = pc.equal(*(pc.utf8_slice_codeunits(half, start=0, stop=-1) for half in (first, second)))
    even, odd = (
        pc.index_in(pc.utf8_slice_codeunits(half, start=-1), value_set=digits)
        for half, digits in ((first, _EVEN_DIGITS), (second, _ODD_DIGITS))
    )
    halves = pc.fill_null(pc.and_(same_row, pc.equal(even, odd)), _FALSE)
    return np.asarray(candidates[halves.to_numpy(zero_copy_only=False)])
