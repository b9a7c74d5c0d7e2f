"""Runs the record kernel over a batch of changes, with the common part of Avro and Protobuf.

For each field of a Connect schema a format defines the bytes before the value and the bytes of a NULL
(`BinaryFormat`). The values and their order are determined here, from the same schemas and columns as those
of JSON messages. So a message has the same content in all three formats.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.base import SchemaText
from tailrace.formats.connect import postgres
from tailrace.formats.connect.builders import Schema
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.source_block import SourceBlock
from tailrace.formats.encodings.json_documents import Output, operations
from tailrace.formats.encodings.layout import Cell, TextPool, cell, describe, validity_of
from tailrace.formats.kernels import documents, records, value_kinds
from tailrace.formats.kernels.unscaled import SCRATCH
from tailrace.formats.row import op_letters
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema

#: The kinds of `documents` that the record kernel writes.
_KINDS = frozenset(range(value_kinds.BASE64_URL + 1))


@dataclass(frozen=True)
class Field:
    """One value of a record: the bytes before it, and the bytes of a NULL.

    Args:
        name: its name, for errors.
        present: bytes before a value.
        array: the values; None: there is nothing but `present`.
        kind: how they are written, a constant of the kernel.
        absent: bytes of a NULL; None: NULL is an error.
        detail: the kernel's DETAIL.
        tags: of a spatial value: the kernel's TAGS. Of a decimal: the number of bytes that close its message,
            and these bytes.
        skip: for each row whether its message omits the field; None: never.
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
    """A part of a message: some of its fields.

    Args:
        when: the condition for writing it: a constant of the kernel.
        fields: the fields.
        opening: bytes before them.
        form: PLAIN, LENGTH or OBJECT: see the kernel.
        missing: bytes to write if the condition is false.
        image: for IF_SET: the part is written if this is not null.
    """

    when: int
    fields: Sequence[Field] = ()
    opening: bytes = b""
    form: int = records.PLAIN
    missing: bytes = b""
    image: pa.Array | None = None


@dataclass(frozen=True)
class FieldValues:
    """The values of a field, independent of the format: those of JSON, as a Cell.

    Args:
        schema: the field of the Connect schema.
        cell: its values; None: it is a constant.
        constant: the value of a constant; None: NULL.
    """

    schema: Schema
    cell: Cell | None = None
    constant: Any = None

    @property
    def kind(self) -> int:
        """How the values are written; bytes are text if the handling mode makes the field a string.

        Raises:
            SinkError: only JSON can represent the type.
        """
        assert self.cell is not None
        if self.cell.kind == value_kinds.BINARY and self.schema["type"] == "string":
            return records.BASE64
        if self.cell.kind not in _KINDS:
            raise SinkError(
                f"column `{self.schema['field']}` has a type that can only be written in JSON",
                "it cannot be encoded in Avro or Protobuf yet",
                "drop the column with a transform, or set `value-format: debezium-json`",
                code="TR-7604",
            )
        return self.cell.kind

    def default(self, encode: Callable[[Any], bytes]) -> bytes | None:
        """The encoded value for a NULL in a field that is not optional; None if there is none."""
        assert self.cell is not None
        value = json.loads(self.cell.absent)
        return None if value is None else encode(from_json(self.schema, value))


def from_json(schema: Schema, value: Any) -> Any:
    """A value as Connect's JSON converter writes it, with bytes in place of base64."""
    match schema["type"]:
        case "bytes":
            return None if value is None else base64.b64decode(value)
        case "struct":
            return {f["field"]: from_json(f, value.get(f["field"])) for f in schema["fields"]}
    return value


class BinaryFormat(Protocol):
    """The bytes that a format writes around values, and its schemas."""

    #: Whether integers have zigzag encoding, in which small negative numbers are short.
    zigzag: bool
    #: The first bytes of a message after the schema's id.
    opening: bytes

    def field(self, column: FieldValues, number: int) -> Field:
        """The field of a column; `number` counts the fields of its record from 1."""

    def struct(self, columns: Sequence[FieldValues], number: int) -> FieldGroup:
        """A struct as field `number` of the message."""

    def optional_struct(
        self, columns: Sequence[FieldValues], number: int, present: pa.Array | None
    ) -> FieldGroup | None:
        """A struct as field `number` of the message, null where `present` is; None: nothing is written.

        Args:
            columns: its fields.
            number: its number.
            present: an array that is null where the struct is; None: it is null in all messages.
        """

    def registered(self, subject: str, schema: Schema) -> SchemaText:
        """The registry's schema for a Connect schema.

        Raises:
            SinkError: the format has no equivalent of a type.
        """

    def message(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        """Encode one struct as a message, without the schema's id: for messages that are few."""


def image_columns(
    table: TableSchema,
    names: Sequence[str],
    schema: Schema,
    image: pa.StructArray | None,
    modes: Modes,
    *,
    unknown: Sequence[str] = (),
    filled: bool = False,
) -> list[FieldValues]:
    """The named columns of a row image.

    Args:
        table: the table.
        names: names of the columns.
        schema: a schema whose fields are those of the columns.
        image: the row image; None: there are no columns.
        modes: Debezium's handling modes.
        unknown: columns whose values PostgreSQL's log omits: a placeholder is written if they have one.
        filled: see `layout.cell`.
    """
    if image is None:
        return []
    index_of = {column.name: i for i, column in enumerate(table.columns)}
    columns = []
    for name, field_schema in zip(names, schema["fields"], strict=True):
        column = table.columns[index_of[name]]
        placeholder = postgres.placeholder(column.type, modes) if name in unknown else None
        if placeholder is not None and field_schema["type"] in ("string", "bytes"):
            columns.append(FieldValues(field_schema, None, from_json(field_schema, json.loads(placeholder))))
            continue
        values = cell("", image.field(index_of[name]), column, modes, table.id, filled=filled)
        columns.append(FieldValues(field_schema, values))
    return columns


def source_columns(batch: ChangeBatch, schema: Schema, block: SourceBlock) -> list[FieldValues]:
    """The fields of `source`."""
    constants = block.constants(batch.table.id)
    return [
        FieldValues(f, None, constants.get(field.name))
        if array is None
        else FieldValues(f, Cell("", array, field.kind, field.absent))
        for f, (field, array) in zip(schema["fields"], block.columns(batch), strict=True)
    ]


def transaction_columns(batch: ChangeBatch, schema: Schema) -> list[FieldValues]:
    """The fields of `transaction`; none if the changes' order in it is unknown."""
    if batch.order is None:
        return []
    ids = Cell("", batch.origin.column("txn").dictionary_decode(), value_kinds.STRING)
    orders = [Cell("", batch.order.field(i), value_kinds.INT64) for i in range(2)]
    return [FieldValues(f, cell) for f, cell in zip(schema["fields"], [ids, *orders], strict=True)]


def closing_columns(batch: ChangeBatch, fields: Sequence[Schema], now_ms: int) -> list[FieldValues]:
    """The envelope's fields after `transaction`."""
    times = {"ts_ms": now_ms, "ts_us": now_ms * 1000, "ts_ns": now_ms * 1_000_000}
    letters = Cell("", op_letters(batch), value_kinds.STRING)
    return [
        FieldValues(f, letters) if f["field"] == "op" else FieldValues(f, None, times.get(f["field"]))
        for f in fields
    ]


def fields(columns: Sequence[FieldValues], format_: BinaryFormat, first: int = 1) -> list[Field]:
    """The columns as a format writes them, numbered from `first` on."""
    return [format_.field(column, number) for number, column in enumerate(columns, first)]


def varint(value: int) -> bytes:
    """A non-negative integer, seven bits per byte, the lowest bits first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write(
    parts: Sequence[FieldGroup],
    batch: ChangeBatch,
    *,
    zigzag: bool,
    whole_rows: str = "SET GLOBAL binlog_row_image = FULL",
) -> pa.Array:
    """Write one record per change.

    Args:
        parts: the parts of a record, in order.
        batch: the changes.
        zigzag: whether integers have zigzag encoding.
        whole_rows: the statement that makes the log hold whole rows, for errors.

    Raises:
        SinkError: the records are larger than 2 GiB, or a value that must not be NULL is missing.
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
            expected += rows * (len(f.present) + 12) + (data if f.kind >= value_kinds.STRING else 0)
        keep.append(blocks)
        words[records.WHEN] = part.when
        words[records.FIELDS], words[records.COUNT] = blocks.ctypes.data, len(part.fields)
        words[records.OPENING : records.OPENING_LENGTH + 1] = pool.span(part.opening)
        words[records.FORM] = part.form
        words[records.MISSING : records.MISSING_LENGTH + 1] = pool.span(part.missing)
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
                raise _missing(batch, part.fields[int(job[records.CULPRIT_FIELD])].name, whole_rows)
    buffers = [None, pa.py_buffer(offsets), output.buffer(int(offsets[-1]))]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _describe(block: np.ndarray, f: Field, pool: TextPool, keep: list[np.ndarray]) -> None:
    block[documents.KIND] = f.kind
    block[records.PRESENT : records.PRESENT_LENGTH + 1] = pool.span(f.present)
    block[records.ABSENT : records.ABSENT_LENGTH + 1] = (0, -1) if f.absent is None else pool.span(f.absent)
    block[documents.DETAIL] = f.detail
    if f.tags:
        tags = np.array(f.tags, np.int64)
        keep.append(tags)
        block[documents.DETAIL] = tags.ctypes.data
    if f.skip is not None:
        bits = np.packbits(f.skip, bitorder="little")
        keep.append(bits)
        block[records.SKIP] = bits.ctypes.data
    if f.array is not None:
        describe(block, f.array)


def _missing(batch: ChangeBatch, name: str, whole_rows: str) -> SinkError:
    return SinkError(
        f"column `{name}` of table `{batch.table.id}` is NOT NULL, but a change has no value for it",
        "the schema of its messages allows no null; a log without whole row images omits columns",
        f"{whole_rows}, or write JSON (`value-format: debezium-json`)",
        code="TR-4405",
    )
