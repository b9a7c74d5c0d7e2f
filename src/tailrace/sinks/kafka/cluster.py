"""The cluster as the driver deals with it: is it there, which topics has it, what do they take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tailrace.config.secret import hidden
from tailrace.errors import SinkError
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import HOPELESS

_TIMEOUT_S = 30.0
#: How long what was found out about topics is believed.
_FRESH_S = 60.0
#: What Kafka's brokers take unless they are told otherwise.
_DEFAULT_LIMIT = 1_048_588


@dataclass(frozen=True)
class Topic:
    """A topic as writers must know it.

    Args:
        name: its name.
        partitions: how many.
        limit: largest batch of messages it takes, bytes.
    """

    name: str
    partitions: int
    limit: int


class Cluster:
    """One cluster's topics.

    Args:
        client: how to reach it.

    Raises:
        SinkError: a setting is unknown.
    """

    def __init__(self, client: Client) -> None:
        self._said: list[Any] = []
        self._topics: dict[str, Topic] = {}
        self._looked = -_FRESH_S
        self._was_there = False
        settings = client.settings()
        try:
            self._admin: Any = AdminClient({**settings, "error_cb": self._said.append})
        except KafkaException as error:
            failure = error.args[0]
            raise sink_error(failure.name(), hidden(failure.str(), settings.values())) from None

    def connect(self) -> None:
        """Make sure that a broker answers.

        Raises:
            SinkError: none does, or it refuses us: why.
        """
        self._list()

    def names(self) -> list[str]:
        """Every topic that there is."""
        return sorted(self._list())

    def topics(
        self, names: Iterable[str], partitions: int, replication: int, config: Mapping[str, str]
    ) -> dict[str, Topic]:
        """The topics of these names; those that are not there are made.

        Args:
            names: which.
            partitions: partitions of a new topic, -1: the brokers' default.
            replication: replicas of a new topic, -1: the brokers' default.
            config: settings of a new topic.

        Raises:
            SinkError: a topic cannot be made.
        """
        wanted = set(names)
        there = self.found(wanted)
        if absent := wanted - there.keys():
            self._make(absent, partitions, replication, config)
            deadline = time.monotonic() + _TIMEOUT_S
            while (
                absent := wanted - (there := self.found(wanted)).keys()
            ):  # the broker that answers has to hear
                if time.monotonic() > deadline:
                    raise sink_error("UNKNOWN_TOPIC_OR_PART", "it was made but is not listed", min(absent))
                time.sleep(0.05)
        return there

    def found(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics of these names that are there."""
        wanted = set(names)
        if time.monotonic() - self._looked > _FRESH_S:
            self._topics = {}
        if unknown := wanted - self._topics.keys():
            there = self._list()
            known = unknown & there.keys()
            limits = self._limits(known) if known else {}
            for name in known:
                self._topics[name] = Topic(name, there[name], limits.get(name, _DEFAULT_LIMIT))
            self._looked = time.monotonic()
        return {name: self._topics[name] for name in wanted & self._topics.keys()}

    def _list(self) -> dict[str, int]:
        """Partitions of every topic."""
        self._said.clear()
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                listed = self._admin.list_topics(timeout=2.0).topics
                self._was_there = True
                return {name: len(topic.partitions) for name, topic in listed.items()}
            except KafkaException as error:
                self._admin.poll(0)
                causes = [e for e in self._said if e.name() != "_ALL_BROKERS_DOWN"] or [error.args[0]]
                hopeless = [e for e in causes if e.name() in HOPELESS]
                if not self._was_there and all(e.name() == "_RESOLVE" for e in causes):
                    # Later on it is a broker that is down and has no address meanwhile.
                    raise SinkError(
                        "no host name of the Kafka brokers is known",
                        causes[-1].str(),
                        "check `sink.bootstrap-servers`",
                    ) from error
                if hopeless or time.monotonic() > deadline:
                    cause = (hopeless or causes)[-1]
                    raise sink_error(cause.name(), cause.str()) from error

    def _make(
        self, names: Iterable[str], partitions: int, replication: int, config: Mapping[str, str]
    ) -> None:
        new = [NewTopic(n, partitions, replication, config=dict(config)) for n in sorted(names)]
        for name, future in self._admin.create_topics(new, operation_timeout=_TIMEOUT_S).items():
            error = _failure(future)
            if error is not None and error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise _as_ours(error, name) from error

    def _limits(self, names: Iterable[str]) -> dict[str, int]:
        """`max.message.bytes` of topics, as far as the brokers tell."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=_TIMEOUT_S).items():
            # Who may write may not be allowed to look at settings.
            if _failure(future) is None:
                found[resource.name] = int(future.result()["max.message.bytes"].value)
        return found


def _failure(future: Future[Any]) -> Any:
    """The KafkaException of a future, None if it has none."""
    try:
        future.result()
    except KafkaException as error:
        return error
    return None


def _as_ours(error: Any, topic: str | None = None) -> SinkError:
    return sink_error(error.args[0].name(), error.args[0].str(), topic)
