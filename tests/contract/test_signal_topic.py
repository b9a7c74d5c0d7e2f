"""Signals from, and notifications to, a real broker: each once, and a dead broker stops nothing."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import ConfigError
from tailrace.pipeline import notification_channels, signal_topic
from tailrace.pipeline.kafka_access import kafka_settings
from tailrace.pipeline.notification_channels import Apart, NotificationTopic
from tailrace.pipeline.notifications import Notification
from tailrace.pipeline.signal_topic import SignalTopic
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.support.topics import messages
from tests.support.wait import wait_until


class Place:
    """A pipeline with a topic of signals."""

    def __init__(self, kafka: Any, directory: Path, bootstrap: str | None = None) -> None:
        self.kafka = kafka
        self.topic = f"signals-{uuid.uuid4().hex[:8]}"
        self.directory = directory
        self.pipeline = self._pipeline(bootstrap or kafka.bootstrap)
        self.requests = RequestDirectory(requests_path(self.pipeline.checkpoint))
        self.told: list[str] = []

    def _pipeline(self, bootstrap: str) -> Pipeline:
        return parse_pipeline(
            yaml.safe_dump(
                {
                    "source": {"url": "mysql://h", "user": "u", "tables": "s.*"},
                    "sink": {"type": "kafka", "bootstrap-servers": bootstrap, "topic-prefix": "shop"},
                    "pipeline": {"checkpoint": str(self.directory / "checkpoint")},
                    "signals": {"topic": self.topic},
                }
            )
        )

    def listening(self) -> SignalTopic:
        return SignalTopic(self.pipeline, self.told.append)

    def send(self, value: Any, key: str | None = "shop") -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.produce(self.topic, data, None if key is None else key.encode())
        assert producer.flush(30) == 0

    @property
    def ids(self) -> list[str]:
        return [r.signal.id for r in self.requests.pending() if r.signal is not None]

    def received(self, *ids: str) -> None:
        wait_until(lambda: set(ids) <= set(self.ids), 30, f"signals {ids}")


@pytest.fixture
def place(kafka: Any, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def test_messages_with_the_pipelines_key_become_requests_in_order(place: Place) -> None:
    place.send({"id": "before", "type": "log", "data": {}})  # the pipeline does not exist yet
    with place.listening() as topic:
        wait_until(lambda: topic._positions is not None, 30, "the topic's end")
        place.send({"id": "other", "type": "log", "data": {}}, key="another")
        place.send({"id": "a", "type": "execute-snapshot", "data": {"data-collections": ["s.t"]}})
        place.send(b"{")
        place.send(None)
        place.send({"id": "b", "type": "pause-snapshot"})
        place.received("a", "b")
    first, broken, last = place.requests.pending()
    assert first.signal is not None
    assert first.signal.data == {"data-collections": ["s.t"]}
    assert broken.signal is not None
    assert broken.signal.problem == "it has no type"
    assert last.signal is not None
    assert last.signal.type == "pause-snapshot"


def test_signal_is_taken_once_whatever_is_killed(place: Place) -> None:
    with place.listening() as topic:
        wait_until(lambda: topic._positions is not None, 30, "the topic's end")
        place.send({"id": "a", "type": "log"})
        place.received("a")
    state = place.directory / "checkpoint" / "_tailrace" / "signal-topic.json"
    state.write_text(json.dumps({place.topic: {"0": 0}}))  # killed before the position was written
    (request,) = place.requests.pending()
    topic = place.listening()
    place.requests.remove([request.id])  # the stream has obeyed it
    with topic:
        place.send({"id": "b", "type": "log"})
        place.received("b")
    assert place.ids == ["b"]
    place.requests.remove([r.id for r in place.requests.pending()])
    place.send({"id": "c", "type": "log"})  # while the pipeline is stopped
    with place.listening():
        place.received("c")
    assert place.ids == ["c"]


def test_topic_that_appears_later_is_read_from_its_begin(kafka: Any, tmp_path: Path) -> None:
    place = Place(kafka, tmp_path)
    with place.listening() as topic:
        wait_until(lambda: topic._positions is not None, 30, "the state")
        place.send({"id": "a", "type": "log"})
        place.received("a")


def test_dead_broker_is_told_of_once_and_stops_nothing(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_topic, "_ANSWER_S", 2.0)
    place = Place(kafka, tmp_path, bootstrap="127.0.0.1:1")
    with place.listening():
        wait_until(lambda: place.told, 60, "a notice")
    assert len(place.told) == 1


def test_notifications_are_sent_as_debezium_sends_them(kafka: Any, tmp_path: Path) -> None:
    name = f"notifications-{uuid.uuid4().hex[:8]}"
    place = Place(kafka, tmp_path)
    channel = Apart(
        NotificationTopic(kafka_settings(place.pipeline, "notifications", None, {}), name), pytest.fail
    )
    one = Notification("ad-hoc", "Incremental Snapshot", "STARTED", {"connector_name": "shop"})
    channel.send(1, [(one, one.to_json(5))])
    channel.close()
    (message,) = messages(kafka, name)
    assert json.loads(message.key or b"") == {"id": "ad-hoc"}
    assert json.loads(message.value or b"")["type"] == "STARTED"


def test_notifications_to_a_dead_broker_delay_nothing(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_channels, "_LAST_S", 0.5)
    monkeypatch.setattr(notification_channels, "_TOPIC_S", 0.2)
    monkeypatch.setattr(notification_channels, "_FIRST_PAUSE_S", 0.0)
    place = Place(kafka, tmp_path, bootstrap="127.0.0.1:1")
    told: list[str] = []
    channel = Apart(
        NotificationTopic(kafka_settings(place.pipeline, "notifications", None, {}), "x"), told.append
    )
    one = Notification("1", "Signal", "COMPLETED")
    began = time.monotonic()
    channel.send(1, [(one, one.to_json(5))])
    assert time.monotonic() - began < 0.1
    wait_until(lambda: told, 20, "a notice")
    channel.close()
    assert "channel `topic` fails" in told[0]


def test_brokers_must_be_known(tmp_path: Path) -> None:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://h', user: u, tables: 's.*'}\n"
        f"sink: {{type: parquet, path: {tmp_path}}}\nsignals: {{topic: t}}\n"
    )
    with pytest.raises(ConfigError, match="bootstrap-servers"):
        SignalTopic(pipeline, print)
