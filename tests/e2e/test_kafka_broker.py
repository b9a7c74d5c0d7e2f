"""The Kafka sink and a broker of its own: one that refuses clients, and one that goes away within a batch."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaDelivery, KafkaSettings
from tailrace.errors import SinkError, TransientSinkError
from tailrace.java import java
from tailrace.sinks.base import StreamId
from tailrace.sinks.kafka import cluster
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.kafka.transactions import STALL_TIMEOUT_S
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer, start_kafka
from tailrace_dev.servers.kafka import class_path
from tailrace_dev.servers.server import free_port
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.topics import messages
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_tailrace="right";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "tailrace"}


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[KafkaServer, str]]:
    """A broker, and its address for clients with a password."""
    plain, guarded, controller = (f"127.0.0.1:{free_port()}" for _ in range(3))
    offered = f"PLAINTEXT://{plain},SASL://{guarded}"
    options = {
        "listeners": f"{offered},CONTROLLER://{controller}",
        "advertised.listeners": offered,
        "controller.quorum.voters": f"1@{controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": LOGIN,
    }
    with start_kafka(port=int(plain.rpartition(":")[2]), options=options) as server:
        yield server, guarded


def rows(*ids: int) -> tuple[str, object]:
    return "log", changes(SCHEMA, [("c", None, {"id": i, "name": "n" * 90}) for i in ids], first=ids[0])


def open_sink(
    address: str, properties: Mapping[str, str], delivery: KafkaDelivery = KafkaDelivery.EXACTLY_ONCE
) -> KafkaSink:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = KafkaSettings(
        address, prefix, topic_partitions=2, parallelism=2, properties=properties, delivery=delivery
    )
    return KafkaSink(settings, Router([]), "mysql")


WRONG = {
    "password": (SASL | {"sasl.password": "wrong"}, r"refuse the credentials.*sasl\.password"),
    "mechanism": (
        SASL | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "right"},
        r"refuse the credentials.*sasl\.mechanism",
    ),
}
#: To a broker that is restarted they may look the same: they are tried for a while.
UNFIT = {
    "tls": ({"security.protocol": "SSL"}, r"PLAINTEXT broker listener.*`security\.protocol`"),
    "plain": ({}, r"_TRANSPORT.*`security\.protocol`"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_security_setting_is_an_error_for_good_that_names_it(
    spark: SparkSession, broker: tuple[KafkaServer, str], what: str
) -> None:
    properties, said = WRONG[what]
    sink = open_sink(broker[1], properties)
    with pytest.raises(SinkError, match=f"(?s){said}") as error:
        sink.write(cell_batch(spark, 0, [rows(1)]))
    assert not error.value.retryable
    assert "wrong" not in str(error.value)


@pytest.mark.parametrize("what", UNFIT)
def test_protocol_that_does_not_fit_the_listener_is_an_error_that_names_it(
    spark: SparkSession, broker: tuple[KafkaServer, str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_TIMEOUT_S", 1.0)
    properties, said = UNFIT[what]
    with pytest.raises(TransientSinkError, match=f"(?s){said}"):
        open_sink(broker[1], properties).write(cell_batch(spark, 0, [rows(1)]))


def test_right_password_lets_the_tasks_write_too(
    spark: SparkSession, broker: tuple[KafkaServer, str]
) -> None:
    sink = open_sink(broker[1], SASL | {"sasl.password": "right"})
    sink.write(cell_batch(spark, 0, [rows(1, 2)], StreamId(sink._settings.topic_prefix, "stream")))
    assert len(messages(broker[0], f"{sink._settings.topic_prefix}.shop.t")) == 2


def test_broker_that_goes_away_within_a_batch_and_comes_back_has_each_change_once(
    spark: SparkSession, broker: tuple[KafkaServer, str]
) -> None:
    server, _ = broker
    sink = open_sink(server.bootstrap, {})
    prefix = sink._settings.topic_prefix
    topic, stream = f"{prefix}.shop.t", StreamId(prefix, "stream")
    sink.write(cell_batch(spark, 0, [rows(0)], stream))
    cells = [rows(*range(start, start + 2500)) for start in range(1, 100_001, 2500)]
    batch = cell_batch(spark, 1, cells, stream)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(sink.write, batch)
        wait_until(lambda: stored(server, topic) > 10, 120)
        server.kill()
        assert not writing.done()
        server.start()
        try:
            writing.result()
        except TransientSinkError:
            sink.write(batch)
    ids = [json.loads(m.value or b"")["after"]["id"] for m in messages(server, topic)]
    assert sorted(ids) == list(range(100_001))
    sink.close()


@contextmanager
def quota(server: KafkaServer, bytes_per_s: int) -> Iterator[None]:
    """Let every client write so many bytes a second, to each broker."""
    rate = f"producer_byte_rate={bytes_per_s}"
    change_configs(server, "--add-config", rate, "--entity-type", "clients", "--entity-default")
    try:
        yield
    finally:
        gone = ("--delete-config", "producer_byte_rate", "--entity-type", "clients", "--entity-default")
        change_configs(server, *gone)


def change_configs(server: KafkaServer, *arguments: str) -> None:
    tool = [java(), "-cp", class_path(), "kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap]
    subprocess.run([*tool, "--alter", *arguments], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("delivery", KafkaDelivery)
def test_brokers_that_are_slow_get_each_change_once(
    spark: SparkSession, broker: tuple[KafkaServer, str], delivery: KafkaDelivery
) -> None:
    server, _ = broker
    sink = open_sink(server.bootstrap, {}, delivery)
    prefix = sink._settings.topic_prefix
    with quota(server, 100_000):
        cells = [rows(*range(start, start + 2500)) for start in range(0, 30_000, 2500)]
        began = time.monotonic()
        sink.write(cell_batch(spark, 0, cells, StreamId(prefix, "stream")))
        took = time.monotonic() - began
    found = messages(server, f"{prefix}.shop.t")
    ids = [json.loads(m.value or b"")["after"]["id"] for m in found]
    assert sorted(ids) == list(range(30_000))
    assert took > STALL_TIMEOUT_S, f"the quota did not hold it back for long enough: {took:.0f} s"
    sink.close()


def test_transaction_that_lasts_too_long_is_an_error_that_says_so(
    spark: SparkSession, broker: tuple[KafkaServer, str]
) -> None:
    server, _ = broker
    sink = open_sink(server.bootstrap, {"transaction.timeout.ms": "5000", "message.timeout.ms": "5000"})
    batch = cell_batch(spark, 0, [rows(*range(10_000))], StreamId(sink._settings.topic_prefix, "stream"))
    with (
        quota(server, 50_000),
        pytest.raises(TransientSinkError, match=r"(?s)within 5 s.*max-bytes-per-trigger"),
    ):
        sink.write(batch)
    sink.write(batch)
    assert len(messages(server, f"{sink._settings.topic_prefix}.shop.t")) == 10_000
    sink.close()


def stored(server: KafkaServer, topic: str) -> int:
    """Records of a topic, committed or not."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "test"})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(2))
    finally:
        consumer.close()
