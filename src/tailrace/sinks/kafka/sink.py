"""Kafka topics as Debezium fills them: one per target, each change in them exactly once.

    prefix.database.table       changes: key, envelope, headers; a tombstone after a delete
    __tailrace.<pipeline>       which batches are written (`markers`)

A batch that one task reads has one writer. Others are divided among a fixed number of writers by the keys of
their changes (`writer`). Each writer puts its share and a marker into one transaction of its own. When a
batch comes again, after a crash between any two of these transactions, only those writers write it whose
marker is missing. So `read_committed` consumers see each change once, and the changes of a key in order. They
may see one writer's share of a batch before another's.

A partition is chosen by the key's bytes as Kafka's Java producer chooses it, so a topic that Debezium has
filled can be continued. All changes of a table without a key go to partition 0 and keep their order.

With `delivery: at-least-once` there are no transactions and no markers: a batch that comes again is written
again.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.config.kafka import KafkaDelivery, KafkaSettings, SubjectNames
from tailrace.config.secret import shown
from tailrace.errors import ConfigError
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.topics import Topics, collision, is_topic
from tailrace.model.table import TableId
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    Unit,
    Written,
)
from tailrace.sinks.claims import Claims
from tailrace.sinks.kafka.batch import KafkaBatch
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.formats import (
    division_of,
    envelopes_of,
    message_format,
    schema_registry,
    side_streams,
)
from tailrace.sinks.kafka.job import ShareFactory
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.side_topics import SideTopics
from tailrace.sinks.kafka.skipped import SkippedOperations
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import SinglePass

#: Settings of the marker topic.
_MARKERS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}


class KafkaSink:
    """Writes each table's changes to a topic.

    Args:
        settings: where, and how.
        router: names the targets.
        connector: Debezium's name of the source's kind.
        database: the source's database, where tables are in one (PostgreSQL).

    Raises:
        ConfigError: a setting is not allowed.
    """

    def __init__(self, settings: KafkaSettings, router: Router, connector: str, database: str = "") -> None:
        self._settings = settings
        self._router = router
        self._client = Client(settings.bootstrap_servers, settings.properties)
        envelopes = envelopes_of(settings, router, connector, database)
        self._format = message_format(settings, envelopes)
        self._exactly_once = settings.delivery is KafkaDelivery.EXACTLY_ONCE
        self._registry = schema_registry(settings)
        self._cluster = Cluster(self._client)
        streams = side_streams(settings, envelopes)
        skipped = SkippedOperations(frozenset(settings.skipped_letters), connector)
        self._shares = ShareFactory(
            settings,
            self._client,
            self._cluster,
            self._format,
            self._registry,
            skipped=skipped,
            division=division_of(settings, envelopes),
        )
        self._topics = topics = envelopes.topics
        self._claims = Claims(
            router,
            self._claimed_names,
            self._taken(topics),
            lambda *tables: all(map(topics.is_replaced, tables)) and len({*map(topics.topic, tables)}) == 1,
        )
        self._side_topics = SideTopics(
            settings, self._client, self._cluster, streams, self._registry, skipped=skipped
        )
        self._single_pass = SinglePass()
        self._stream: KafkaStream | None = None

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`: messages carry their own schema, so topics need not follow one."""
        return Capabilities(
            Delivery.EXACTLY_ONCE if self._exactly_once else Delivery.AT_LEAST_ONCE,
            Order.PER_KEY,
            Unit.TASK if self._exactly_once else Unit.ROW,
            holds_rows=False,
            follows_schema=False,
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def _claimed_names(self, table: TableId) -> list[str]:
        """The topic, as Kafka tells topics apart, and with subjects by record the schemas' name."""
        if self._shares.division.outbox_of(table) is not None:
            return []  # its rows name the topics
        topic = self._format.topic(table)
        if self._topics.is_replaced(table) and not is_topic(topic):
            raise ConfigError(
                f"the topic of {table.quoted} would have a name that Kafka does not allow",
                f"found {shown(topic)}; `topic-replacement` makes it",
                "names consist of letters, digits, `.`, `_` and `-`, at most 249, and do not begin with `__`",
                code="TR-1070",
            )
        names = [collision(topic)]
        if self._settings.subject_names is SubjectNames.RECORD and self._registry is not None:
            names.append(f"schema {adjusted({'name': topic})['name']}")
        return names

    def _taken(self, topics: Topics) -> dict[str, str]:
        settings = self._settings
        taken = {
            topics.heartbeat: "the topic of heartbeats",
            self._shares.quarantine: "the topic of refused messages",
        }
        if settings.provide_transaction_metadata:
            taken[topics.transaction] = "the topic of transactions"
        if settings.include_schema_changes:
            taken[topics.schema_change] = "the topic of schema changes"
        return {collision(topic): what for topic, what in taken.items()}

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        try:
            return KafkaBatch(
                batch,
                self._open(batch),
                self._shares,
                self._side_topics,
                self._claims,
                self._single_pass,
                self._settings.provide_transaction_metadata,
                self._settings.carries_schemas,
                may_be_whole=self._settings.parallelism is None,
            ).write()
        except KafkaError as error:
            self._forget()
            raise sink_error(error.name, error.text, error.topic) from error
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Let the next batch read from Kafka what is written."""
        self._stream = None
        self._cluster.forget()
        self._shares.note_quarantined(None)

    def close(self) -> None:
        """See `Sink.close`."""
        self._side_topics.close()

    def _open(self, batch: CellBatch) -> KafkaStream:
        if self._stream is not None:
            return self._stream
        settings = self._settings
        writers = settings.parallelism or batch.spark.sparkContext.defaultParallelism
        self._cluster.connect()
        stream = KafkaStream(
            self._client,
            batch.stream,
            settings.topic_prefix,
            writers,
            is_transactional=self._exactly_once,
            division=self._shares.division.stamp,
        )
        if self._exactly_once:
            self._cluster.topics([stream.topic], 1, settings.topic_replication, _MARKERS)
        stream.open(self._cluster.names())
        self._side_topics.start()
        self._stream = stream
        return stream
