"""Fixtures shared by all tests: real servers, started when the first test asks for them.

`make test` runs two processes (`WORKERS`), each with servers and a Spark of its own, and gives each whole
files.
"""

from __future__ import annotations

import faulthandler
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tailrace_dev.servers import (
    KafkaServer,
    MariaDbServer,
    MySqlServer,
    NatsServer,
    OpenSearchServer,
    PostgresServer,
    RabbitMqServer,
    RedisServer,
    RegistryServer,
    RocketMqServer,
    start_kafka,
    start_mariadb,
    start_mysql,
    start_nats,
    start_opensearch,
    start_postgres,
    start_rabbitmq,
    start_redis,
    start_registry,
    start_rocketmq,
)
from tests.support.clickhouse import ClickHouse
from tests.support.databases import fresh_database, left_as_found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.iceberg_catalogs import CatalogServer

#: Settings of the one Spark of a test run beyond those of every session.
_SPARK_CONF = {
    "spark.driver.memory": "1g",
    # The second compiler doubles the CPU time of each new plan, and no test runs a plan often enough to win.
    # Without it, the JVM would keep 48 MB of compiled code only, and compile the same again and again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.databricks.delta.snapshotPartitions": "1",
}

#: `make test` interprets plans: compiling each takes longer than what it saves on a few rows. Slow tests and
#: pipelines that are processes of their own run compiled plans.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# No deadline: machines are busy, and a kernel's first call may load it.
settings.register_profile("tests", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=5_000)
settings.load_profile("tests")

#: How long the process may take to end once all tests have.
_END_S = 120


def pytest_unconfigure() -> None:
    """A thread that nobody ends would keep the process for ever: its stack is printed, and the run fails."""
    faulthandler.dump_traceback_later(_END_S, exit=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with the longest tests come first, in whatever order: two processes then end together."""
    long = [Path(__file__).parent / name for name in ("recovery", "e2e", "contract", "packaging")]
    items.sort(key=lambda item: item.path.parent not in long)


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    """The MySQL server all tests share. Who changes a global setting puts it back."""
    with start_mysql() as server, left_as_found(server):
        yield server


@pytest.fixture
def database(mysql: MySqlServer) -> Iterator[str]:
    """The name of a fresh, empty database, dropped after the test."""
    with fresh_database(mysql) as name:
        yield name


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """The MariaDB server all tests share. Who changes a global setting puts it back."""
    with start_mariadb() as server, left_as_found(server):
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariaDbServer) -> Iterator[str]:
    """The name of a fresh, empty database of the MariaDB server, dropped after the test."""
    with fresh_database(mariadb) as name:
        yield name


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """The Kafka broker all tests share. Who stops it starts it again."""
    with start_kafka() as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearchServer]:
    """The OpenSearch node all tests share. Each test of it removes all indices."""
    with start_opensearch() as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketMqServer]:
    """The RocketMQ broker all tests share. Who stops it starts it again."""
    with start_rocketmq() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """The Redis server all tests share. Who stops it starts it again."""
    with start_redis() as server:
        yield server


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    """The NATS server all tests share. Who stops it starts it again."""
    with start_nats() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMqServer]:
    """The RabbitMQ server all tests share. Who stops it starts it again."""
    with start_rabbitmq() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    """The server with ClickHouse's engine all tests share. Each test of it drops all tables."""
    with ClickHouse(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServer]:
    """The REST catalog all tests share. Each test of it drops all tables."""
    from tests.support.iceberg_catalogs import rest_catalog

    with rest_catalog(tmp_path_factory.mktemp("iceberg-rest")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServer]:
    """The Hive metastore all tests share. Each test of it drops all tables."""
    from tests.support.iceberg_catalogs import hive_metastore

    with hive_metastore(tmp_path_factory.mktemp("iceberg-hive")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_glue() -> Iterator[CatalogServer]:
    """Glue and its object store, which all tests share. Each test of it drops all tables."""
    from tests.support.iceberg_catalogs import glue_catalog

    with glue_catalog() as server:
        yield server


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    """The schema registry all tests share."""
    with start_registry() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server all tests share. Who changes a setting puts it back."""
    with start_postgres("18") as server, left_as_found(server):
        yield server


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The name of a fresh, empty database of the PostgreSQL server, dropped after the test with its slots."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield name
    postgres.drop_database(name)


@pytest.fixture(autouse=True)
def _no_cached_cells(request: pytest.FixtureRequest) -> Iterator[None]:
    """Batches that a test makes by hand are never closed: what Spark keeps of them slows every later plan."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The Spark session all tests share, with Delta."""
    # Imported here: unit tests need neither Spark nor Java.
    from tailrace.spark.session import spark_session

    directory = tmp_path_factory.mktemp("spark")
    conf = {
        **_SPARK_CONF,
        **(_INTERPRETED if pytestconfig.getoption("markexpr") == "not slow" else {}),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }
    session = spark_session(
        "tailrace-tests", delta=True, master="local[2,4]", log_file=directory / "log", extra_conf=conf
    )
    yield session
    session.stop()
