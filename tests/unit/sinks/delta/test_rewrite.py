"""The metadata of a Delta table whose columns are renamed, dropped and widened."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tailrace.sinks.delta.rewrite import Altered
from tailrace.sinks.tables.columns import WidenColumn
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn

CHANGES = [RenameColumn("a", "new name"), DropColumn("b"), WidenColumn("new name", pa.int64())]


def column(name: str, type_: Any = "integer", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def metadata(*fields: dict[str, Any], **configuration: str) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"id": "x", "schemaString": schema, "partitionColumns": [], "configuration": configuration}


def fields(found: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(found["schemaString"])["fields"]
    return listed


def test_columns_keep_comments_and_lose_the_history_of_their_type() -> None:
    held = metadata(column("id"), column("a", comment="amount", **{"delta.typeChanges": []}), column("b"))
    found = Altered.by(CHANGES, ("",), ()).metadata(held)
    assert fields(found) == [column("id"), column("new name", "long", comment="amount")]
    assert found["id"] == "x"


def test_old_rows_of_a_change_log_are_altered_and_its_own_columns_are_not() -> None:
    before = {"type": "struct", "fields": [column("id"), column("a"), column("b")]}
    held = metadata(
        column("id"), column("a"), column("b"), column("_op", "string"), column("_before", before)
    )
    found = fields(Altered.by(CHANGES, ("", "_before."), ("_absent",)).metadata(held))
    assert [field["name"] for field in found] == ["id", "new name", "_op", "_before"]
    assert found[-1]["type"]["fields"] == [column("id"), column("new name", "long")]


def test_columns_with_statistics_are_named_anew() -> None:
    listed = "id, a,`b`, `x,``y`, _before.a,_before.`b`,_before.id"
    held = metadata(column("a"), **{"delta.dataSkippingStatsColumns": listed})
    held["schemaString"] = json.dumps({"type": "struct", "fields": [column("a")]})
    found = Altered.by(CHANGES, ("", "_before."), ()).metadata(held)["configuration"]
    assert found == {"delta.dataSkippingStatsColumns": "id,`new name`,`x,``y`,_before.`new name`,_before.id"}


def test_a_table_whose_lists_of_names_alone_are_altered_keeps_its_metadata() -> None:
    held = metadata(column("a"), **{"delta.dataSkippingStatsColumns": "a"})
    assert Altered.by(CHANGES, (), ("_absent",)).metadata(held) == held
