"""OpenLineage's names of tables and targets."""

from __future__ import annotations

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.model.table import TableId
from tailrace.pipeline.datasets import DatasetName, source_dataset, target_dataset
from tailrace.sinks.route import Router

ORDERS = TableId("shop", "orders")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("mysql://db", ("mysql://db:3306", "shop.orders")),
        ("mariadb://db:3307", ("mariadb://db:3307", "shop.orders")),
        ("postgresql://db/sales", ("postgres://db:5432", "sales.shop.orders")),
        ("oracle://db/sales", ("oracle://db:1521", "sales.shop.orders")),
    ],
)
def test_source_tables_are_named_by_server_and_table(url: str, named: tuple[str, str]) -> None:
    pipeline = parse_pipeline(
        f"source: {{url: '{url}', user: u, tables: 'shop.*'}}\nsink: {{type: console}}\n"
        "pipeline: {checkpoint: /tmp/c}"
    )
    assert source_dataset(pipeline.source, ORDERS) == DatasetName(*named)


@pytest.mark.parametrize(
    ("sink", "named"),
    [
        ("{type: delta, path: /lake}", ("file", "/lake/shop.orders")),
        ("{type: delta, path: 's3a://bucket/lake/'}", ("s3://bucket", "lake/shop.orders")),
        ("{type: parquet, path: 'hdfs://name:8020/lake'}", ("hdfs://name:8020", "/lake/shop.orders")),
        ("{type: iceberg, path: /lake}", ("file", "/lake/shop/orders")),
        (
            "{type: kafka, bootstrap-servers: 'k1:9092,k2:9092', topic-prefix: p}",
            ("kafka://k1:9092", "p.shop.orders"),
        ),
        ("{type: mysql, url: 'mysql://t/x', user: u}", ("mysql://t:3306", "shop.orders")),
        ("{type: postgresql, url: 'postgresql://t/x', user: u}", ("postgres://t:5432", "x.shop.orders")),
    ],
)
def test_targets_are_named_by_the_system_that_holds_them(sink: str, named: tuple[str, str]) -> None:
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://db', user: u, tables: 'shop.*'}}\nsink: {sink}\n"
        "pipeline: {checkpoint: /tmp/c}"
    )
    assert target_dataset(pipeline.sinks[0], Router(()), ORDERS) == DatasetName(*named)


def test_routed_replica_without_a_database_is_in_that_of_the_address() -> None:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://db', user: u, tables: 'shop.*'}\n"
        "sink: [{type: mysql, url: 'mysql://t/x', user: u}, {type: console},"
        " {type: postgresql, url: 'postgresql://t/y', user: u, schema: z}]\n"
        "route: [{source-table: 'shop\\..*', sink-table: all}]\n"
        "pipeline: {checkpoint: /tmp/c}"
    )
    router = Router(pipeline.routes)
    assert [target_dataset(sink, router, ORDERS) for sink in pipeline.sinks] == [
        DatasetName("mysql://t:3306", "x.all"),
        None,
        DatasetName("postgres://t:5432", "y.z.all"),
    ]
