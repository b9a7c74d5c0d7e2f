"""Tables whose rows meet in one target."""

from __future__ import annotations

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.model.table import TableId
from tailrace.pipeline.shards import shard_findings

TABLES = [TableId("s1", "orders"), TableId("s2", "orders"), TableId("s1", "people")]
ROUTE = "route: [{source-table: 's[12][.]orders', sink-table: shop.orders%s}]"


def found(sink: str, shard_column: str = "") -> list[str]:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://localhost', user: u, password: '${env:PW}', tables: '.*'}\n"
        f"sink: {sink}\n{ROUTE % shard_column}\npipeline: {{checkpoint: /tmp/c}}\n"
    )
    return [finding.check for finding in shard_findings(pipeline, TABLES)]


@pytest.mark.parametrize(
    "sink", ["{type: delta, path: /tmp/x}", "{type: mysql, url: 'mysql://h/d', user: u, password: p}"]
)
def test_target_that_mixes_the_rows_of_tables_is_reported(sink: str) -> None:
    assert found(sink) == ["target shop.orders"]


def test_shards_with_a_column_that_tells_them_apart_are_in_order() -> None:
    assert found("{type: delta, path: /tmp/x}", ", shard-column: _shard") == []


def test_target_that_holds_changes_may_hold_those_of_many_tables() -> None:
    assert found("{type: delta, path: /tmp/x, mode: changelog}") == []
