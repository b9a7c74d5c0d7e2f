"""Kafka topics in the contract suite."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka.admin import AdminClient

from tailrace.config.kafka import KafkaDelivery, KafkaSettings
from tailrace.sinks.kafka.sink import KafkaSink
from tests.support.sinks.case import Change, Row, SinkCase
from tests.support.topics import messages

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clock


def exactly_once(request: Any) -> SinkCase:
    return _case(request, KafkaDelivery.EXACTLY_ONCE)


def at_least_once(request: Any) -> SinkCase:
    return _case(request, KafkaDelivery.AT_LEAST_ONCE)


def _case(request: Any, delivery: KafkaDelivery) -> SinkCase:
    broker = request.getfixturevalue("kafka")
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = KafkaSettings(
        broker.bootstrap,
        prefix,
        delivery=delivery,
        parallelism=2,
        topic_partitions=3,
        decimal_handling_mode="string",
    )
    # the suite's streams share a name: each case has its own
    names = {"pipeline": prefix}

    class Named(KafkaSink):
        def write(self, batch: Any) -> Any:
            from dataclasses import replace

            return super().write(replace(batch, stream=replace(batch.stream, **names)))

    def changes(name: str) -> list[Change]:
        return list(changes_of(m.value for m in messages(broker, f"{prefix}.{name}")))

    def drop(name: str) -> None:
        topic = f"{prefix}.{name}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([topic])[topic].result(30)

    return SinkCase(lambda router: Named(settings, router, "mysql"), drop, changes=changes)


def changes_of(values: Iterable[bytes | None]) -> Iterator[Change]:
    """The changes that the suite's messages in Debezium's JSON tell."""
    for value in values:
        if value is not None:
            said = json.loads(value)
            yield said["op"], _row(said["before"]), _row(said["after"])


def _row(image: dict[str, Any] | None) -> Row | None:
    return None if image is None else {name: _value(name, v) for name, v in image.items()}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    match name:
        case "price":
            return Decimal(value)
        case "at":
            return _EPOCH + timedelta(microseconds=value)
        case "data":
            return base64.b64decode(value)
    return value
