"""The messages of Kafka's topics, as consumers see them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tailrace_dev.servers import KafkaServer


@dataclass(frozen=True)
class Message:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int = field(default=0, compare=False)


def messages(
    broker: KafkaServer, *topics: str, isolation: str = "read_committed", timeout_s: float = 60
) -> list[Message]:
    """Every message of some topics up to their present ends, each partition in its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        listed = consumer.list_topics(timeout=timeout_s).topics
        places = [TopicPartition(t, p, 0) for t in topics if t in listed for p in listed[t].partitions]
        ends = {(p.topic, p.partition): consumer.get_watermark_offsets(p)[1] for p in places}
        left = {place for place, end in ends.items() if end}
        consumer.assign(places)
        found: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while left:
            assert time.monotonic() < deadline, f"no end of {left}"
            for m in consumer.consume(10_000, 0.2):
                if m.error() is None:
                    if m.offset() >= ends[m.topic(), m.partition()] - 1:
                        left.discard((m.topic(), m.partition()))
                    headers = tuple((k, v) for k, v in m.headers() or ())
                    found.append(
                        Message(
                            m.topic(),
                            m.partition(),
                            m.offset(),
                            m.key(),
                            m.value(),
                            headers,
                            m.timestamp()[1],
                        )
                    )
                elif m.error().code() == KafkaError._PARTITION_EOF:
                    left.discard((m.topic(), m.partition()))
                else:
                    assert m.error().retriable(), m.error()
        return sorted(found, key=lambda m: (m.topic, m.partition, m.offset))
    finally:
        consumer.close()
