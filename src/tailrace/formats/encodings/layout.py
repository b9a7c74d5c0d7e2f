"""Descriptions of Arrow arrays for the kernels: one block of words per column, texts in one pool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.formats.connect import postgres
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.postgres import UnencodableError
from tailrace.formats.connect.schemas import is_optional
from tailrace.formats.connect.value_modes import converted, kind_of
from tailrace.formats.kernels import documents
from tailrace.kernels.memory import SLACK
from tailrace.model.table import Column, TableId
from tailrace.model.types import Kind


@dataclass(frozen=True)
class Cell:
    """One value of a document: a column, the text before each value, and the text for NULL.

    Args:
        label: JSON text before the value, e.g. `,"name":`.
        array: the values, one per row.
        kind: how they are written, a constant of `documents`.
        absent: JSON text for NULL.
        detail: the kernel's DETAIL.
    """

    label: str
    array: pa.Array
    kind: int
    absent: str = "null"
    detail: int = 0


def dumps(value: Any) -> str:
    """JSON without blanks, with non-ASCII characters unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cell(
    label: str, array: pa.Array, column: Column, modes: Modes, table: TableId, *, filled: bool = False
) -> Cell:
    """A table's column, written as Debezium writes its type in these modes.

    A NULL in a NOT NULL column was a zero date: Debezium writes the epoch instead.

    Args:
        label: text before a value.
        array: the column's values.
        column: the column.
        modes: the handling modes.
        table: the table.
        filled: whether NULL in a NOT NULL column is a value that the log of PostgreSQL omits.

    Raises:
        SinkError: a mode cannot represent a value.
    """
    type_ = column.type
    try:
        form = None if type_.zero_dates == "text" else converted(array, type_, modes)
    except UnencodableError as error:
        raise SinkError(
            f"a value of column `{column.name}` of table `{table}` has no form in messages",
            f"{error.message}: {error.detail}",
            error.hint,
            code="TR-7604",
        ) from error
    if form is None:
        return plain_cell(label, array, column, modes, filled=filled)
    written, kind, zero = form
    return Cell(label, written, kind, _absent(column, modes, zero, filled=filled), type_.fraction or 0)


def plain_cell(label: str, array: pa.Array, column: Column, modes: Modes, *, filled: bool = False) -> Cell:
    """The same of a column whose values no mode converts."""
    type_ = column.type
    absent = _absent(column, modes, _ZERO_DATES.get(type_.kind), filled=filled)
    return Cell(label, array, kind_of(type_), absent, type_.fraction or 0)


def _absent(column: Column, modes: Modes, zero: str | None, *, filled: bool) -> str:
    """JSON text for NULL; `zero`: for a zero date."""
    if is_optional(column) or column.type.zero_dates == "text":
        return "null"
    return postgres.filler(column.type, modes) if filled else zero or "null"


_ZERO_DATES = {Kind.DATE: "0", Kind.DATETIME: "0", Kind.INSTANT: '"1970-01-01T00:00:00Z"'}


class TextPool:
    """Texts at fixed addresses: `add` all of them, then `seal`, then get their addresses."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._offsets: dict[str | bytes, tuple[int, int]] = {}
        self._base = 0
        self._memory = np.zeros(0, np.uint8)

    def add(self, text: str | bytes) -> None:
        """Put `text` into the pool."""
        if text not in self._offsets:
            piece = text if isinstance(text, bytes) else text.encode()
            self._offsets[text] = (self._size, len(piece))
            self._pieces.append(piece)
            self._size += len(piece)

    def seal(self) -> None:
        """Fix the addresses."""
        self._memory = np.frombuffer(b"".join([*self._pieces, bytes(SLACK)]), np.uint8)
        self._base = self._memory.ctypes.data

    def span(self, text: str | bytes) -> tuple[int, int]:
        """Address and length of a text that was added before the pool was sealed."""
        offset, length = self._offsets[text]
        return self._base + offset, length


def blocks(cells: Sequence[Cell], pool: TextPool) -> np.ndarray:
    """The kernel's blocks for `cells`, whose texts are in the sealed `pool`."""
    out = np.zeros((len(cells), documents.WORDS), np.int64)
    for block, c in zip(out, cells, strict=True):
        block[documents.KIND] = c.kind
        describe(block, c.array)
        block[documents.LABEL : documents.LABEL_LENGTH + 1] = pool.span(c.label)
        block[documents.ABSENT : documents.ABSENT_LENGTH + 1] = pool.span(c.label + c.absent)
        block[documents.DETAIL] = c.detail
    return out


def describe(block: np.ndarray, array: pa.Array) -> None:
    """Write an array's buffers and offset to a block: VALIDITY, VALUES, DATA and OFFSET."""
    buffers = array.buffers()
    data = _address(buffers[-1]) if len(buffers) > 2 else 0
    if pa.types.is_list(array.type):
        data += array.values.offset * (array.type.value_type.bit_width // 8)
    block[documents.VALIDITY] = validity_of(array)
    block[documents.VALUES] = _address(buffers[1])
    block[documents.DATA] = data
    block[documents.OFFSET] = array.offset


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def validity_of(array: pa.Array) -> int:
    """Address of an array's validity bitmap, 0 if it has no nulls."""
    return _address(array.buffers()[0]) if array.null_count else 0
