"""The guide's example of nested rows: lines in their orders, by a key that a transform makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.verify.run import verify
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_verify import run_once
from tests.support.sinks.opensearch import Cluster, cluster

_GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "opensearch.md"


def _pipeline(server: MySqlServer, database: str, target: Cluster, directory: Path) -> Pipeline:
    text = _GUIDE.read_text().partition("## Nested rows")[2]
    found = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    example = found[1]
    for old, new in (
        ("mysql://127.0.0.1:3306", server.url),
        ("user: tailrace", f"user: {server.user}"),
        ("${env:MYSQL_PASSWORD}", server.password),
        ("shop\\.", f"{database}\\."),
        ("shop.", f"{database}."),
        ("http://127.0.0.1:9200", target.url),
        ("/var/lib/tailrace/orders", str(directory / "checkpoint")),
    ):
        assert old in example
        example = example.replace(old, new)
    return parse_pipeline(example)


def test_lines_move_from_order_to_order_as_the_guide_says(
    request: pytest.FixtureRequest, mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    target = cluster(request)
    mysql.execute(
        f"USE {database}",
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20))",
        "CREATE TABLE order_lines (id INT PRIMARY KEY, order_id INT, item VARCHAR(20), quantity INT)",
        "INSERT INTO orders VALUES (10, 'Ada'), (11, 'Grace')",
        "INSERT INTO order_lines VALUES (100, 10, 'engine', 2), (101, 11, 'compiler', 1)",
        "INSERT INTO order_lines VALUES (102, 11, 'bug', 1)",
    )
    pipeline = _pipeline(mysql, database, target, tmp_path)
    run_once(pipeline, spark)

    def line(id_: int, order: int, item: str, quantity: int) -> dict[str, Any]:
        return {"id": id_, "order_id": order, "item": item, "quantity": quantity}

    def orders() -> dict[int, Any]:
        return {id_: row["lines"] for id_, row in target.by_id(f"{database}.orders").items()}

    assert orders() == {
        10: [line(100, 10, "engine", 2)],
        11: [line(101, 11, "compiler", 1), line(102, 11, "bug", 1)],
    }
    mysql.execute(
        f"USE {database}",
        "UPDATE order_lines SET order_id = 10 WHERE id = 102",
        "UPDATE order_lines SET quantity = 3 WHERE id = 101",
        "INSERT INTO orders VALUES (12, 'Edsger')",
    )
    run_once(pipeline, spark)
    assert orders() == {
        10: [line(100, 10, "engine", 2), line(102, 10, "bug", 1)],
        11: [line(101, 11, "compiler", 3)],
        12: [],
    }
    query = {"query": {"nested": {"path": "lines", "query": {"match": {"lines.item": "engine"}}}}}
    answer = target.client.request("POST", f"/{database}.orders/_search", query)
    assert [hit["_source"]["customer"] for hit in answer.body["hits"]["hits"]] == ["Ada"]
    assert verify(pipeline, spark).equal
    mysql.execute(f"TRUNCATE {database}.order_lines", f"DELETE FROM {database}.orders WHERE id = 11")
    run_once(pipeline, spark)
    assert orders() == {10: [], 12: []}
