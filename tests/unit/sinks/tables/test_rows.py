"""The rows that changes make for targets."""

from __future__ import annotations

import pyarrow as pa

from tailrace.sinks.tables.columns import held_names
from tailrace.sinks.tables.rows import remaining_keys
from tests.support.changes import INT, TEXT, changes, table

KEYS = pa.schema([("id", pa.int64())])


def test_changes_except_deletes_leave_their_keys() -> None:
    schema = table(("ID", INT), ("name", TEXT), key=("ID",))
    row = {"ID": 1, "name": "a"}
    log = changes(schema, [("d", row, None), ("u", row, row | {"ID": 2}), ("c", None, row | {"ID": 3})])
    assert remaining_keys(KEYS)(log).to_pydict() == {"id": [2, 3]}


def test_changes_from_before_the_key_existed_leave_no_key() -> None:
    schema = table(("name", TEXT), key=("name",))
    found = remaining_keys(KEYS)(changes(schema, [("c", None, {"name": "a"})]))
    assert found.num_rows == 0
    assert found.schema == KEYS


def test_name_that_differs_in_case_is_the_targets() -> None:
    held = pa.schema([("id", pa.int64()), ("Name", pa.string())])
    assert held_names(held, ("ID", "Name", "other")) == ["id", "Name", "other"]
