"""Values of a replica in a database of another kind, in the form that the source has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.model.types import ColumnType, Kind
from tailrace.verify.foreign import ForeignTypes
from tests.support.changes import INT, table


@pytest.mark.parametrize(
    ("bits", "held", "as_of_source"),
    [
        (4, "0101", b"\x05"),
        (12, "000100000001", b"\x01\x01"),
        (4, "00000101", b"\x05"),
        (4, "100000101", b""),
        (12, "1" * 17, b""),
        (64, "1" * 64, b"\xff" * 8),
        (4, None, None),
    ],
    ids=str,
)
def test_bit_string_is_its_number_and_one_that_is_too_long_equals_none(bits, held, as_of_source):
    found = table(("id", INT), ("b", ColumnType(Kind.STRING, "bit")), key=("id",))
    of_source = ForeignTypes({"b": ColumnType(Kind.BITS, f"bit({bits})", bits=bits)}, rewrites_json=False)
    rows = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([held, "0"])], ["id", "b"])
    values = of_source.as_of_source(rows, found).field("b").to_pylist()
    assert values == [as_of_source, bytes(-(-bits // 8))]
