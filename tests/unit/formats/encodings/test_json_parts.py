"""Parts that are made once for a table hold what those that are made for each batch do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.formats.connect.modes import DEFAULT_MODES, Modes
from tailrace.formats.encodings.json_documents import Document, _write
from tailrace.formats.encodings.json_parts import NO_PART, DocumentPart, part_of, row_objects
from tailrace.formats.encodings.layout import Cell, cell
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

#: Types of PostgreSQL whose values are converted, some by what they are.
_CONVERTED = {
    "span": (ColumnType(Kind.STRING, "interval"), "P1DT2H"),
    "at": (ColumnType(Kind.INSTANT, "timestamptz", fraction=6), 2**63 - 1),
    "wall": (ColumnType(Kind.DATETIME, "timestamp", fraction=6), 1_700_000_000_000_000),
    "list": (ColumnType(Kind.LIST, "int4[]", element=ColumnType(Kind.INTEGER, "int4", bits=32)), [1, None]),
}
_TABLE = TableSchema(
    TYPES_TABLE.id,
    (*TYPES_TABLE.columns, *(Column(f"pg_{name}", type_) for name, (type_, _) in _CONVERTED.items())),
    TYPES_TABLE.key,
)


def _rows(numbers: list[int | None]) -> pa.StructArray:
    """Row images: those of the samples, or none."""
    values = {f"pg_{name}": value for name, (_, value) in _CONVERTED.items()}
    return pa.array([None if n is None else {**TYPES_ROWS[n], **values} for n in numbers], _TABLE.arrow)


def _one_by_one(image: pa.StructArray, modes: Modes, names: Sequence[str], *, filled: bool) -> list[Cell]:
    cells = []
    for name in names:
        label = f'{"," if cells else "{"}"{name}":'
        column = _TABLE.column(name)
        cells.append(cell(label, image.field(name), column, modes, _TABLE.id, filled=filled))
    return cells


def _texts(part: DocumentPart, rows: int) -> list[bytes]:
    """What the kernel writes: as keys, which it writes for all rows."""
    document = Document("", NO_PART, "", NO_PART, NO_PART, "", NO_PART, part, "}")
    return _write(document, np.zeros(rows, np.int8), _TABLE, (None, None))[0].to_pylist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=20),
    st.integers(0, 19),
    st.booleans(),
    st.booleans(),
    st.sampled_from([DEFAULT_MODES, Modes("string", "microseconds", "precise", "hex", adjust_years=True)]),
)
def test_objects_of_rows_are_those_of_their_columns(numbers, first, of_key, filled, modes):
    image = _rows(numbers).slice(min(first, len(numbers) - 1))
    names = _TABLE.key if of_key else [column.name for column in _TABLE.columns]
    cells = _one_by_one(image, modes, names, filled=filled)
    for _ in range(2):  # the second time by what is known of the table
        part = row_objects(_TABLE, "{", modes, of_key=of_key, filled=filled).part(image)
        assert _texts(part, len(image)) == _texts(part_of(cells), len(image))
        assert part.labels == part_of(cells).labels


def test_columns_that_are_unknown_have_placeholders():
    image = _rows([0, 1])
    part = row_objects(_TABLE, "{", DEFAULT_MODES, unknown=("text", "i8")).part(image)
    for text in _texts(part, 2):
        assert text.startswith(b'{"i8":null,')
        assert b'"text":"__debezium_unavailable_value",' in text
        assert b'"text_or_null":"' in text


def test_tables_that_differ_have_parts_of_their_own():
    image = _rows([2])
    optional = replace(_TABLE, columns=tuple(replace(column, nullable=True) for column in _TABLE.columns))
    missing = replace(_TABLE, columns=_TABLE.columns[::-1])
    nulls = pa.nulls(1, missing.arrow)
    assert _texts(row_objects(missing, "{", DEFAULT_MODES).part(nulls), 1)[0].startswith(b'{"pg_list":null,')
    texts = {
        _texts(row_objects(table, opening, DEFAULT_MODES).part(pa.nulls(1, table.arrow)), 1)[0]
        for table in (_TABLE, optional, missing)
        for opening in ("{", '{"a":1,')
    }
    assert len(texts) == 6
    assert _texts(row_objects(_TABLE, "{", DEFAULT_MODES).part(image), 1)[0].startswith(b'{"i8":-128,')
