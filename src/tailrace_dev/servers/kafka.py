"""Kafka brokers: one KRaft node from Maven Central's jars, run by the `java` that runs Spark.

Broker and controller are one process. Both listen on the loopback interface, without passwords: every user of
the machine can read and write the topics, so they are for test data. A broker that is killed and started
again still has its messages: they are in the page cache.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import uuid
from collections.abc import Mapping

from tailrace.java import require_java
from tailrace_dev.servers.jars import SMALL_JVM, jars, scala_library
from tailrace_dev.servers.launch import Starter
from tailrace_dev.servers.program import Program, require_only, run
from tailrace_dev.servers.server import DevServer, ServerState, free_port

_VERSION = "4.1.1"
#: The broker's jars: their directory in the cache, and packages.
JARS = (f"kafka-{_VERSION}", (f"org.apache.kafka:kafka_2.13:{_VERSION}", "org.slf4j:slf4j-simple:1.7.36"))

#: Default settings of a broker.
DEFAULTS = {
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A consumer does not wait for others to join.
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.enable": "false",
}
_JVM = (
    "-Xmx384m",
    *SMALL_JVM,
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
#: Key of the request for the versions of requests that a broker supports (Kafka protocol, "Api Keys").
_API_VERSIONS = 18


class KafkaServer(DevServer):
    """A broker without passwords, for test data."""

    product = "kafka"
    scheme = "kafka"
    user = ""

    @property
    def bootstrap(self) -> str:
        """The broker's address in the form of clients' `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def _probe(self) -> str | None:
        client = b"tailrace"
        request = struct.pack(">hhih", _API_VERSIONS, 0, 1, len(client)) + client
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(4)
        except OSError as error:
            return str(error)
        return None if len(answer) == 4 else "it closed the connection"


def _program(version: str | None) -> Program:
    require_only("Kafka", _VERSION, version)
    return Program([require_java(), *_JVM, "-cp", class_path()], _VERSION)


def _prepare(server: KafkaServer, program: Program, options: Mapping[str, str]) -> list[str]:
    server.data.mkdir(mode=0o700)
    settings = server.data / "server.properties"
    lines = {**_placement(server.state), **DEFAULTS, **options}
    settings.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
    server.hand_over()
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    run(
        [
            *program.command,
            "-XX:TieredStopAtLevel=1",
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            f"--config={settings}",
        ],
        f"Kafka {_VERSION} could not create its data directory",
        run_as=server.state.run_as,
        directory=server.data,
    )
    return ["kafka.Kafka", str(settings)]


start_kafka = Starter(KafkaServer, _program, _prepare)


def class_path() -> str:
    """The class path of the broker and of Kafka's own tools.

    Raises:
        TailraceError: the jars could not be downloaded.
    """
    found = [*jars(*JARS), scala_library()]
    return os.pathsep.join(str(jar) for jar in found)


def _placement(state: ServerState) -> dict[str, str]:
    """The settings of a broker's data directory and ports."""
    controller = f"127.0.0.1:{free_port()}"
    broker = f"127.0.0.1:{state.port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "log.dirs": f"{state.data}/log",
    }
