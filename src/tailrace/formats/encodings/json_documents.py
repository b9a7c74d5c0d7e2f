"""Runs the document kernel over a batch of changes: describes the job, provides memory, builds the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.encodings.json_parts import NO_PART, DocumentPart, part_of
from tailrace.formats.encodings.layout import Cell, TextPool, validity_of
from tailrace.formats.kernels import documents
from tailrace.formats.kernels.unscaled import SCRATCH
from tailrace.kernels.memory import SLACK
from tailrace.kernels.tables import TABLES
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.table import TableId, TableSchema

#: Most bytes of a batch's keys or values: offsets are int32.
_MAX_OUTPUT = 2**31 - 1


@dataclass(frozen=True)
class Document:
    """The parts of a message in the order in which they are written: see `kernels.documents`.

    Args:
        head: text before the first image.
        before: the columns of the before image; NO_PART if no change has one, or to omit it.
        middle: text between the images.
        after: the same for the after image.
        source: the values after the images.
        tail: text at the end.
        key_before: the key columns of the before image; if both are empty, no keys are written.
        key_after: the key columns of the after image.
        key_tail: text at the end of the key.
    """

    head: str
    before: DocumentPart
    middle: str
    after: DocumentPart
    source: DocumentPart
    tail: str
    key_before: DocumentPart
    key_after: DocumentPart
    key_tail: str


def write(document: Document, batch: ChangeBatch) -> tuple[pa.Array, pa.Array]:
    """Write the keys and values of a batch's messages.

    Args:
        document: the parts of a message.
        batch: the changes.

    Returns:
        Keys and values: one of each per change, and after each delete one more with a null value.

    Raises:
        SinkError: keys or values are larger than 2 GiB.
    """
    return _write(document, operations(batch), batch.table, (batch.before, batch.after))


def row_texts(cells: Sequence[Cell], end: str, rows: int, table: TableSchema) -> pa.BinaryArray:
    """One text per row: label and value of each cell, then `end`.

    Args:
        cells: the values.
        end: text at the end.
        rows: how many rows there are.
        table: the table, for errors.

    Raises:
        SinkError: the texts are larger than 2 GiB.
    """
    # written as the keys of messages are
    document = Document("", NO_PART, "", NO_PART, NO_PART, "", NO_PART, part_of(cells), end)
    return _write(document, np.zeros(rows, np.int8), table, (None, None))[0]


def _write(
    document: Document,
    op: np.ndarray,
    table: TableSchema,
    images: tuple[pa.StructArray | None, pa.StructArray | None],
) -> tuple[pa.Array, pa.Array]:
    """See `write`.

    Args:
        document: the parts of a message.
        op: the codes of the changes' operations.
        table: the table.
        images: the rows before and after the changes.
    """
    parts = [document.before, document.after, document.source, document.key_before, document.key_after]
    texts = [document.head, document.middle, document.tail, document.key_tail]
    before, after, source, key_before, key_after = parts
    pool = TextPool()
    for text in texts:
        pool.add(text)
    pool.seal()
    messages = len(op) + int(np.count_nonzero(op == OP_DELETE))
    scratch = np.zeros(SCRATCH + SLACK, np.uint8)
    offsets = np.zeros((2, messages + 1), np.int32)
    validity = np.zeros(messages // 8 + 1, np.uint8)
    key_columns = len(key_before) or len(key_after)

    job = np.zeros(documents.JOB, np.int64)
    job[documents.ROWS] = len(op)
    job[documents.OP] = op.ctypes.data
    job[documents.OP_DELETE] = OP_DELETE
    job[documents.COLUMNS] = len(table.columns)
    for at, part, image in (
        (documents.BEFORE, before, images[0]),
        (documents.AFTER, after, images[1]),
    ):
        if image is not None and len(part):
            job[at : at + 3] = part.blocks.ctypes.data, validity_of(image), image.offset
    job[documents.SOURCE : documents.SOURCE + 2] = source.blocks.ctypes.data, len(source)
    for at, text in zip(
        (documents.HEAD, documents.MIDDLE, documents.TAIL, documents.KEY_TAIL), texts, strict=True
    ):
        job[at : at + 2] = pool.span(text)
    job[documents.KEY_COLUMNS] = key_columns
    for at, part in ((documents.KEY_BEFORE, key_before), (documents.KEY_AFTER, key_after)):
        job[at] = part.blocks.ctypes.data
    job[documents.KEY_OFFSETS], job[documents.VALUE_OFFSETS] = (row.ctypes.data for row in offsets)
    job[documents.VALUE_VALIDITY] = validity.ctypes.data
    job[documents.SCRATCH_ADDRESS] = scratch.ctypes.data

    fixed = sum(map(len, texts)) * len(op)
    keys = Output(_expected(parts[3:], [messages] * 2) + (fixed if key_columns else 0))
    present = [0 if image is None else len(op) - image.null_count for image in images]
    values = Output(_expected(parts[:3], [*present, len(op)]) + fixed)
    while True:
        job[documents.KEY_OUT : documents.KEY_CAPACITY + 1] = keys.words()
        job[documents.VALUE_OUT : documents.VALUE_CAPACITY + 1] = values.words()
        match documents.write_messages(job.ctypes.data, TABLES):
            case documents.DONE:
                break
            case documents.KEY_FULL:
                keys.grow(int(job[documents.KEY_USED]), table.id)
            case _:
                values.grow(int(job[documents.VALUE_USED]), table.id)
    arrays = [
        pa.Array.from_buffers(pa.binary(), messages, [valid, pa.py_buffer(row), output.buffer(int(row[-1]))])
        for valid, row, output in ((None, offsets[0], keys), (pa.py_buffer(validity), offsets[1], values))
    ]
    return (arrays[0] if key_columns else pa.nulls(messages, pa.binary())), arrays[1]


def _expected(parts: Sequence[DocumentPart], rows: Sequence[int]) -> int:
    """Estimated number of bytes for these parts, each of as many rows as `rows` says."""
    labels = sum(n * (part.labels + 24 * len(part)) for part, n in zip(parts, rows, strict=True))
    texts = sum(part.texts for part in parts)
    return labels + texts + texts // 2


class Output:
    """A growing memory region to which the kernel writes."""

    def __init__(self, expected: int) -> None:
        self._capacity = min(max(expected, 4096), _MAX_OUTPUT)
        self._memory = np.empty(self._capacity + SLACK, np.uint8)

    def words(self) -> tuple[int, int]:
        """Address and capacity."""
        return self._memory.ctypes.data, self._capacity

    def grow(self, used: int, table: TableId) -> None:
        """Double the capacity, keeping the first `used` bytes.

        Raises:
            SinkError: the capacity is 2 GiB already.
        """
        if self._capacity == _MAX_OUTPUT:
            raise SinkError(
                f"a batch of changes of table `{table}` needs more than 2 GiB of messages",
                "Tailrace encodes some thousand rows at a time",
                "exclude the table's largest columns with a transform",
                code="TR-7605",
            )
        self._capacity = min(2 * self._capacity, _MAX_OUTPUT)
        grown = np.empty(self._capacity + SLACK, np.uint8)
        grown[:used] = self._memory[:used]
        self._memory = grown

    def buffer(self, used: int) -> pa.Buffer:
        """The first `used` bytes, copied if they would keep much unused memory alive."""
        kept = self._memory[:used]
        return pa.py_buffer(kept.copy() if 2 * used < self._capacity else kept)


def operations(batch: ChangeBatch) -> np.ndarray:
    """The operation codes of the batch."""
    return np.asarray(batch.op.to_numpy())
