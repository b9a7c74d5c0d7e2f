"""Every example runs as it stands: the files of `examples/`, copied, with only addresses replaced.

The examples name the usual ports (3306, 5432, 9092). The tests' servers have others, so exactly these
addresses are replaced. Paths in the examples are relative: each runs in a directory of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings
from tailrace_dev.servers import (
    KafkaServer,
    MySqlServer,
    NatsServer,
    OpenSearchServer,
    PostgresServer,
    RabbitMqServer,
    RedisServer,
    RocketMqServer,
)
from tests.support.clickhouse import ClickHouse
from tests.support.http_receiver import http_receiver
from tests.support.sinks import nats as nats_streams
from tests.support.sinks import rabbitmq as rabbitmq_queues
from tests.support.sinks import rocketmq as rocketmq_topics
from tests.support.sinks.clickhouse import Target
from tests.support.sinks.opensearch import Cluster
from tests.support.sinks.redis import entries
from tests.support.sinks.webhook import received
from tests.support.topics import messages

EXAMPLES = Path(__file__).parents[2] / "examples"
#: `auto_cdc` has tests of its own (`test_auto_cdc.py`).
FOLDERS = {
    "mysql_to_delta",
    "mysql_to_kafka",
    "mysql_to_rocketmq",
    "mysql_to_redis",
    "mysql_to_nats",
    "mysql_to_rabbitmq",
    "mysql_to_webhook",
    "mysql_to_opensearch",
    "mysql_to_clickhouse",
    "postgres_to_iceberg",
    "database_to_database",
    "shards_to_delta",
    "spark_code",
}

ORDERS = [(10, 1, "engine", "99.50"), (11, 2, "compiler", "12.00"), (12, 2, "bug", None)]
CUSTOMERS = [(1, "Ada"), (2, "Grace")]


class Example:
    """A copy of an example's folder, with the addresses of the tests' servers."""

    def __init__(self, name: str, directory: Path, addresses: dict[str, str], **environment: str) -> None:
        self.directory = directory / name
        shutil.copytree(EXAMPLES / name, self.directory)
        for file in self.directory.glob("*.yaml"):
            text = file.read_text()
            for written, real in addresses.items():
                assert written in text, f"{file.name} does not say `{written}`"
                text = text.replace(written, real)
            file.write_text(text)
        root = Path(__file__).parents[2]
        inherited = {
            k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", "PYTHONDONTWRITEBYTECODE")
        }
        # These JVMs live for seconds: the second compiler would never pay.
        self._environment = {
            **inherited,
            "PYTHONPATH": str(root / "src"),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        }

    def run(self, *command: str) -> str:
        """Run a Python command in the example's directory; returns what it printed."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def mysql_shop(mysql: MySqlServer) -> Iterator[MySqlServer]:
    """The database that the examples capture, made by their own file."""
    statements = (EXAMPLES / "mysql_to_delta" / "shop.sql").read_text().split(";")
    mysql.execute(*(s for s in statements if s.strip()))
    yield mysql
    mysql.execute("DROP DATABASE shop")


@pytest.fixture
def postgres_shop(postgres: PostgresServer) -> Iterator[PostgresServer]:
    postgres.execute("CREATE DATABASE shop")
    yield postgres
    postgres.drop_database("shop")


def query(server: PostgresServer, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in the database `shop`; the last one's rows."""
    with closing(server.connect(database="shop")) as connection, closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def lake_rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table that has only been appended to."""
    return sorted(ds.dataset(directory, format="parquet").to_table().to_pylist(), key=lambda row: row["id"])


def test_every_example_is_run_by_a_test() -> None:
    elsewhere = {"auto_cdc", "deployment", "monitoring"}
    assert {p.name for p in EXAMPLES.iterdir() if p.is_dir()} == FOLDERS | elsewhere


def test_mysql_to_delta(mysql_shop: MySqlServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_delta",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}"},
        MYSQL_PASSWORD=mysql_shop.password,
        MASK_SALT="pepper",
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    orders = lake_rows(example.directory / "lake" / "orders")
    assert [(r["id"], r["customer_id"], r["item"], r["price"] and str(r["price"])) for r in orders] == ORDERS
    customers = lake_rows(example.directory / "lake" / "customers")
    assert [(r["id"], r["name"]) for r in customers] == CUSTOMERS
    assert [r["country_code"] for r in customers] == ["GB", "US"]
    assert not any("@" in r["email"] for r in customers)


@pytest.mark.slow
def test_mysql_to_kafka(mysql_shop: MySqlServer, kafka: KafkaServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_kafka",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "127.0.0.1:9092": kafka.bootstrap},
        MYSQL_PASSWORD=mysql_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    found = messages(kafka, "app.shop.orders", "app.shop.customers")
    values = [json.loads(m.value) for m in found]
    orders = sorted(
        (v["after"]["id"], v["after"]["item"]) for v in values if v["source"]["table"] == "orders"
    )
    assert orders == [(id_, item) for id_, _, item, _ in ORDERS]
    assert {v["op"] for v in values} == {"r"}
    assert sorted(json.loads(m.key)["id"] for m in found if m.topic == "app.shop.customers") == [1, 2]


@pytest.mark.slow
def test_mysql_to_rocketmq(mysql_shop: MySqlServer, rocketmq: RocketMqServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_rocketmq",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "127.0.0.1:9876": rocketmq.name_server},
        MYSQL_PASSWORD=mysql_shop.password,
    )
    settings = RocketMqSettings(name_servers=rocketmq.name_server, topic_prefix="app")
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    mysql_shop.execute("UPDATE shop.orders SET price = 7 WHERE id = 12", "DELETE FROM shop.customers")
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    orders = [json.loads(m.value) for m in rocketmq_topics.messages(settings, "app_shop_orders")]
    assert sorted((v["op"], v["after"]["id"]) for v in orders) == [("r", 10), ("r", 11), ("r", 12), ("u", 12)]
    customers = rocketmq_topics.messages(settings, "app_shop_customers")
    assert sorted((m.properties["_op"], m.key) for m in customers) == [
        ("d", '{"id":1}'),
        ("d", '{"id":2}'),
        ("r", '{"id":1}'),
        ("r", '{"id":2}'),
    ]


@pytest.mark.slow
def test_mysql_to_redis(mysql_shop: MySqlServer, redis: RedisServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_redis",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "redis://127.0.0.1:6379": redis.url},
        MYSQL_PASSWORD=mysql_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    mysql_shop.execute("UPDATE shop.orders SET price = 7 WHERE id = 12")
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    orders = entries(RedisSettings(url=redis.url, topic_prefix="app"), "app.shop.orders")
    assert sorted((e["op"], e["key"]) for e in orders) == [
        *((b"r", f'{{"id":{id_}}}'.encode()) for id_ in (10, 11, 12)),
        (b"u", b'{"id":12}'),
    ]


@pytest.mark.slow
def test_mysql_to_nats(mysql_shop: MySqlServer, nats: NatsServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_nats",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "nats://127.0.0.1:4222": nats.url},
        MYSQL_PASSWORD=mysql_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    settings = NatsSettings(url=nats.url, topic_prefix="app")
    orders = nats_streams.messages(settings, "app.shop.orders")
    assert sorted((h["op"], h["key"]) for h, _ in orders) == [("r", f'{{"id":{i}}}') for i in (10, 11, 12)]


@pytest.mark.slow
def test_mysql_to_rabbitmq(mysql_shop: MySqlServer, rabbitmq: RabbitMqServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_rabbitmq",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "amqp://127.0.0.1:5672": rabbitmq.url},
        MYSQL_PASSWORD=mysql_shop.password,
        RABBITMQ_PASSWORD=rabbitmq.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    settings = rabbitmq_queues.settings_of(rabbitmq, topic_prefix="app")
    orders = [p.headers for p, _ in rabbitmq_queues.messages(settings, "app.shop.orders")]
    assert sorted((h["op"], h["key"]) for h in orders) == [("r", f'{{"id":{i}}}') for i in (10, 11, 12)]


@pytest.mark.slow
def test_mysql_to_webhook(mysql_shop: MySqlServer, tmp_path: Path) -> None:
    with http_receiver() as receiver:
        example = Example(
            "mysql_to_webhook",
            tmp_path,
            {"port: 3306": f"port: {mysql_shop.port}", "http://127.0.0.1:8080": receiver.url},
            MYSQL_PASSWORD=mysql_shop.password,
            WEBHOOK_SECRET="shared",
        )
        example.run("-m", "tailrace", "run", "pipeline.yaml")
        assert {(post.path, "webhook-signature" in post.headers) for post in receiver.posts} == {
            ("/changes", True)
        }
        orders = [m for m in received(receiver) if m["table"] == "shop.orders"]
        assert sorted(m["key"]["id"] for m in orders) == [10, 11, 12]


@pytest.mark.slow
def test_mysql_to_opensearch(mysql_shop: MySqlServer, opensearch: OpenSearchServer, tmp_path: Path) -> None:
    example = Example(
        "mysql_to_opensearch",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "http://127.0.0.1:9200": opensearch.url},
        MYSQL_PASSWORD=mysql_shop.password,
    )
    cluster = Cluster(opensearch.url)
    cluster.clear()
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    orders = sorted(cluster.documents("shop.orders").values(), key=lambda row: row["id"])
    assert [(r["id"], r["customer_id"], r["item"], r["price"]) for r in orders] == ORDERS
    assert {id_: r["name"] for id_, r in cluster.documents("shop.customers").items()} == {
        str(id_): name for id_, name in CUSTOMERS
    }
    mysql_shop.execute("UPDATE shop.orders SET price = 7 WHERE id = 12", "DELETE FROM shop.customers")
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    assert cluster.documents("shop.orders")["12"]["price"] == "7.00"
    assert cluster.documents("shop.customers") == {}
    cluster.clear()


@pytest.mark.slow
def test_mysql_to_clickhouse(mysql_shop: MySqlServer, clickhouse: ClickHouse, tmp_path: Path) -> None:
    target = Target(clickhouse)
    target.clear()
    example = Example(
        "mysql_to_clickhouse",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "http://127.0.0.1:8123": target.settings.url},
        MYSQL_PASSWORD=mysql_shop.password,
    )

    def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
        found = (
            clickhouse.connect().query(f"SELECT {columns} FROM shop.{table} FINAL ORDER BY id").result_rows
        )
        return [tuple(row) for row in found]

    example.run("-m", "tailrace", "run", "pipeline.yaml")
    assert rows("orders", "id, customer_id, item, toDecimalString(price, 2)") == ORDERS
    assert rows("customers", "id, name") == CUSTOMERS
    mysql_shop.execute("UPDATE shop.orders SET price = 7 WHERE id = 12", "DELETE FROM shop.customers")
    checked = example.run("-m", "tailrace", "check", "pipeline.yaml")
    assert "ClickHouse 26." in checked
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    assert rows("orders", "toFloat64(price)")[-1] == (7.0,)
    assert rows("customers", "id") == []
    target.clear()


def test_postgres_to_iceberg(postgres_shop: PostgresServer, tmp_path: Path) -> None:
    statements = (EXAMPLES / "postgres_to_iceberg" / "shop.sql").read_text().split(";")
    query(postgres_shop, *(s for s in statements if s.strip()))
    example = Example(
        "postgres_to_iceberg",
        tmp_path,
        {"port: 5432": f"port: {postgres_shop.port}"},
        PGPASSWORD=postgres_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    # As its README reads the tables.
    printed = example.run(
        "-c",
        "import json\n"
        "from pyiceberg.catalog import load_catalog\n"
        "catalog = load_catalog('tailrace', type='sql', uri='sqlite:///lake/_tailrace/iceberg.db')\n"
        "rows = catalog.load_table('public.orders').scan().to_arrow().to_pylist()\n"
        "print(json.dumps(sorted(rows, key=lambda r: r['id']), default=str))",
    )
    orders = json.loads(printed)
    assert [(r["id"], r["items"], r["price"]) for r in orders] == [
        (10, ["engine", "card"], "99.50"),
        (11, [], None),
    ]
    assert "slot" in example.run("-m", "tailrace", "drop", "pipeline.yaml")


def test_database_to_database(mysql_shop: MySqlServer, postgres_shop: PostgresServer, tmp_path: Path) -> None:
    example = Example(
        "database_to_database",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "127.0.0.1:5432": f"127.0.0.1:{postgres_shop.port}"},
        MYSQL_PASSWORD=mysql_shop.password,
        PGPASSWORD=postgres_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    assert query(postgres_shop, "SELECT id, customer_id, item, price::text FROM orders ORDER BY id") == ORDERS
    assert query(postgres_shop, "SELECT id, name FROM customers ORDER BY id") == CUSTOMERS


@pytest.mark.slow  # `test_sources` has several sources in one table
def test_shards_to_delta(
    spark: SparkSession, mysql_shop: MySqlServer, postgres_shop: PostgresServer, tmp_path: Path
) -> None:
    folder = EXAMPLES / "shards_to_delta"
    # the east's tables are those of `mysql_shop`
    assert (folder / "east.sql").read_text() == (EXAMPLES / "mysql_to_delta" / "shop.sql").read_text()
    query(postgres_shop, *(s for s in (folder / "west.sql").read_text().split(";") if s.strip()))
    example = Example(
        "shards_to_delta",
        tmp_path,
        {"port: 3306": f"port: {mysql_shop.port}", "port: 5432": f"port: {postgres_shop.port}"},
        MYSQL_PASSWORD=mysql_shop.password,
        PGPASSWORD=postgres_shop.password,
    )
    example.run("-m", "tailrace", "run", "pipeline.yaml")
    lake = example.directory / "lake"
    orders = spark.read.format("delta").load(str(lake / "orders")).collect()
    found = [(r["shard"], r["id"], r["customer_id"], r["item"], r["paid"]) for r in orders]
    east = [("east.shop.orders", *row[:3], None) for row in ORDERS]
    west = [("west.public.orders", 10, 1, "tape", True), ("west.public.orders", 11, 1, "apple", False)]
    assert sorted(found) == [*east, *west]
    assert [(r["id"], r["name"]) for r in lake_rows(lake / "east_customers")] == CUSTOMERS
    assert [(r["id"], r["name"]) for r in lake_rows(lake / "west_customers")] == [(1, "Alan")]
    assert "slot" in example.run("-m", "tailrace", "drop", "pipeline.yaml", "--source", "west")


# test_spark_code.py has its own streams in Spark code
@pytest.mark.slow
def test_spark_code(mysql_shop: MySqlServer, tmp_path: Path) -> None:
    example = Example(
        "spark_code",
        tmp_path,
        {},
        SHOP_URL=mysql_shop.url,
        SHOP_USER=mysql_shop.user,
        SHOP_PASSWORD=mysql_shop.password,
        PYSPARK_PYTHON=sys.executable,
    )
    printed = example.run("orders.py")
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in printed.splitlines() if "|r " in line]
    assert sorted(rows) == [["10", "engine", "99.50", "r"], ["11", "compiler", "12.00", "r"]]
