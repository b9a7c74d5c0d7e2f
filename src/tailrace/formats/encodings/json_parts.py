"""The parts of JSON documents, as the kernel reads them: blocks of columns, and what these point into.

Columns of any origin are made a part for each batch (`part_of`). Texts and kinds of a table's row images are
the same in all batches: `RowObjects` makes them once, and the kernel takes the addresses of all columns from
Arrow's C data interface. One by one, that took Python as long as the kernel writes some hundred rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.formats.connect import postgres
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.value_modes import may_convert
from tailrace.formats.encodings.layout import Cell, TextPool, blocks, cell, dumps, plain_cell
from tailrace.formats.kernels import documents, value_kinds
from tailrace.model.table import TableSchema

_array_of = ctypes.pythonapi.PyCapsule_GetPointer
_array_of.argtypes, _array_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


@dataclass(frozen=True)
class DocumentPart:
    """Columns of a document.

    Args:
        blocks: the kernel's blocks, one per column; it writes to them.
        texts: bytes of the values that have offsets, in all rows.
        keeps: what the blocks point into.
    """

    blocks: np.ndarray
    texts: int
    keeps: Any

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def labels(self) -> int:
        """Bytes of the labels."""
        return int(self.blocks[:, documents.LABEL_LENGTH].sum())


NO_PART = DocumentPart(np.zeros((0, documents.WORDS), np.int64), 0, ())


def part_of(cells: Sequence[Cell]) -> DocumentPart:
    """The part that consists of these columns."""
    pool = _pool(cells)
    texts = sum(int(c.array.nbytes) for c in cells if c.kind >= value_kinds.STRING)
    return DocumentPart(blocks(cells, pool), texts, (pool, cells))


def joined(one: DocumentPart, other: DocumentPart) -> DocumentPart:
    """The columns of one part, then those of another."""
    keeps = (one.keeps, other.keeps)
    return DocumentPart(np.concatenate([one.blocks, other.blocks]), one.texts + other.texts, keeps)


class PartTemplate:
    """Columns whose texts and kinds are the same in all batches; only the arrays are others.

    Args:
        cells: the columns; what arrays they have does not matter.
        children: the number of each column's array among those of a batch; NO_CHILD: `part` gets its block.
    """

    def __init__(self, cells: Sequence[Cell], children: Sequence[int]) -> None:
        self._pool = _pool(cells)
        self._blocks = blocks(cells, self._pool)
        self._children = np.array(children, np.int64)
        self._others = np.flatnonzero(self._children == documents.NO_CHILD)

    def part(self, arrays: pa.StructArray, others: DocumentPart = NO_PART) -> DocumentPart:
        """The part with a batch's arrays.

        Args:
            arrays: the arrays; none of the columns taken from it is a list.
            others: the columns that are not taken from it, in their order.
        """
        made = self._blocks.copy()
        _, capsule = arrays.__arrow_c_array__()
        array = _array_of(capsule, b"arrow_array")
        texts = documents.describe_children(array, self._children.ctypes.data, made.ctypes.data, len(made))
        made[self._others] = others.blocks
        return DocumentPart(made, texts + others.texts, (self._pool, capsule, others.keeps))


class RowObjects:
    """Columns of a table's row images, as the fields of an object.

    Args:
        table: the table.
        names: names of the columns.
        opening: text before the first field.
        modes: Debezium's handling modes.
        unknown: columns whose values are unknown: a placeholder is written.
        filled: see `layout.cell`.
    """

    def __init__(
        self,
        table: TableSchema,
        names: Sequence[str],
        opening: str,
        modes: Modes,
        *,
        unknown: Sequence[str] = (),
        filled: bool = False,
    ) -> None:
        self._table, self._modes, self._unknown, self._filled = table, modes, unknown, filled
        index_of = {column.name: i for i, column in enumerate(table.columns)}
        cells, children = [], []
        #: Label and number of each column that is made anew in each batch.
        self._others: list[tuple[str, int]] = []
        for at, name in enumerate(names):
            child, label = index_of[name], f"{',' if at else opening}{dumps(name)}:"
            column = table.columns[child]
            if name in unknown or may_convert(column.type, modes) or pa.types.is_list(column.type.arrow):
                self._others.append((label, child))
                cells.append(Cell(label, _NOTHING, value_kinds.RAW))
                children.append(documents.NO_CHILD)
            else:
                cells.append(plain_cell(label, _NOTHING, column, modes, filled=filled))
                children.append(child)
        self._template = PartTemplate(cells, children)

    def part(self, image: pa.StructArray) -> DocumentPart:
        """The part that consists of the columns of `image`."""
        if not self._others:
            return self._template.part(image)
        others = [self._other(label, child, image) for label, child in self._others]
        return self._template.part(image, part_of(others))

    def _other(self, label: str, child: int, image: pa.StructArray) -> Cell:
        column = self._table.columns[child]
        if column.name not in self._unknown:
            array = image.field(child)
            return cell(label, array, column, self._modes, self._table.id, filled=self._filled)
        placeholder = postgres.placeholder(column.type, self._modes) or "null"
        return Cell(label, pa.nulls(len(image), pa.string()), value_kinds.STRING, placeholder)


@dataclass(frozen=True, eq=False)
class _ByText:
    """A table that equals others of the same text: it is quicker than to compare and hash all columns."""

    table: TableSchema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByText) and self.table.text == other.table.text

    def __hash__(self) -> int:
        return hash(self.table.text)


def row_objects(
    table: TableSchema,
    opening: str,
    modes: Modes,
    *,
    of_key: bool = False,
    unknown: Sequence[str] = (),
    filled: bool = False,
) -> RowObjects:
    """See `RowObjects`; `of_key`: the key's columns, else all. Made once for batches with the same table."""
    return _known(_ByText(table), opening, modes, of_key, tuple(unknown), filled)


@lru_cache(maxsize=1024)
def _known(  # noqa: PLR0917 - all of it is a cache's key
    of: _ByText,
    opening: str,
    modes: Modes,
    of_key: bool,
    unknown: tuple[str, ...],
    filled: bool,
) -> RowObjects:
    names = of.table.key if of_key else [column.name for column in of.table.columns]
    return RowObjects(of.table, names, opening, modes, unknown=unknown, filled=filled)


def _pool(cells: Sequence[Cell]) -> TextPool:
    """The texts of these columns."""
    pool = TextPool()
    for c in cells:
        pool.add(c.label)
        pool.add(c.label + c.absent)
    pool.seal()
    return pool


_NOTHING = pa.nulls(0, pa.string())
