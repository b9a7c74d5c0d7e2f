"""Which peers there are, and how each is started, with the best settings found for it; TLS is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench.peers import toolkit

DEBEZIUM_VERSION = "3.6.1.Final"
FLINK_CDC_VERSION, FLINK_VERSION = "3.5.0", "1.20.1"
#: Of Flink's JDBC connector, which is released for itself.
FLINK_JDBC_VERSION = "3.3.0-1.20"
BINLOG_CONNECTOR_VERSION = "0.30.1"
MYSQL_REPLICATION_VERSION = "1.0.17"

_JVM = ("-Xms4g", "-Xmx4g", "-XX:+UseParallelGC")
#: Flink 1.20 looks into the JDK's own classes.
_OPENED = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
    for package in ("lang", "util", "util.concurrent", "time", "net", "nio")
)
_SHARED = ("Counter.java", "Task.java")


@dataclass(frozen=True)
class Peer:
    """A reader to compare with.

    Args:
        name: as the report says it.
        version: what is measured.
        command: makes the command; it raises `toolkit.UnavailableError` where the peer cannot run.
        snapshots: whether it reads tables too.
        patience: share of the seconds it gets: a JVM needs them to warm up, what is not compiled does not.
        task: properties beyond those of the work.
    """

    name: str
    version: str
    command: Callable[[], list[str]]
    snapshots: bool = True
    patience: float = 1.0
    task: Mapping[str, str] = field(default_factory=dict)


def _debezium(name: str, connector: str) -> list[str]:
    path = toolkit.class_path(
        f"{name}-{DEBEZIUM_VERSION}",
        [
            f"io.debezium:{artifact}:{DEBEZIUM_VERSION}"
            for artifact in ("debezium-api", "debezium-embedded", f"debezium-connector-{connector}")
        ],
        [],
        ["DebeziumPeer.java", *_SHARED],
    )
    return [toolkit.java(), *_JVM, "-cp", path, "DebeziumPeer"]


def _flink() -> list[str]:
    # The connector's fat jar: it holds the Debezium it was built with. Flink's own jars come beside it.
    flink = ("clients", "connector-base", "runtime", "streaming-java", "table-common")
    path = toolkit.class_path(
        f"peer-flink-cdc-{FLINK_CDC_VERSION}",
        [
            f"org.apache.flink:flink-sql-connector-mysql-cdc:{FLINK_CDC_VERSION}",
            *(f"org.apache.flink:flink-{artifact}:{FLINK_VERSION}" for artifact in flink),
            "com.mysql:mysql-connector-j:8.4.0",
        ],
        ["org.apache.flink:flink-connector-mysql-cdc"],
        ["FlinkPeer.java", "StatusInterceptor.java", *_SHARED],
    )
    return [toolkit.java(), *_JVM, *_OPENED, "-cp", path, "FlinkPeer"]


def _flink_replica() -> list[str]:
    flink = (
        *("clients", "connector-base", "runtime", "streaming-java", "table-common"),
        *("table-api-java-bridge", "table-planner-loader", "table-runtime"),
    )
    path = toolkit.class_path(
        f"peer-flink-replica-{FLINK_CDC_VERSION}",
        [
            f"org.apache.flink:flink-sql-connector-mysql-cdc:{FLINK_CDC_VERSION}",
            f"org.apache.flink:flink-connector-jdbc:{FLINK_JDBC_VERSION}",
            *(f"org.apache.flink:flink-{artifact}:{FLINK_VERSION}" for artifact in flink),
            "com.mysql:mysql-connector-j:8.4.0",
            "org.postgresql:postgresql:42.7.7",
        ],
        ["org.apache.flink:flink-connector-mysql-cdc"],
        ["FlinkReplica.java", "StatusInterceptor.java", "Task.java"],
    )
    # it hands instants to JDBC as times of the JVM's own zone
    return [toolkit.java(), *_JVM, *_OPENED, "-Duser.timezone=UTC", "-cp", path, "FlinkReplica"]


def _binlog_connector() -> list[str]:
    path = toolkit.class_path(
        f"peer-binlog-connector-{BINLOG_CONNECTOR_VERSION}",
        [f"com.zendesk:mysql-binlog-connector-java:{BINLOG_CONNECTOR_VERSION}"],
        [],
        ["BinlogPeer.java", *_SHARED],
    )
    return [toolkit.java(), *_JVM, "-cp", path, "BinlogPeer"]


def _mysql_replication() -> list[str]:
    found = toolkit.python(
        f"peer-mysql-replication-{MYSQL_REPLICATION_VERSION}",
        f"mysql-replication=={MYSQL_REPLICATION_VERSION}",
    )
    return [str(found), str(toolkit.SOURCES / "reader.py")]


_MYSQL = partial(_debezium, "peer-debezium", "mysql")
_POSTGRES = partial(_debezium, "peer-debezium-postgres", "postgres")
DEBEZIUM = Peer("Debezium Embedded", DEBEZIUM_VERSION, _MYSQL, task={"format": "connect"})
DEBEZIUM_JSON = Peer("Debezium Embedded, JSON", DEBEZIUM_VERSION, _MYSQL, task={"format": "json"})
DEBEZIUM_KAFKA = Peer("Debezium Embedded, JSON, with a producer", DEBEZIUM_VERSION, _MYSQL)
DEBEZIUM_POSTGRES = Peer("Debezium Embedded", DEBEZIUM_VERSION, _POSTGRES, task={"format": "connect"})
DEBEZIUM_POSTGRES_JSON = Peer("Debezium Embedded, JSON", DEBEZIUM_VERSION, _POSTGRES, task={"format": "json"})
FLINK_CDC = Peer("Flink CDC", FLINK_CDC_VERSION, _flink)
FLINK_REPLICA = Peer("Flink CDC and JDBC connector", FLINK_CDC_VERSION, _flink_replica)
BINLOG_CONNECTOR = Peer(
    "mysql-binlog-connector-java", BINLOG_CONNECTOR_VERSION, _binlog_connector, snapshots=False
)
MYSQL_REPLICATION = Peer(
    "mysql-replication (Python)",
    MYSQL_REPLICATION_VERSION,
    _mysql_replication,
    snapshots=False,
    patience=0.4,
)
PEERS = (DEBEZIUM, DEBEZIUM_JSON, FLINK_CDC, BINLOG_CONNECTOR, MYSQL_REPLICATION)
