"""The cluster, for the driver: its availability, its topics and their limits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tailrace.config.secret import hidden
from tailrace.errors import SinkError
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import HOPELESS

_TIMEOUT_S = 30.0
#: How long to trust what is known of topics, seconds.
_FRESH_S = 60.0
#: How long to trust that topics are still there, seconds. (A topic that was deleted may be there, and empty:
#: brokers create what a producer asks for.)
_THERE_S = 1.0
#: The brokers' default of `max.message.bytes`.
_DEFAULT_LIMIT = 1_048_588


@dataclass(frozen=True)
class Topic:
    """A topic, for the writers.

    Args:
        name: its name.
        partitions: the number of its partitions.
        limit: its `max.message.bytes`: the largest batch of messages that it accepts.
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
        self._errors: list[Any] = []
        self._topics: dict[str, Topic] = {}
        self._fetched = -_FRESH_S
        #: The ids of topics that were there, and when that was asked last.
        self._ids: dict[str, str] = {}
        self._looked = -_THERE_S
        self._has_answered = False
        settings = client.settings()
        try:
            self._admin: Any = AdminClient({**settings, "error_cb": self._errors.append})
        except KafkaException as error:
            failure = error.args[0]
            raise sink_error(failure.name(), hidden(failure.str(), settings.values())) from None

    def connect(self) -> None:
        """Check that a broker answers.

        Raises:
            SinkError: no broker answers, or it rejects the client.
        """
        self._list()

    def names(self) -> list[str]:
        """The names of all topics."""
        return sorted(self._list())

    def topics(
        self, names: Iterable[str], partitions: int, replication: int, config: Mapping[str, str]
    ) -> dict[str, Topic]:
        """The topics of these names; missing ones are created.

        Args:
            names: the topics' names.
            partitions: partitions of a new topic, -1: the brokers' default.
            replication: replicas of a new topic, -1: the brokers' default.
            config: settings of a new topic.

        Raises:
            SinkError: a topic cannot be created.
        """
        needed = set(names)
        existing = self.found(needed)
        if absent := needed - existing.keys():
            self._create(absent, partitions, replication, config)
            deadline = time.monotonic() + _TIMEOUT_S
            # the broker that answers may not know a new topic yet
            while absent := needed - (existing := self.found(needed)).keys():
                if time.monotonic() > deadline:
                    raise sink_error("UNKNOWN_TOPIC_OR_PART", "it was created but is not listed", min(absent))
                time.sleep(0.05)
        return existing

    def found(self, names: Iterable[str]) -> dict[str, Topic]:
        """The existing topics of these names."""
        needed = set(names)
        if time.monotonic() - self._fetched > _FRESH_S:
            self._topics = {}
        if unknown := needed - self._topics.keys():
            listed = self._list()
            known = unknown & listed.keys()
            limits = self._limits(known) if known else {}
            if new := known - self._ids.keys():
                self._ids |= {name: id_ for name, id_ in self._described(new).items() if id_}
            for name in known:
                self._topics[name] = Topic(name, listed[name], limits.get(name, _DEFAULT_LIMIT))
            self._fetched = time.monotonic()
        return {name: self._topics[name] for name in needed & self._topics.keys()}

    def gone(self, names: Iterable[str]) -> set[str]:
        """Those of the names whose topics were deleted since the last call, perhaps created anew meanwhile.

        A topic is known from the first call of this method or of `found` that finds it.
        """
        now = time.monotonic()
        asked = set(names)
        if not asked or now - self._looked < _THERE_S:
            return set()
        self._looked = now
        found = self._described(asked)
        gone = {name for name, id_ in self._ids.items() if name in asked and found.get(name, id_) != id_}
        self._ids |= {name: id_ for name, id_ in found.items() if id_}
        for name in gone:
            self._topics.pop(name, None)
            if not found[name]:
                del self._ids[name]
        return gone

    def forget(self) -> None:
        """Trust nothing that is known of topics."""
        self._topics, self._looked = {}, -_THERE_S

    def _described(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of topics, "" if there is none of a name; nothing of those that the brokers do not tell."""
        found = {}
        topics = TopicCollection(sorted(names))
        for name, future in self._admin.describe_topics(topics, request_timeout=_TIMEOUT_S).items():
            error = _failure(future)
            if error is None:
                found[name] = str(future.result().topic_id)
            elif error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                found[name] = ""
        return found

    def _list(self) -> dict[str, int]:
        """The number of partitions of every topic."""
        self._errors.clear()
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                listed = self._admin.list_topics(timeout=2.0).topics
                self._has_answered = True
                return {name: len(topic.partitions) for name, topic in listed.items()}
            except KafkaException as error:
                self._admin.poll(0)
                causes = [e for e in self._errors if e.name() != "_ALL_BROKERS_DOWN"] or [error.args[0]]
                hopeless = [e for e in causes if e.name() in HOPELESS]
                if not self._has_answered and all(e.name() == "_RESOLVE" for e in causes):
                    # Once a broker has answered, a missing address means that a broker is down.
                    raise SinkError(
                        "none of the Kafka brokers' host names resolves",
                        causes[-1].str(),
                        "check `sink.bootstrap-servers`",
                        code="TR-7401",
                    ) from error
                if hopeless or time.monotonic() > deadline:
                    cause = (hopeless or causes)[-1]
                    raise sink_error(cause.name(), cause.str()) from error

    def _create(
        self, names: Iterable[str], partitions: int, replication: int, config: Mapping[str, str]
    ) -> None:
        new = [NewTopic(n, partitions, replication, config=dict(config)) for n in sorted(names)]
        for name, future in self._admin.create_topics(new, operation_timeout=_TIMEOUT_S).items():
            error = _failure(future)
            if error is not None and error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise _as_sink_error(error, name) from error

    def _limits(self, names: Iterable[str]) -> dict[str, int]:
        """`max.message.bytes` of topics, if the brokers report it."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = {}
        for resource, future in self._admin.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            # The user may lack the right to read settings.
            if _failure(future) is None:
                found[resource.name] = int(future.result()["max.message.bytes"].value)
        return found


def _failure(future: Future[Any]) -> Any:
    """The KafkaException of a future, None if it succeeded."""
    try:
        future.result()
    except KafkaException as error:
        return error
    return None


def _as_sink_error(error: Any, topic: str | None = None) -> SinkError:
    return sink_error(error.args[0].name(), error.args[0].str(), topic)
