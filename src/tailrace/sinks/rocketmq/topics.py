"""Topics and their queues: found by the name servers, created on all brokers of the cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.message_sinks import TopicType
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.model.table import TableId
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq.failure import failure
from tailrace.sinks.rocketmq.remoting import BrokerConnections, Call

#: RocketMQ's limit for a topic's name.
_MOST_CHARACTERS = 127
#: How long a new topic may take to reach the name servers, seconds.
_TIMEOUT_S = 30.0
_PAUSE_S = 0.1
#: Permissions of a queue: reading, and writing.
_READ_AND_WRITE, _WRITE = 6, 2
_MASTER = "0"


@dataclass(frozen=True)
class Queue:
    """A queue that can be written.

    Args:
        broker: the name of its broker.
        address: where that is, `host:port`.
        number: its number there.
    """

    broker: str
    address: str
    number: int


@dataclass(frozen=True)
class RocketTopic:
    """A topic.

    Args:
        name: its name.
        queues: its queues, in an order that stays while none is added.
    """

    name: str
    queues: tuple[Queue, ...]


def topic_name(prefix: str, target: str, table: TableId) -> str:
    """The topic of a target: RocketMQ allows letters, digits, `_` and `-` only.

    Args:
        prefix: begins the name.
        target: the target's name.
        table: the table, for the error.

    Raises:
        ConfigError: the name is too long.
    """
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{prefix}.{target}")
    if len(name) > _MOST_CHARACTERS:
        raise ConfigError(
            f"the topic of {table.quoted} has too long a name",
            f"`{name}` has {len(name)} characters, RocketMQ allows {_MOST_CHARACTERS}",
            "route the table to another name",
            code="TR-7806",
        )
    return name


def find(connections: BrokerConnections, names: Iterable[str]) -> dict[str, RocketTopic]:
    """Those of the topics that exist, by name.

    Raises:
        TransientSinkError: no name server answers, or a topic has no broker at the moment.
        SinkError: the client is not allowed to ask.
    """
    found = {}
    for name in sorted(set(names)):
        asked = Call(frames.GET_ROUTE, {"topic": name})
        answer = connections.name_server(asked)
        if answer.code == frames.TOPIC_NOT_EXIST:
            continue
        if answer.code != frames.SUCCESS:
            raise failure(answer, f"looking for topic `{name}`")
        found[name] = RocketTopic(name, _queues(name, frames.parsed(answer.body)))
    return found


def _queues(name: str, route: Mapping[str, Any]) -> tuple[Queue, ...]:
    masters = {b["brokerName"]: b["brokerAddrs"].get(_MASTER) for b in route["brokerDatas"]}
    queues = []
    for data in sorted(route["queueDatas"], key=lambda data: str(data["brokerName"])):
        address = masters.get(data["brokerName"])
        if not data["perm"] & _WRITE:
            continue
        if address is None:  # without its queues, keys would change theirs, and lose their order
            raise TransientSinkError(
                f"broker `{data['brokerName']}` of topic `{name}` has no master",
                "the name servers know only its slaves",
                "start the broker again",
                code="TR-7801",
            )
        queues += [Queue(data["brokerName"], address, n) for n in range(data["writeQueueNums"])]
    if not queues:
        raise SinkError(
            f"topic `{name}` cannot be written",
            "none of its queues may be",
            f"mqadmin updateTopicPerm -t {name} -p 6",
            code="TR-7803",
        )
    return tuple(queues)


def create(connections: BrokerConnections, names: Iterable[str], queues: int, type_: TopicType) -> None:
    """Create topics on all brokers, and wait until the name servers know them.

    Args:
        connections: to the servers.
        names: the topics.
        queues: the number of queues on each broker.
        type_: what the topics' messages are for RocketMQ's own clients.

    Raises:
        TransientSinkError: a server does not answer, or does not learn of a topic.
        SinkError: the client is not allowed to create topics.
    """
    names = sorted(set(names))
    answer = connections.name_server(Call(frames.GET_BROKER_CLUSTERS))
    if answer.code != frames.SUCCESS:
        raise failure(answer, "looking for brokers")
    brokers = frames.parsed(answer.body)["brokerAddrTable"].values()
    masters = sorted(b["brokerAddrs"][_MASTER] for b in brokers if _MASTER in b["brokerAddrs"])
    for name in names:
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(_READ_AND_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": f"+message.type={type_.value.upper()}",
            "force": "false",
        }
        for address in masters:
            answer = connections.to(address).ask(Call(frames.UPDATE_AND_CREATE_TOPIC, fields))
            if answer.code != frames.SUCCESS:
                raise failure(answer, f"creating topic `{name}`")
    deadline = time.monotonic() + _TIMEOUT_S
    while missing := set(names) - find(connections, names).keys():
        if time.monotonic() > deadline:
            raise TransientSinkError(
                f"RocketMQ's name servers do not know topic `{min(missing)}`",
                f"it was created {_TIMEOUT_S:.0f} s ago on {len(masters)} brokers",
                "do the brokers reach the name servers at `sink.name-servers`?",
                code="TR-7801",
            )
        time.sleep(_PAUSE_S)
