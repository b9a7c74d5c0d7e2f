"""Documents' sources are read back as the rows that they were written from."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.sinks.opensearch.sources import rows_of

_DAYS = [0, -719_162, 2_932_896, 2_932_897, -719_163, -720_000, -735_000, 5_000_000, 2**31 - 1, -(2**31)]
_FAR = [0, None, 1, -1, 253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63) + 1]
COLUMNS = {
    "i": pa.array([1, None, -(1 << 62)], pa.int64()),
    "f": pa.array([0.1, float("inf"), None], pa.float64()),
    "g": pa.array([0.1, -float("inf"), 1e30], pa.float32()),
    "b": pa.array([True, None, False]),
    "s": pa.array(["", None, 'ü🐟\0"']),
    "x": pa.array([b"", b"\x00\xff", None], pa.binary()),
    "d": pa.array([Decimal("1.50"), None, Decimal("-" + "1" * 35 + ".67")], pa.decimal128(38, 2)),
    "l": pa.array([["a", None], None, []], pa.list_(pa.string())),
    "m": pa.array([[b"a"], None, [b"\xff"]], pa.list_(pa.binary())),
    "day": pa.array(_DAYS, pa.int32()).cast(pa.date32()),
    "near": pa.array([0, None, 1, -1, 951_782_400_250_000, 253_402_300_799_999_999], pa.int64()).cast(
        pa.timestamp("us")
    ),
    "wall": pa.array(
        [0, None, 1, -1, 253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63) + 1],
        pa.int64(),
    ).cast(pa.timestamp("us")),
    "at": pa.array([0, None, 1, 253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back_as_they_were(name: str) -> None:
    column = COLUMNS[name]
    numbers = [column.slice(i, 1) for i in range(len(column))]
    sources = [{name: json.loads(json.dumps(_value(one)))} for one in numbers]
    found = rows_of(sources, pa.schema([(name, column.type)]), "t").column(0)
    assert found.type == column.type
    if pa.types.is_temporal(column.type):
        whole = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        found, column = found.cast(whole), column.cast(whole)
    assert found.to_pylist() == column.to_pylist()


def _value(one: pa.Array) -> object:
    from tailrace.formats.encodings.json_documents import row_texts
    from tailrace.sinks.opensearch.documents import _NO_TABLE, _cell

    return json.loads(row_texts([_cell("", one)], "", 1, _NO_TABLE)[0].as_py())


def test_field_that_a_document_lacks_is_null() -> None:
    assert rows_of([{}], pa.schema([("a", pa.int64())]), "t").to_pylist() == [{"a": None}]


@pytest.mark.parametrize("type_", [pa.int64(), pa.date32(), pa.binary(), pa.decimal128(9, 2), pa.float64()])
def test_value_of_another_type_is_an_error_without_it(type_: pa.DataType) -> None:
    with pytest.raises(SinkError, match="has a value that its column cannot have") as raised:
        rows_of([{"a": "secret!"}], pa.schema([("a", type_)]), "t")
    assert raised.value.code == "TR-7308"
    assert "secret" not in str(raised.value)
