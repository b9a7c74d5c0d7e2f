"""The `source` block of one change equals that of a batch, and both have the schema's fields."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tailrace.formats.connect.source_block import SourceBlock, source_schema
from tailrace.formats.kernels import value_kinds
from tests.unit.formats.changes import ORDERS, batch, change

SCALE = {value_kinds.MILLIS: lambda us: us // 1000, value_kinds.NANOS: lambda us: us * 1000}
#: 16 digits of PostgreSQL's commit position follow the first four.
SEQ = "0001000000000a0b0c0d000000000000"


@pytest.mark.parametrize("connector", ["mysql", "oracle", "postgresql"])
@pytest.mark.parametrize("op", ["r", "c"])
def test_block_of_one_change_equals_that_of_a_batch(connector: str, op: str) -> None:
    changes = batch(ORDERS, [change(op, None, {"id": 1, "name": "a"}, txn="741", seq=SEQ)])
    block = SourceBlock(connector, "app", "1", "sales")
    (origin,) = changes.origin.to_pylist()
    constants = block.constants(ORDERS.id)
    expected = {}
    for field, array in block.columns(changes):
        if array is None:
            expected[field.name] = constants.get(field.name)
        else:
            value = array[0].as_py()
            absent = json.loads(field.absent)
            expected[field.name] = absent if value is None else SCALE.get(field.kind, lambda v: v)(value)
    assert block.values(ORDERS.id, origin, snapshot=op == "r") == expected
    assert [f["field"] for f in source_schema(connector)["fields"]] == list(expected)


def test_null_in_a_field_that_is_not_optional_has_a_default() -> None:
    changes = batch(ORDERS, [change("c", None, {"id": 1, "name": "a"})])
    (origin,) = changes.origin.to_pylist()
    unknown = dict.fromkeys(origin)
    values = SourceBlock("mysql", "app", "1").values(ORDERS.id, unknown, snapshot=False)
    required = {f["field"] for f in source_schema("mysql")["fields"] if not f["optional"]}
    assert all(values[name] is not None for name in required)
    assert (values["ts_ms"], values["file"], values["gtid"]) == (0, "", None)


def test_an_oracle_change_has_its_scn_and_that_of_its_commit() -> None:
    changes = batch(ORDERS, [change("c", None, {"id": 1, "name": "a"}, txn="0A001B", seq=SEQ, pos=7)])
    block = SourceBlock("oracle", "app", "1", "FREEPDB1")
    columns = {field.name: array for field, array in block.columns(changes)}
    assert columns["scn"].to_pylist() == ["7"]
    assert columns["commit_scn"].to_pylist() == [str(0x0A0B0C0D)]
    assert columns["txId"].to_pylist() == ["0A001B"]
    constants = block.constants(ORDERS.id)
    assert (constants["db"], constants["schema"]) == ("FREEPDB1", ORDERS.id.database)


def test_sequence_holds_the_commit_and_the_change() -> None:
    changes = batch(ORDERS, [change("c", None, {"id": 1, "name": "a"}, txn="741", seq=SEQ, pos=7)])
    columns = {field.name: array for field, array in SourceBlock("postgresql", "app", "1").columns(changes)}
    assert columns["sequence"].to_pylist() == [f'["{0x0A0B0C0D}","7"]']
    assert columns["txId"].equals(pa.array([741], pa.int64()))
