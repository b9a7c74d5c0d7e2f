"""What was just written is copied where values repeat: messages are those of values written one by one."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.formats.encodings import json_documents
from tailrace.formats.encodings.json_documents import Document
from tailrace.formats.encodings.json_parts import NO_PART, part_of
from tailrace.formats.encodings.layout import Cell
from tailrace.formats.kernels import value_kinds
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE
from tests.support.changes import INT, table

#: Few values of each kind, so that they repeat; of texts some that fill an output.
KINDS: list[tuple[int, pa.DataType, list[Any]]] = [
    (value_kinds.INT8, pa.int8(), [-1, 0, 7]),
    (value_kinds.INT32, pa.int32(), [0, 10, 2**31 - 1]),
    (value_kinds.INT64, pa.int64(), [-(2**63), 9_999, 10_000]),
    (value_kinds.LOW64, pa.decimal128(20, 0), [Decimal(0), Decimal(2**63 - 1)]),
    (value_kinds.FLOAT, pa.float32(), [0.0, -0.0, 0.1]),
    (value_kinds.DOUBLE, pa.float64(), [0.0, -0.0, 1e300]),
    (value_kinds.BOOLEAN, pa.bool_(), [True, False]),
    (value_kinds.DECIMAL, pa.decimal128(38, 2), [Decimal("1.50"), Decimal(2**70), Decimal(2**70 + 1)]),
    (value_kinds.MILLIS, pa.int64(), [1_000, 1_999]),
    (value_kinds.NANOS, pa.int64(), [1, 2]),
    (value_kinds.STRING, pa.string(), ["", "é", 'a"b', "x" * 3000, "x" * 2999 + "y"]),
    (value_kinds.BINARY, pa.binary(), [b"", b"\0\1", b"\0\2"]),
    (value_kinds.FLOATS, pa.list_(pa.float32()), [[], [1.0], [1.0, 2.0], [1.0, 3.0]]),
    (value_kinds.RAW, pa.string(), ["{}", "[1]"]),
]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> list[tuple[int, pa.DataType, Callable[[], pa.Array]]]:
    """Kinds of columns, each with what draws its values."""
    found = []
    for kind, type_, values in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5)):
        few = st.lists(st.sampled_from([None, *values]), min_size=rows + 1, max_size=rows + 1)

        def array(few: Any = few, type_: pa.DataType = type_) -> pa.Array:
            return pa.array(draw(few), type_).slice(1)  # with an offset

        found.append((kind, type_, array))
    return found


def cells(found: Any, prefix: str) -> list[Cell]:
    return [
        Cell(f'{"{" if i == 0 else ","}"{prefix}{i}":', array(), kind, "null" if i % 2 else "0")
        for i, (kind, _, array) in enumerate(found)
    ]


def image(arrays: list[Cell], present: np.ndarray) -> pa.StructArray:
    names = [str(i) for i in range(len(arrays))]
    return pa.StructArray.from_arrays([c.array for c in arrays], names, mask=pa.array(~present))


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.parametrize("room", [0, None])
def test_messages_are_those_of_values_written_one_by_one(room: int | None, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 12))
    kinds = data.draw(columns(rows))
    before, after, source = cells(kinds, "c"), cells(kinds, "c"), cells(data.draw(columns(rows)), "s")
    operations = st.sampled_from([OP_CREATE, OP_UPDATE, OP_DELETE])
    ops = np.array(data.draw(st.lists(operations, min_size=rows, max_size=rows)), np.int8)
    images = image(before, ops != OP_CREATE), image(after, ops != OP_DELETE)
    schema = table(*((str(i), INT) for i in range(len(kinds))), key=())
    parts = [part_of(each) for each in (before, after, source)]
    document = Document("<", parts[0], "|", parts[1], parts[2], ">", NO_PART, NO_PART, "")
    with pytest.MonkeyPatch.context() as patch:
        if room is not None:  # an output of 4096 bytes at first
            patch.setattr(json_documents, "_expected", lambda *_: room)
        _, values = json_documents._write(document, ops, schema, images)
        singly = [json_documents.row_texts(part, "}", rows, schema).to_pylist() for part in (before, after)]
        origins = json_documents.row_texts(source, "", rows, schema).to_pylist()
    expected = [
        b"<%b|%b%b>" % (b"null" if op == OP_CREATE else old, b"null" if op == OP_DELETE else new, origin)
        for op, old, new, origin in zip(ops, *singly, origins, strict=True)
    ]
    assert values.drop_null().to_pylist() == expected
