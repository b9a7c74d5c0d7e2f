"""Values as text, of columns that have become text."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError
from tailrace.sinks.iceberg.columns import promotes
from tailrace.sinks.tables.columns import BecomeText, WidenColumn, follow, stored_schema, stored_type
from tailrace.sinks.tables.rows import snapshot_rows
from tailrace.sinks.tables.text_form import as_text, rows_as_text, texting
from tests.support.changes import BIGINT, INT, TEXT, changes, table

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = OnIncompatibleType.TEXT
HELD = stored_schema(table(("id", BIGINT), ("v", INT), key=("id",)))


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (-5, pa.int16(), "-5"),
        (Decimal("-0.50"), pa.decimal128(10, 2), "-0.50"),
        (Decimal("0E-8"), pa.decimal128(20, 8), "0.00000000"),
        (0.1, pa.float64(), "0.1"),
        (True, pa.bool_(), "true"),
        (b"\x00\xff", pa.binary(), "AP8="),
        (date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (NOON + timedelta(seconds=0.25), pa.timestamp("us"), "2026-03-01 12:00:00.25"),
        (NOON, pa.timestamp("us"), "2026-03-01 12:00:00"),
        (NOON, pa.timestamp("us", "UTC"), "2026-03-01 12:00:00Z"),
        (timedelta(hours=-12, minutes=-30), pa.duration("us"), "-12:30:00"),
        (timedelta(hours=838, microseconds=1), pa.duration("us"), "838:00:00.000001"),
        ([1, None], pa.list_(pa.int32()), "[1,null]"),
        (['a"', None], pa.list_(pa.string()), '["a\\"",null]'),
        ("as it is ", pa.string(), "as it is "),
    ],
)
def test_each_type_has_one_text(value: Any, type_: pa.DataType, text: str) -> None:
    assert as_text(pa.array([value, None], type_)).to_pylist() == [text, None]
    assert as_text(pa.array([None, value, None], type_)[1:]).to_pylist() == [text, None]


@pytest.mark.parametrize("value", [0.1, 1e300, 5e-324, -1.5, float("inf")])
def test_text_of_a_float_reads_as_the_same_number(value: float) -> None:
    (found,) = as_text(pa.array([value])).to_pylist()
    assert float(found) == value


def test_lists_are_json() -> None:
    (found,) = as_text(pa.array([[date(2026, 3, 1)]])).to_pylist()
    assert json.loads(found) == ["2026-03-01"]


def test_days_that_have_no_name_are_numbers() -> None:
    days = pa.array([-719_163, 0, None, 2_932_897], pa.int32()).cast(pa.date32())
    assert as_text(days).to_pylist() == ["-719163", "1970-01-01", None, "2932897"]
    moments = pa.array([-62_135_596_800_000_001, -62_135_596_800_000_000, 2**62]).cast(
        pa.timestamp("us", "UTC")
    )
    assert as_text(moments).to_pylist() == ["-62135596800000001", "0001-01-01 00:00:00Z", str(2**62)]


def test_column_that_cannot_follow_becomes_text_once() -> None:
    needed = [pa.field("v", pa.string())]
    assert follow("t", HELD, needed, POLICY) == [BecomeText("v")]
    as_it_is_then = HELD.set(1, pa.field("v", pa.string()))
    assert follow("t", as_it_is_then, needed, POLICY) == []
    assert follow("t", as_it_is_then, [pa.field("v", pa.float64())], POLICY) == []


def test_column_that_can_follow_does_not_become_text() -> None:
    assert follow("t", HELD, [pa.field("v", pa.int64())], POLICY) == [WidenColumn("v", pa.int64())]


def test_what_iceberg_cannot_widen_becomes_text_there() -> None:
    needed = [pa.field("v", pa.decimal128(20, 2))]
    assert follow("t", HELD, needed, POLICY, can_widen=promotes) == [BecomeText("v")]
    assert follow("t", HELD, [pa.field("v", pa.int64())], POLICY, can_widen=promotes) == [
        WidenColumn("v", pa.int64())
    ]


def test_key_does_not_become_text() -> None:
    with pytest.raises(SinkError, match="cannot follow") as raised:
        follow("t", HELD, [pa.field("id", pa.string())], POLICY, key=("id",))
    assert raised.value.code == "TR-7001"


def test_column_does_not_become_text_where_targets_keep_their_types() -> None:
    with pytest.raises(SinkError, match="the settings keep the types of targets"):
        follow("t", HELD, [pa.field("v", pa.string())], POLICY, widens=False)
    held = HELD.set(1, pa.field("v", pa.string()))
    assert follow("t", held, [pa.field("v", pa.int32())], POLICY, widens=False) == []


def test_changes_have_text_where_their_target_has() -> None:
    held = HELD.set(1, pa.field("v", pa.string()))
    unpack = texting(snapshot_rows(held), held, stored_type)
    numbers = table(("id", BIGINT), ("V", INT), key=("id",))
    rows = unpack(changes(numbers, [("r", None, {"id": 1, "V": 7}), ("r", None, {"id": 2, "V": None})]))
    assert rows.to_pylist() == [{"id": 1, "v": "7"}, {"id": 2, "v": None}]
    texts = table(("id", BIGINT), ("v", TEXT), key=("id",))
    rows = unpack(changes(texts, [("r", None, {"id": 1, "v": "seven"})]))
    assert rows.to_pylist() == [{"id": 1, "v": "seven"}]


def test_old_rows_get_the_same_text_as_new_ones() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"v": True, "old": {"v": False}}, {"v": None, "old": None}],
        pa.schema([("v", pa.bool_()), ("old", pa.struct([("v", pa.bool_())]))]),
    )
    schema = pa.schema([("old", pa.struct([("v", pa.string())])), ("v", pa.string())])
    assert rows_as_text(rows, schema).to_pylist() == [
        {"v": "true", "old": {"v": "false"}},
        {"v": None, "old": None},
    ]
