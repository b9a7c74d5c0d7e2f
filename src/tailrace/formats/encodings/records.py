"""Runs the record kernel over a batch of changes, and what Avro and Protobuf have in common.

A format says for each field of a Connect schema which bytes stand before its value and which stand for NULL
(`BinaryFormat`); what the values are, and in which order they come, is found here, from the same schemas and
columns as the JSON messages. So a message says the same in all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.base import SchemaText
from tailrace.formats.connect import postgres
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.schemas import Schema
from tailrace.formats.encodings.json_documents import Output, operations
from tailrace.formats.encodings.layout import Cell, TextPool, address, cell, validity_of
from tailrace.formats.envelope_rows import snapshot_marks
from tailrace.formats.kernels import documents, records
from tailrace.formats.kernels.unscaled import SCRATCH
from tailrace.formats.row import op_letters
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema

#: What the kernel writes of the kinds of `documents`.
_KINDS = frozenset(range(documents.BASE64_URL + 1))


@dataclass(frozen=True)
class Field:
    """One value of a record: the bytes before it, and those that stand for NULL.

    Args:
        name: its name, for errors.
        present: bytes before a value.
        array: the values; None: nothing but `present`.
        kind: how they are written, a constant of the kernel.
        absent: bytes of a NULL; None: it must not be NULL.
        detail: the kernel's DETAIL.
        tags: a spatial value's tags: the kernel's TAGS. A decimal's: how many bytes close its message, and
            those.
        skip: for each row whether its message leaves the field out; None: none does.
    """

    name: str
    present: bytes
    array: pa.Array | None = None
    kind: int = records.LITERAL
    absent: bytes | None = None
    detail: int = 0
    tags: tuple[int, ...] = ()
    skip: np.ndarray | None = None


@dataclass(frozen=True)
class FieldGroup:
    """Some fields of a message.

    Args:
        when: when they are written: a constant of the kernel.
        fields: the fields.
        opening: bytes before them.
        form: PLAIN, LENGTH or OBJECT: see the kernel.
        missing: bytes that stand for the part where it is not written.
        image: IF_SET: written where this is not null.
    """

    when: int
    fields: Sequence[Field] = ()
    opening: bytes = b""
    form: int = records.PLAIN
    missing: bytes = b""
    image: pa.Array | None = None


@dataclass(frozen=True)
class FieldValues:
    """A field's values before a format has said how they are marked: as in JSON, in a Cell.

    Args:
        schema: the field of the Connect schema.
        cell: its values; None: a constant.
        constant: the value of a constant; None: NULL.
    """

    schema: Schema
    cell: Cell | None = field(default=None)
    constant: Any = None

    @property
    def kind(self) -> int:
        """How the values are written; text for bytes of a mode that gives text.

        Raises:
            SinkError: only JSON knows how.
        """
        assert self.cell is not None
        if self.cell.kind == documents.BINARY and self.schema["type"] == "string":
            return records.BASE64
        if self.cell.kind not in _KINDS:
            raise SinkError(
                f"column `{self.schema['field']}` has a type that is written in JSON only",
                "Avro and Protobuf messages have no form for it yet",
                "leave the column out by a transform, or set `value.format: debezium-json`",
            )
        return self.cell.kind


class BinaryFormat(Protocol):
    """What a format writes round values, and its schemas."""

    #: Whether integers that are near zero on either side are short.
    zigzag: bool
    #: What a message begins with behind the schema's id.
    opening: bytes

    def of(self, column: FieldValues, number: int) -> Field:
        """The field of a column; `number` counts the fields of its record from 1."""

    def registered(self, subject: str, schema: Schema) -> SchemaText:
        """A Connect schema as the registry has it.

        Raises:
            SinkError: it has a type for which the format has none.
        """

    def message(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        """One struct as a message behind the schema's id, for messages that are few."""


def image_columns(
    table: TableSchema, names: Sequence[str], schema: Schema, image: pa.StructArray | None, modes: Modes
) -> list[FieldValues]:
    """The named columns of a row image, whose fields `schema` has in their order; none without an image."""
    if image is None:
        return []
    places = {column.name: i for i, column in enumerate(table.columns)}
    columns = []
    for name, of in zip(names, schema["fields"], strict=True):
        column = table.columns[places[name]]
        made = cell("", image.field(places[name]), column.type, modes, nullable=column.nullable)
        columns.append(FieldValues(of, made))
    return columns


def source_columns(batch: ChangeBatch, schema: Schema, of: Envelopes) -> list[FieldValues]:
    """The fields of `source`: what the batch's origin holds, constants, and null for all else."""
    table, origin = batch.table.id, batch.origin
    constants = {
        "version": of.version,
        "connector": of.connector,
        "name": of.topics.prefix,
        "db": table.database,
        "table": table.table,
        "schema": table.database,
    }
    us = origin.column("ts_us")
    cells = {
        "ts_ms": Cell("", us, documents.MILLIS, "0"),
        "snapshot": Cell("", snapshot_marks(batch), documents.STRING),
        "ts_us": Cell("", us, documents.INT64, "0"),
        "ts_ns": Cell("", us, documents.NANOS, "0"),
        "server_id": Cell("", origin.column("server_id"), documents.INT64, "0"),
        "gtid": Cell("", origin.column("txn").dictionary_decode(), documents.STRING),
        "file": Cell("", origin.column("file").dictionary_decode(), documents.STRING, '""'),
        "pos": Cell("", origin.column("pos"), documents.INT64, "0"),
        "row": Cell("", origin.column("row"), documents.INT32, "0"),
        "thread": Cell("", origin.column("thread"), documents.INT64),
    }
    if of.connector == postgres.CONNECTOR:
        constants["db"] = of.database
        xids = origin.column("txn").dictionary_decode().cast(pa.int64())
        cells |= {
            "sequence": Cell("", postgres.sequences(batch), documents.STRING),
            "txId": Cell("", xids, documents.INT64),
            "lsn": Cell("", origin.column("pos"), documents.INT64),
        }
    return [FieldValues(f, cells.get(f["field"]), constants.get(f["field"])) for f in schema["fields"]]


def transaction_columns(batch: ChangeBatch, schema: Schema) -> list[FieldValues]:
    """The fields of `transaction`, for changes whose place in one is known."""
    assert batch.order is not None
    ids = Cell("", batch.origin.column("txn").dictionary_decode(), documents.STRING)
    orders = [Cell("", batch.order.field(i), documents.INT64) for i in range(2)]
    return [FieldValues(f, cell) for f, cell in zip(schema["fields"], [ids, *orders], strict=True)]


def closing_columns(batch: ChangeBatch, fields: Sequence[Schema], now_ms: int) -> list[FieldValues]:
    """The envelope's fields behind `transaction`."""
    times = {"ts_ms": now_ms, "ts_us": now_ms * 1000, "ts_ns": now_ms * 1_000_000}
    letters = Cell("", op_letters(batch), documents.STRING)
    return [
        FieldValues(f, letters) if f["field"] == "op" else FieldValues(f, None, times.get(f["field"]))
        for f in fields
    ]


def fields(columns: Sequence[FieldValues], format_: BinaryFormat) -> list[Field]:
    """The columns as a format writes them."""
    return [format_.of(column, number) for number, column in enumerate(columns, 1)]


def varint(value: int) -> bytes:
    """An integer of 0 or more, seven bits a byte, the lowest first."""
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def write(parts: Sequence[FieldGroup], batch: ChangeBatch, *, zigzag: bool) -> pa.Array:
    """One record per change.

    Raises:
        SinkError: they are larger than 2 GiB, or a value is missing that must be there.
    """
    pool = TextPool()
    for part in parts:
        for text in (
            part.opening,
            part.missing,
            *(t for f in part.fields for t in (f.present, f.absent or b"")),
        ):
            pool.add(text)
    pool.seal()
    rows = len(batch)
    keep: list[np.ndarray] = []
    described = np.zeros((len(parts), records.PART_WORDS), np.int64)
    expected = 0
    for words, part in zip(described, parts, strict=True):
        blocks = np.zeros((max(1, len(part.fields)), records.FIELD_WORDS), np.int64)
        for block, f in zip(blocks, part.fields, strict=False):
            _describe(block, f, pool, keep)
            data = f.array.nbytes if f.array is not None else 0
            expected += rows * (len(f.present) + 12) + (data if f.kind >= documents.STRING else 0)
        keep.append(blocks)
        words[records.WHEN] = part.when
        words[records.FIELDS], words[records.COUNT] = blocks.ctypes.data, len(part.fields)
        words[records.OPENING : records.OPENING_LENGTH + 1] = pool.place(part.opening)
        words[records.FORM] = part.form
        words[records.MISSING : records.MISSING_LENGTH + 1] = pool.place(part.missing)
        if part.image is not None:
            words[records.BITMAP], words[records.BITMAP_OFFSET] = validity_of(part.image), part.image.offset
        expected += rows * (len(part.opening) + 8)

    op = operations(batch)
    scratch = np.zeros(SCRATCH + SLACK, np.uint8)
    offsets = np.zeros(rows + 1, np.int32)
    job = np.zeros(records.JOB, np.int64)
    job[records.ROWS] = rows
    job[records.OP] = op.ctypes.data
    job[records.OP_DELETE] = OP_DELETE
    job[records.PARTS], job[records.PART_COUNT] = described.ctypes.data, len(parts)
    job[records.ZIGZAG] = zigzag
    job[records.OFFSETS] = offsets.ctypes.data
    job[records.SCRATCH_ADDRESS] = scratch.ctypes.data
    output = Output(expected + expected // 2)
    while True:
        job[records.OUT : records.CAPACITY + 1] = output.words()
        match records.write_records(job.ctypes.data, TABLES):
            case records.DONE:
                break
            case records.FULL:
                output.grow(int(job[records.USED]), batch.table.id)
            case _:
                part = parts[int(job[records.CULPRIT])]
                raise _missing(batch, part.fields[int(job[records.CULPRIT_FIELD])].name)
    buffers = [None, pa.py_buffer(offsets), output.buffer(int(offsets[-1]))]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _describe(block: np.ndarray, f: Field, pool: TextPool, keep: list[np.ndarray]) -> None:
    block[documents.KIND] = f.kind
    block[records.PRESENT : records.PRESENT_LENGTH + 1] = pool.place(f.present)
    block[records.ABSENT : records.ABSENT_LENGTH + 1] = (0, -1) if f.absent is None else pool.place(f.absent)
    block[documents.DETAIL] = f.detail
    if f.tags:
        tags = np.array(f.tags, np.int64)
        keep.append(tags)
        block[documents.DETAIL] = tags.ctypes.data
    if f.skip is not None:
        bits = np.packbits(f.skip, bitorder="little")
        keep.append(bits)
        block[records.SKIP] = bits.ctypes.data
    if f.array is None:
        return
    buffers = f.array.buffers()
    data = address(buffers[-1]) if len(buffers) > 2 else 0
    if pa.types.is_list(f.array.type):
        data += f.array.values.offset * (f.array.type.value_type.bit_width // 8)
    block[documents.VALIDITY] = validity_of(f.array)
    block[documents.VALUES] = address(buffers[1])
    block[documents.DATA] = data
    block[documents.OFFSET] = f.array.offset


def _missing(batch: ChangeBatch, name: str) -> SinkError:
    return SinkError(
        f"column `{name}` of table `{batch.table.id}` is NOT NULL, but a change has no value for it",
        "the schema of its messages has no null there; a log without whole row images leaves columns out",
        "SET GLOBAL binlog_row_image = FULL, or write JSON (`value.format: debezium-json`)",
    )
