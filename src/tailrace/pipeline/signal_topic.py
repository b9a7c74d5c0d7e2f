"""Signals from a Kafka topic, as Debezium's: key = topic prefix, value {"type": ..., "data": {...}}.

A message becomes a request file beside the checkpoint, whose name is the message's place in the topic; then
the position behind it is written, beside the checkpoint too. After a crash between the two, the file is still
there when the pipeline starts, and moves the position: so no message is lost, and none is taken twice.

A topic that cannot be read does not stop the pipeline.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tailrace.config.kafka import KafkaSettings
from tailrace.config.model import Pipeline
from tailrace.model.signal import MOST_DATA
from tailrace.pipeline.kafka_access import kafka_settings
from tailrace.pipeline.log_output import in_this_log
from tailrace.printable import printable
from tailrace.spark.checkpoint import Directory, absolute
from tailrace.spark.requests import RequestDirectory, requests_path

_FILE = "signal-topic.json"
_PAUSE_S = 2.0
_ANSWER_S = 10.0
_MESSAGES = 100


class SignalTopic:
    """Takes signals from the pipeline's topic, in a thread; a context manager.

    Args:
        pipeline: the pipeline, with `signals.topic`.
        tell: tells the user that the topic cannot be read.

    Raises:
        ConfigError: the brokers are not known.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None]) -> None:
        settings = pipeline.signals
        assert settings.topic is not None
        self._topic = settings.topic
        self._client = kafka_settings(pipeline, "signals", settings.bootstrap_servers, settings.properties)
        prefix = next((s.topic_prefix for s in pipeline.sinks if isinstance(s, KafkaSettings)), None)
        if pipeline.named is not None:
            prefix = None  # the sources have it in common
        self._key = settings.key or prefix or pipeline.settings.name
        self._tell = tell
        checkpoint = absolute(pipeline.checkpoint)
        self._state = Directory(f"{checkpoint}/_tailrace", private=True)
        self._requests = RequestDirectory(requests_path(checkpoint))
        self._prefix = f"kafka-{hashlib.sha256(self._topic.encode()).hexdigest()[:12]}"
        self._positions = self._read_positions()
        self._stop = threading.Event()
        self._is_told = False
        self._thread = threading.Thread(target=in_this_log(self._run), name="signal-topic", daemon=True)

    def __enter__(self) -> SignalTopic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_ANSWER_S)

    def _read_positions(self) -> dict[int, int] | None:
        """The next offset of each partition; None: nothing of the topic has been read yet."""
        text = self._state.read(_FILE)
        stored = {} if text is None else json.loads(text)
        found: dict[int, int] | None = None
        if self._topic in stored:
            found = {int(partition): offset for partition, offset in stored[self._topic].items()}
        for request in self._requests.pending():
            place = request.id.removeprefix(f"{self._prefix}-").split("-")
            if request.id.startswith(self._prefix) and len(place) == 2:
                found = found or {}
                partition, offset = int(place[0]), int(place[1])
                found[partition] = max(found.get(partition, 0), offset + 1)
        return found

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - an extra

        while not self._stop.is_set():
            try:
                consumer = Consumer(
                    {**self._client, "group.id": "tailrace-signals", "enable.auto.commit": "false"}
                )
                try:
                    self._consume(consumer)
                finally:
                    consumer.close()
            except (KafkaException, OSError) as error:
                if not self._is_told:
                    self._is_told = True
                    self._tell(
                        f"signals of topic `{self._topic}` cannot be read: {printable(str(error))[:300]}"
                    )
                self._stop.wait(_PAUSE_S)

    def _consume(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - an extra

        found = consumer.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        if found.error is not None:
            if self._positions is None:  # once it exists, it is read from its begin
                self._write_positions({})
            raise KafkaException(found.error)
        if self._positions is None:  # what was sent before the pipeline's first start is not meant for it
            ends = {
                p: consumer.get_watermark_offsets(TopicPartition(self._topic, p), timeout=_ANSWER_S)[1]
                for p in found.partitions
            }
            self._write_positions(ends)
        assert self._positions is not None
        positions = dict(self._positions)
        consumer.assign([TopicPartition(self._topic, p, positions.get(p, 0)) for p in found.partitions])
        while not self._stop.is_set():
            for message in consumer.consume(_MESSAGES, 0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._take(message)
                positions[message.partition()] = message.offset() + 1
            if positions != self._positions:
                self._write_positions(positions)
            self._is_told = False

    def _take(self, message: Any) -> None:
        """Make a request of a message that is meant for this pipeline."""
        if message.key() != self._key.encode() or message.value() is None:
            return
        value: dict[str, Any] = {"type": "", "data": None}
        with suppress(ValueError, RecursionError):
            parsed = json.loads(message.value()[: 2 * MOST_DATA])
            if isinstance(parsed, dict):
                value = {name: parsed[name] for name in ("id", "type", "data") if name in parsed}
        if not isinstance(value.get("id", ""), str):
            del value["id"]
        self._requests.add_signal(
            {"type": "", **value}, f"{self._prefix}-{message.partition()}-{message.offset():019d}"
        )

    def _write_positions(self, positions: dict[int, int]) -> None:
        self._state.write(_FILE, json.dumps({self._topic: {str(p): n for p, n in sorted(positions.items())}}))
        self._positions = dict(positions)
