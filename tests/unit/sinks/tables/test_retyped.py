"""Columns whose new type their target cannot hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.iceberg import columns as iceberg
from tailrace.sinks.tables.columns import can_follow, follow, stored_schema, stored_type
from tailrace.sinks.tables.retyped import retyped_schema, retyping
from tailrace.sinks.tables.rows import snapshot_rows
from tests.support.changes import BIGINT, INT, TEXT, changes, table

MONEY = ColumnType(Kind.DECIMAL, "decimal", precision=20, scale=2)
NUMBERS = table(("id", BIGINT), ("v", INT), key=("id",))
TEXTS = table(("id", BIGINT), ("v", TEXT), key=("id",))
HELD = stored_schema(NUMBERS)


def test_column_that_cannot_follow_gets_another_name() -> None:
    found = retyped_schema(TEXTS, HELD, stored_type, can_follow)
    assert [c.name for c in found.columns] == ["id", "v__string"]
    assert found.key == ("id",)


def test_column_that_can_follow_keeps_its_name() -> None:
    wide = table(("id", BIGINT), ("v", BIGINT), ("w", TEXT), key=("id",))
    assert retyped_schema(wide, HELD, stored_type, can_follow) is wide


def test_what_iceberg_cannot_widen_gets_another_name_there() -> None:
    decimals = table(("id", BIGINT), ("v", MONEY), key=("id",))
    assert retyped_schema(decimals, HELD, stored_type, can_follow) is decimals
    found = retyped_schema(decimals, iceberg.storable(HELD), stored_type, iceberg.can_follow)
    assert [c.name for c in found.columns] == ["id", "v__decimal128_20_2"]


def test_key_keeps_its_name() -> None:
    texts = table(("id", TEXT), ("v", INT), key=("id",))
    assert retyped_schema(texts, HELD, stored_type, can_follow) is texts


def test_name_that_the_table_has_itself_is_refused() -> None:
    texts = table(("id", BIGINT), ("v", TEXT), ("V__String", INT), key=("id",))
    with pytest.raises(SinkError, match="column of its own") as raised:
        retyped_schema(texts, HELD, stored_type, can_follow)
    assert raised.value.code == "TR-7036"


def test_values_without_a_place_are_an_error() -> None:
    unpack = retyping(snapshot_rows(HELD), HELD, stored_type)
    with pytest.raises(SinkError, match="no column `v__string`"):
        unpack(changes(TEXTS, [("r", None, {"id": 1, "v": "x"})]))


def test_values_go_to_the_column_of_their_type() -> None:
    held = HELD.append(pa.field("v__string", pa.string()))
    unpack = retyping(snapshot_rows(held), held, stored_type)
    texts = unpack(changes(TEXTS, [("r", None, {"id": 1, "v": "x"})]))
    numbers = unpack(changes(NUMBERS, [("r", None, {"id": 2, "v": 5})]))
    assert [*texts.to_pylist(), *numbers.to_pylist()] == [
        {"id": 1, "v": None, "v__string": "x"},
        {"id": 2, "v": 5, "v__string": None},
    ]


@pytest.mark.parametrize(
    ("policy", "code"), [(OnIncompatibleType.PARK, "TR-7001"), (OnIncompatibleType.FAIL, "TR-7035")]
)
def test_other_policies_name_the_column(policy: OnIncompatibleType, code: str) -> None:
    with pytest.raises(SinkError, match="column `v` of target") as raised:
        follow("shop.t", HELD, stored_schema(TEXTS), policy)
    assert raised.value.code == code
