"""The Spark job of a batch: what its tasks need."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.kafka import KafkaDelivery, KafkaSettings
from tailrace.config.outbox import InvalidOperation
from tailrace.config.sink_settings import RefusedRow
from tailrace.errors import concerning
from tailrace.formats.base import NO_IDS, MessageFormat, SchemaIds
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.reader.ahead import reading_ahead
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.division import NO_DIVISION, Division
from tailrace.sinks.kafka.quarantine import counts, quarantine_topic
from tailrace.sinks.kafka.schema_registry import SchemaRegistry
from tailrace.sinks.kafka.shares import Share, cut_cells, whole_batch
from tailrace.sinks.kafka.skipped import SkippedOperations
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.sinks.kafka.truncations import places
from tailrace.sinks.kafka.writer import write_share
from tailrace.sinks.messages import job
from tailrace.sinks.messages.job import Reports
from tailrace.sinks.messages.turns import of_shares
from tailrace.sinks.single_pass import Schemas
from tailrace.spark.cells import changes_of
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

#: Settings of the topic of refused messages: as large as a request may be by default, and a little less.
_REFUSED = {"max.message.bytes": "100000000"}


class ShareFactory:
    """Makes what tasks need: topics and schema ids that exist.

    Args:
        settings: the sink's.
        client: how to reach the cluster.
        cluster: creates topics.
        format: makes messages.
        registry: registers the format's schemas, None if there is none.
        skipped: the operations that are left out.
        division: what decides keys, partitions and writers.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client: Client,
        cluster: Cluster,
        format: MessageFormat,  # noqa: A002 - as `Share.format`
        registry: SchemaRegistry | None,
        *,
        skipped: SkippedOperations,
        division: Division = NO_DIVISION,
    ) -> None:
        self._settings = settings
        self._client = client
        self._cluster = cluster
        self._format = format
        self._registry = registry
        #: How many changes are in quarantine, by table; None: not read yet.
        self._quarantined: Counter[str] | None = None
        self.skipped = skipped
        self.division = division
        #: The topics that rows have named in this run.
        self._content_topics: set[str] = set()

    @property
    def outbox_behavior(self) -> InvalidOperation | None:
        """What becomes of updates of outboxes."""
        outbox = self.division.outbox
        return None if outbox is None else outbox.settings.table_op_invalid_behavior

    @property
    def quarantine(self) -> str:
        """The topic of refused messages."""
        return quarantine_topic(self._settings)

    def share(
        self,
        batch_id: int,
        stream: KafkaStream,
        writers: int,
        schemas: Sequence[TableSchema],
        *,
        truncated: Collection[str] = (),
        truncations: Sequence[ChangeBatch] = (),
    ) -> Share:
        """What the tasks of a batch need.

        Args:
            batch_id: the batch's number.
            stream: its stream.
            writers: the number of its writers.
            schemas: the schemas of its changes, with those of `truncations`.
            truncated: the tables that are truncated in it.
            truncations: the TRUNCATEs that are written.
        """
        schemas = [self.keyed(schema) for schema in schemas]
        at: dict[str, list[str]] = {}
        for change in truncations:
            at.setdefault(str(change.table.id), []).extend(places(change, self.skipped.connector))
        keys: dict[str, set[str]] = {}
        for schema in schemas:
            with concerning(schema.id, sink=True):
                columns = self.division.columns(schema)
            key = [(c, str(schema.column(c).type.arrow)) for c in columns]
            keys.setdefault(str(schema.id), set()).add(str(key))
        settings = self._settings
        quarantine, quarantined = None, Counter[str]()
        if settings.on_refused_row is RefusedRow.QUARANTINE:
            name, replication = self.quarantine, settings.topic_replication
            quarantine = self._cluster.topics([name], 1, replication, _REFUSED)[name]
            if self._quarantined is None:
                self._quarantined = counts(self._client, quarantine, stream.marker(batch_id, writers).stream)
            quarantined = self._quarantined
        return Share(
            client=self._client,
            format=self._format,
            ids=self._ids(schemas),
            topics=self._topics({schema.id for schema in schemas}),
            writers=writers,
            undivided=frozenset(t for t, of_table in keys.items() if len(of_table) > 1 or t in truncated),
            now_ms=time.time_ns() // 1_000_000,
            tombstones=settings.tombstones,
            quarantine=quarantine,
            most_quarantined=settings.max_quarantined,
            quarantined=dict(quarantined),
            name=stream.name if settings.delivery is KafkaDelivery.EXACTLY_ONCE else None,
            marker=stream.marker(batch_id, writers),
            marker_topic=stream.topic,
            marker_end=stream.end,
            tokens=dict(stream.tokens),
            truncated={table: sorted(found) for table, found in at.items()},
            skipped=self.skipped,
            division=self.division,
            content_topics=self._created(self._content_topics),
        )

    def note_quarantined(self, refused: Mapping[str, int] | None) -> None:
        """Note how many changes a batch has put into quarantine, by table; None: that is not known."""
        if refused is None:
            self._quarantined = None
        elif self._quarantined is not None:
            self._quarantined.update(refused)

    def with_topic(self, schemas: Schemas) -> Schemas:
        """Those of the tables whose topics exist: a deleted topic is created again for new changes only."""
        absent = self.without_topic(schema.id for schema in schemas.values())
        return {key: schema for key, schema in schemas.items() if schema.id not in absent}

    def gone(self, tables: Iterable[TableId]) -> list[TableId]:
        """Those of the tables whose topics were deleted since this was asked last."""
        topics = self._own_topics(tables)
        gone = self._cluster.gone([*topics.values(), *self._content_topics])
        self._content_topics -= gone
        return [table for table, topic in topics.items() if topic in gone]

    def without_topic(self, tables: Iterable[TableId]) -> set[TableId]:
        """Those of the tables whose topics do not exist."""
        topics = self._own_topics(tables)
        existing = self._cluster.found(topics.values())
        return {table for table, topic in topics.items() if topic not in existing}

    def _topics(self, tables: Iterable[TableId]) -> dict[str, Topic]:
        """The topic of each table, created if it is missing."""
        names = self._own_topics(tables)
        topics = self._created(names.values())
        return {str(table): topics[name] for table, name in names.items()}

    def note_content_topics(self, topics: Iterable[str]) -> None:
        """Note topics that rows name: shares have them from now on."""
        self._content_topics.update(topics)

    def keyed(self, schema: TableSchema) -> TableSchema:
        """A table with the key of its messages.

        Raises:
            SinkError: it does not have the columns that settings name.
        """
        with concerning(schema.id, sink=True):
            return self.division.schema(schema)

    def _own_topics(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """The topic of each table that has one of its own."""
        return {table: self._format.topic(table) for table in tables if not self.division.names_topics(table)}

    def _created(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names, created if they are missing."""
        settings = self._settings
        return self._cluster.topics(
            names, settings.topic_partitions, settings.topic_replication, settings.topic_config
        )

    def _ids(self, schemas: Iterable[TableSchema]) -> SchemaIds:
        """The registry's ids of all message schemas of tables with `schemas`."""
        if self._registry is None:
            return NO_IDS
        found: dict[str, int] = {}
        for schema in (schema for schema in schemas if self.division.outbox_of(schema.id) is None):
            with concerning(schema.id, sink=True):
                found |= self._registry.ids(self._format.schemas(schema))
        return found


def run_writers(
    cells: DataFrame, share: Share, missing: Sequence[int], *, in_one_task: bool = False
) -> Reports:
    """Run a batch's writers; see `sinks.messages.job`.

    Args:
        cells: columns `min_seq` and `cell`.
        share: what the writers need.
        missing: the numbers of the writers that have not written the batch yet.
        in_one_task: whether the cells are read by one task, for one writer: it writes while it reads.

    Raises:
        SinkError: one of them failed.
    """

    def cut(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return cut_cells(share, rows)

    def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_share(share, of_shares(rows))

    def write_whole(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reading_ahead(whole_batch(share, rows)) as changes:
            yield from write_share(share, changes, first=0)

    if in_one_task:
        return job.run_writer(cells, write_whole)
    keeps_keys = share.division.message_keys is None
    is_whole = share.writers == 1 and share.schemas is None and not share.truncated and keeps_keys
    return job.run_writers(cells, None if is_whole else cut, write, share.writers, missing)


def keyed_cells(cells: DataFrame, division: Division) -> DataFrame:
    """Cells whose changes have the keys of their messages, with all columns."""
    at = cells.columns.index("cell")

    def converted(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            made = [_keyed_cell(cell, division) for cell in batch.column(at)]
            yield batch.set_column(at, batch.schema.field(at), pa.array(made, pa.binary()))

    return map_in_arrow(cells, converted, cells.schema)


def _keyed_cell(cell: pa.BinaryScalar, division: Division) -> bytes:
    given = decode_cell(cell.as_buffer())
    with concerning(given.table.id, sink=True):
        made = division.batch(given)
    return bytes(cell.as_py()) if made is given else encode_cell(made).to_pybytes()


def content_topics(cells: DataFrame, division: Division, tables: Iterable[TableId]) -> set[str]:
    """The topics that a batch's rows name.

    Args:
        cells: columns `table` and `cell`.
        division: reads them.
        tables: the tables in the batch whose rows name topics.
    """

    def named(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in changes_of(rows):
            with concerning(batch.table.id, sink=True):
                topics = pa.array(sorted(division.topics(division.batch(batch))), pa.string())
            yield pa.RecordBatch.from_pydict({"topic": topics})

    naming = cells.where(f.col("table").isin(sorted(map(str, tables)))).select("cell")
    try:
        return {row["topic"] for row in map_in_arrow(naming, named, "topic string").distinct().collect()}
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
