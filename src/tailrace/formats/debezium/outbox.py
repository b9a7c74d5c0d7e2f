"""Events of an outbox: what Debezium's transform EventRouter makes of the inserted rows of a table.

    topic      by the value of a column, `outbox.event.<aggregatetype>`
    key        a column, `aggregateid`
    value      a column, `payload`; or an object of it and further columns
    headers    `id`, and further columns
    timestamp  a column, or when the message is written

Rows that a snapshot reads are events, too. Deletes and updates make no message. Text is written as Connect's
StringConverter and SimpleHeaderConverter write it, JSON as its JsonConverter without schemas.

Expanded JSON is the text of the column, as it stands there, without fields that are null and empty arrays if
`table-json-payload-null-behavior` is `ignore`, the transform's default. The transform parses it: it writes
numbers in Java's form, never has empty arrays, and cannot expand arrays of unlike elements.

Source: Debezium documentation, "Outbox Event Router"; debezium/debezium (`EventRouterDelegate`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.outbox import ConnectConverter, NullFields, OutboxSettings, Placement, matches
from tailrace.errors import SinkError
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.topics import is_topic
from tailrace.formats.debezium.documents import without_nulls
from tailrace.formats.debezium.headers import headers_of
from tailrace.formats.debezium.messages import DebeziumFormat, debezium_schema
from tailrace.formats.encodings.json_documents import operations, row_texts
from tailrace.formats.encodings.layout import Cell, cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.model.change import OP_CREATE, OP_READ, OP_REREAD, OP_UPDATE, ChangeBatch
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import Kind

_EVENTS = (OP_READ, OP_CREATE, OP_REREAD)
#: What Java's `String.trim` removes.
_BLANKS = "".join(map(chr, range(33)))
_TEXTS = (Kind.STRING, Kind.JSON, Kind.ENUM, Kind.SET)


def event_schema() -> pa.Schema:
    """The columns of `Outbox.messages`: those of messages, and their timestamp in milliseconds, or null."""
    return debezium_schema().append(pa.field("timestamp", pa.int64()))


@dataclass(frozen=True)
class Outbox:
    """Makes events of the rows of outbox tables.

    Args:
        format: writes values as JSON.
        settings: which tables, and which columns.
    """

    format: DebeziumFormat
    settings: OutboxSettings

    def takes(self, table: TableId) -> bool:
        """Whether a table is an outbox."""
        return matches(self.settings.tables, str(table))

    def check(self, table: TableSchema) -> None:
        """Check that a table has the columns of an outbox.

        Raises:
            SinkError: it has not.
        """
        names = table.arrow.names
        if missing := [name for name in self.settings.columns if name not in names]:
            raise SinkError(
                f"outbox `{table.id}` has no column `{missing[0]}`",
                f"`outbox` names it; the table has {', '.join(f'`{name}`' for name in names)}",
                "name the column in the section `outbox`, or let `tables` there match outboxes alone",
                code="TR-7606",
            )

    def order_column(self) -> str:
        """The column whose equal values keep the order of the log."""
        return self.settings.table_field_event_key

    def is_event(self, batch: ChangeBatch) -> np.ndarray:
        """Which changes are events: a boolean for each."""
        return np.isin(operations(batch), _EVENTS)

    def is_invalid(self, batch: ChangeBatch) -> np.ndarray:
        """Which changes an outbox should not have: a boolean for each."""
        return np.asarray(operations(batch) == OP_UPDATE)

    def topics(self, batch: ChangeBatch) -> set[str]:
        """The topics of a batch's events, without those that no topic can have."""
        wanted = np.flatnonzero(self.is_event(batch))
        if not len(wanted):
            return set()
        routed = self._routed(batch.take(pa.array(wanted))).dictionary.to_pylist()
        return {topic for topic in map(self.settings.topic, routed) if is_topic(topic)}

    def messages(self, batch: ChangeBatch) -> pa.RecordBatch:
        """One message for each change, with the columns of `event_schema`.

        Args:
            batch: changes of an outbox, all of them events.

        Raises:
            SinkError: the table lacks a column, or an event has no topic.
        """
        self._check_known(batch)
        settings = self.settings
        text = _Columns(batch, self.format.envelopes.modes)
        payload = text.array(settings.table_field_event_payload)
        # JSON objects with further columns have a payload that is null; other values are null then
        empty = payload.is_null()
        if settings.route_tombstone_on_empty_payload:
            if pa.types.is_string(payload.type):
                empty = pc.or_(
                    empty, pc.fill_null(pc.equal(pc.utf8_trim(payload, _BLANKS), ""), fill_value=False)
                )
        elif settings.is_enveloped:
            empty = pa.nulls(len(batch), pa.bool_()).fill_null(False)
        values = pc.if_else(empty, pa.scalar(None, pa.binary()), self._values(text))
        is_json = settings.key_converter is ConnectConverter.JSON
        key = settings.table_field_event_key
        headers = {"id": text.text(settings.table_field_event_id)}
        for placement in self._placements(batch.table, "header"):
            headers[placement.name] = text.text(placement.column)
        n = len(batch)
        columns = [
            self._topics(batch),
            text.json(key) if is_json else text.text(key),
            values,
            headers_of(
                replace(batch, table=replace(batch.table, key=())),
                pa.nulls(n, pa.binary()),
                np.arange(n),
                schemas=self.format.schemas,
                context=self.format.context,
                added=headers,
                constants=self.format.headers,
            ),
            self._partitions(batch),
            self._timestamps(text),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=event_schema())

    def _check_known(self, batch: ChangeBatch) -> None:
        self.check(batch.table)
        placed = [placement.column for placement in self.settings.placements]
        unknown = [name for name in (*self.settings.columns, *placed) if name in batch.absent_after]
        if unknown:
            raise SinkError(
                f"the log lacks column `{unknown[0]}` of rows of outbox `{batch.table.id}`",
                "an event needs the whole row",
                "SET GLOBAL binlog_row_image = 'FULL' (MySQL), or give the column a value in each INSERT",
                code="TR-7606",
            )

    def _placements(self, table: TableSchema, where: str) -> list[Placement]:
        """The additional columns of a place that a table has."""
        names = table.arrow.names
        return [p for p in self.settings.placements if p.where == where and p.column in names]

    def _partitions(self, batch: ChangeBatch) -> pa.Array:
        """The partitions that the events name; null: by the message key."""
        assert batch.after is not None
        for placement in self._placements(batch.table, "partition"):
            array = batch.after.field(batch.table.arrow.get_field_index(placement.column))
            if not pa.types.is_integer(array.type) or pc.any(pc.greater(array, 2**31 - 1)).as_py():
                raise SinkError(
                    f"column `{placement.column}` of outbox `{batch.table.id}` names no partition",
                    f"found {batch.table.column(placement.column).type.native}; needed integers of 32 bits",
                    "name another column in `table-fields-additional-placement`",
                    code="TR-7615",
                )
            return array.cast(pa.int32())
        return pa.nulls(len(batch), pa.int32())

    def _routed(self, batch: ChangeBatch) -> pa.DictionaryArray:
        """The values by which events are routed; an empty text for NULL."""
        text = _Columns(batch, self.format.envelopes.modes).text(self.settings.route_by_field)
        return text.fill_null(b"").cast(pa.string()).dictionary_encode()

    def _topics(self, batch: ChangeBatch) -> pa.Array:
        routed = self._routed(batch)
        topics = []
        for value in routed.dictionary.to_pylist():
            topic = self.settings.topic(value)
            if not value or not is_topic(topic):
                raise SinkError(
                    f"a row of outbox `{batch.table.id}` names no topic",
                    f"column `{self.settings.route_by_field}` is empty, or has characters that Kafka does "
                    "not allow in names of topics (other than letters, digits, `.`, `_` and `-`)",
                    "correct the application; or set `route-topic-regex`, or `on-refused-row: quarantine`",
                    code="TR-7607",
                )
            topics.append(topic)
        return pa.array(topics, pa.string()).take(routed.indices)

    def _values(self, text: _Columns) -> pa.Array:
        settings = self.settings
        payload = settings.table_field_event_payload
        if not settings.has_json_values:
            return text.text(payload)
        written = text.cell(payload)
        if settings.table_expand_json_payload:
            drops_nulls = settings.table_json_payload_null_behavior is NullFields.IGNORE
            written = text.expanded(payload, drops_nulls=drops_nulls)
        if not settings.is_enveloped:
            return text.written([written], "")
        further = [
            replace(text.cell(placement.column), label=f",{dumps(placement.name)}:")
            for placement in self._placements(text.table, "envelope")
        ]
        return text.written([replace(written, label='{"payload":'), *further], "}")

    def _timestamps(self, text: _Columns) -> pa.Array:
        name = self.settings.table_field_event_timestamp
        if name is None:
            return pa.nulls(text.rows, pa.int64())
        array = text.array(name)
        if not pa.types.is_timestamp(array.type):
            raise SinkError(
                f"column `{name}` of outbox `{text.table.id}` is no timestamp",
                f"found {text.table.column(name).type.native}",
                "`table-field-event-timestamp` names a column with date and time",
                code="TR-7606",
            )
        return pc.divide(array.cast(pa.int64()), 1000)


class _Columns:
    """The columns of the rows of events.

    Args:
        batch: events.
        modes: Debezium's handling modes.
    """

    def __init__(self, batch: ChangeBatch, modes: Modes) -> None:
        assert batch.after is not None
        self.table = batch.table
        self.rows = len(batch)
        self._after = batch.after
        self._modes = modes

    def array(self, name: str) -> pa.Array:
        """The values of a column."""
        return self._after.field(self.table.arrow.get_field_index(name))

    def cell(self, name: str) -> Cell:
        """A column as JSON."""
        return cell("", self.array(name), self._column(name), self._modes, self.table.id)

    def written(self, cells: Sequence[Cell], end: str) -> pa.Array:
        """The text of cells, one for each row."""
        return row_texts(cells, end, self.rows, self.table)

    def json(self, name: str) -> pa.Array:
        """A column as JSON, null where it is NULL."""
        is_null = self.array(name).is_null()
        return pc.if_else(is_null, pa.scalar(None, pa.binary()), self.written([self.cell(name)], ""))

    def text(self, name: str) -> pa.Array:
        """A column as text, or its bytes; null where it is NULL."""
        array, kind = self.array(name), self._column(name).type.kind
        if kind in _TEXTS or kind is Kind.BYTES:
            return array.cast(pa.binary())
        # numbers, times and the like, whose JSON has no escapes
        texts = self.json(name).cast(pa.string())
        return pc.utf8_trim(texts, '"').cast(pa.binary())

    def expanded(self, name: str, *, drops_nulls: bool) -> Cell:
        """A column of text as JSON: objects and arrays as what they are, other texts as texts."""
        array, column = self.array(name), self._column(name)
        if not pa.types.is_string(array.type):
            return self.cell(name)
        may_be = pc.or_(pc.starts_with(array, "{"), pc.starts_with(array, "[")).fill_null(False)
        if column.type.kind is not Kind.JSON:
            may_be = pa.array(list(_are_documents(array, may_be)), pa.bool_())
        texts = self.written([self.cell(name)], "").cast(pa.string())
        if drops_nulls:
            documents = zip(array.to_pylist(), may_be.to_pylist(), strict=True)
            array = pa.array(
                [without_nulls(text) if is_one else text for text, is_one in documents], pa.string()
            )
        return Cell("", pc.if_else(may_be, array, texts), value_kinds.RAW)

    def _column(self, name: str) -> Column:
        return self.table.column(name)


def _are_documents(texts: pa.Array, candidates: pa.Array) -> Iterator[bool]:
    """Which texts are JSON, of those that may be."""
    for text, may_be in zip(texts.to_pylist(), candidates.to_pylist(), strict=True):
        yield may_be and _is_document(text)


def _is_document(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(name: str) -> None:
    raise ValueError(name)
