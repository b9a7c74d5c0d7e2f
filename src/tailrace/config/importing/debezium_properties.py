"""The properties of Debezium's connectors, and what becomes of each.

docs/reference/debezium.md has this table, and a test compares the two. `tailrace import debezium` uses it for
the properties of which only this is to be said: those that are needless, and those that are not there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Fate(StrEnum):
    """What becomes of a property."""

    SAME = "same"
    RENAMED = "other name"
    NEEDLESS = "needless"
    MISSING = "not there"


SAME, RENAMED, NEEDLESS, MISSING = Fate


@dataclass(frozen=True)
class Property:
    """A property of a connector.

    Args:
        name: its name; `*` stands for the rest of a name, and `*word*` for a part of one.
        fate: what becomes of it.
        here: what is here in its place, or why there is nothing; in Markdown.
        fine: of one that is not there, values that mean what is done here anyway.
    """

    name: str
    fate: Fate
    here: str = ""
    fine: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """The property as a row of the document's table."""
        return f"| `{self.name}` | {self.fate} | {self.here} |"


def known(name: str) -> Property | None:
    """The property that `name` is, None: no such one."""
    return next((p for pattern, p in _patterns() if pattern.fullmatch(name)), None)


def reason(name: str) -> str:
    """Why the property `name` is needless or not there; empty: it is not known."""
    found = known(name)
    if found is None:
        return ""
    at = PROPERTIES.index(found)
    while PROPERTIES[at].here in ("as above", "the same"):
        at -= 1
    return PROPERTIES[at].here


@cache
def _patterns() -> list[tuple[re.Pattern[str], Property]]:
    # Escaped, `*` is `\*`; the names of parts are words.
    return [
        (re.compile(re.sub(r"\\\*(\w+\\\*)?", ".+", re.escape(name))), p)
        for p in PROPERTIES
        for name in p.name.split(", ")
    ]


#: In the document's order.
PROPERTIES = (
    Property("name", SAME, "in the section `pipeline`"),
    Property("connector.class", RENAMED, "the scheme of `url`"),
    Property(
        "tasks.max", NEEDLESS, "work is divided among Spark's tasks: `snapshotParallelism`, `logParallelism`"
    ),
    Property("database.hostname", RENAMED, "`hostname`, or `url`"),
    Property("database.port", RENAMED, "`port`, or `url`"),
    Property("database.user", RENAMED, "`user`, or `username`"),
    Property("database.password", RENAMED, "`password`"),
    Property("database.dbname", RENAMED, "`database`, or `url` (PostgreSQL)"),
    Property("topic.prefix", SAME),
    Property("database.server.id", RENAMED, "`serverId`"),
    Property("database.include.list", SAME),
    Property("database.exclude.list", SAME),
    Property("schema.include.list", SAME),
    Property("schema.exclude.list", SAME),
    Property("table.include.list", RENAMED, "`tables`"),
    Property("table.exclude.list", SAME),
    Property(
        "column.include.list", SAME, "key columns cannot be left out (TR-5014); Debezium keeps them in keys"
    ),
    Property("column.exclude.list", SAME, "as above"),
    Property("skip.messages.without.change", SAME),
    Property("column.truncate.to.*length*.chars", SAME, "key columns are refused (TR-1071)"),
    Property(
        "column.mask.with.*length*.chars",
        SAME,
        "key columns, and columns that are not text, are refused (TR-1071); Debezium leaves both in clear",
    ),
    Property(
        "column.mask.hash.*algorithm*.with.salt.*salt*, column.mask.hash.v2.*algorithm*.with.salt.*salt*",
        RENAMED,
        "`column.mask.hash.*algorithm*`, `column.mask.hash.v2.*algorithm*` and `columnMaskSalt`: names of "
        "options are printed; without MD2",
    ),
    Property(
        "column.propagate.source.type",
        SAME,
        "of MySQL and MariaDB those of the catalog when the table joined the stream or was altered last "
        "([below](#declared-types-and-comments))",
    ),
    Property("datatype.propagate.source.type", SAME, "likewise"),
    Property("message.key.columns", SAME, "of the sink; a column that a table does not have is an error"),
    Property("time.precision.mode", SAME, "without `adaptive`"),
    Property("decimal.handling.mode", SAME),
    Property("bigint.unsigned.handling.mode", SAME),
    Property("binary.handling.mode", SAME),
    Property("hstore.handling.mode", MISSING, "values are JSON, as with Debezium's `json`", fine=("json",)),
    Property(
        "interval.handling.mode",
        MISSING,
        "values are microseconds, as with Debezium's `numeric`",
        fine=("numeric",),
    ),
    Property("money.fraction.digits", MISSING, "two digits, as Debezium's default", fine=("2",)),
    Property("enable.time.adjuster", SAME, "true in Debezium, false here"),
    Property(
        "include.unknown.datatypes",
        NEEDLESS,
        "columns of all types are captured, as text where nothing else fits",
    ),
    Property(
        "unavailable.value.placeholder",
        MISSING,
        "always `__debezium_unavailable_value`, Debezium's default",
        fine=("__debezium_unavailable_value",),
    ),
    Property("converters", MISSING, "a transform's `projection` converts values"),
    Property("schema.name.adjustment.mode", NEEDLESS, "names are adjusted where a registry demands it"),
    Property("field.name.adjustment.mode", NEEDLESS, "as above"),
    Property("tombstones.on.delete", RENAMED, "`tombstones`"),
    Property("skipped.operations", SAME, "applies to one sink or transform alone"),
    Property(
        "include.schema.changes",
        SAME,
        "of the sink; true in Debezium, false here. The option of the source with this name is Flink CDC's",
    ),
    Property(
        "include.schema.comments",
        SAME,
        "in the schemas of rows and keys, not in messages of schema changes; those of the catalog when the "
        "table joined the stream or was altered last",
    ),
    Property(
        "include.query",
        SAME,
        "not beside options that mask columns, or leave columns or tables out (TR-1090): a statement would "
        "give them away",
    ),
    Property("provide.transaction.metadata", SAME),
    Property("extended.headers.enabled", SAME, "true in Debezium, false here"),
    Property(
        "topic.naming.strategy",
        MISSING,
        "a route names topics by `sink-table`",
        fine=(
            "io.debezium.schema.SchemaTopicNamingStrategy",
            "io.debezium.schema.DefaultTopicNamingStrategy",
        ),
    ),
    Property("topic.delimiter", MISSING, "always a dot", fine=(".",)),
    Property("topic.cache.size", NEEDLESS),
    Property("topic.transaction", MISSING, "always `transaction`", fine=("transaction",)),
    Property(
        "topic.heartbeat.prefix", MISSING, "always `__debezium-heartbeat`", fine=("__debezium-heartbeat",)
    ),
    Property("topic.creation.*", RENAMED, "`topic-partitions`, `topic-replication`, `topic-config`"),
    Property("heartbeat.interval.ms", SAME, "as an option of the source and of the Kafka sink"),
    Property("heartbeat.action.query", SAME),
    Property("message.prefix.include.list", SAME, "with neither list, none are captured (Debezium: all)"),
    Property("message.prefix.exclude.list", SAME, "as above"),
    Property("signal.data.collection", SAME),
    Property("signal.enabled.channels", NEEDLESS, "each channel that is configured is used"),
    Property("signal.kafka.topic", RENAMED, "`topic` of section `signals`"),
    Property("signal.kafka.bootstrap.servers", RENAMED, "`bootstrap-servers` of section `signals`"),
    Property("signal.consumer.*", RENAMED, "`properties` of section `signals`"),
    Property("signal.file", NEEDLESS, "`tailrace signal` writes below the checkpoint"),
    Property("signal.poll.interval.ms", NEEDLESS, "signals are looked for at each batch"),
    Property(
        "notification.enabled.channels", RENAMED, "`log`, `topic` and others of section `notifications`"
    ),
    Property("notification.sink.topic.name", RENAMED, "`topic` of section `notifications`"),
    Property("snapshot.mode", RENAMED, "`startingPosition`; for `when_needed` also `onPositionLost`"),
    Property("snapshot.include.collection.list", SAME, "a table that is added later is read then"),
    Property(
        "snapshot.select.statement.overrides",
        SAME,
        "with `SELECT * FROM` the table and a condition; any other statement is refused (TR-1018): rows as "
        "of a position of the log cannot be had by another SELECT. `source.snapshot` of these rows is "
        "`incremental`",
    ),
    Property("snapshot.select.statement.overrides.*table*", RENAMED, "`snapshot.select.statement.overrides`"),
    Property("snapshot.locking.mode", NEEDLESS, "no locks are taken"),
    Property(
        "snapshot.lock.timeout.ms", RENAMED, "`lockTimeoutMs`, of statements that wait for others' locks"
    ),
    Property("snapshot.isolation.mode", NEEDLESS, "rows are as of a position of the log"),
    Property("snapshot.max.threads", RENAMED, "`snapshotParallelism`"),
    Property("snapshot.fetch.size", RENAMED, "`snapshotChunkRows`, of which a page is at most"),
    Property("snapshot.delay.ms", MISSING, fine=("0",)),
    Property("streaming.delay.ms", MISSING, fine=("0",)),
    Property("snapshot.tables.order.by.row.count", MISSING, fine=("disabled",)),
    Property(
        "snapshot.query.mode", MISSING, "see `snapshot.select.statement.overrides`", fine=("select_all",)
    ),
    Property("min.row.count.to.stream.results", NEEDLESS, "rows are always read page by page"),
    Property("incremental.snapshot.chunk.size", RENAMED, "`snapshotChunkRows`"),
    Property("incremental.snapshot.allow.schema.changes", NEEDLESS, "always allowed"),
    Property("incremental.snapshot.watermarking.strategy", NEEDLESS, "no watermarks are written"),
    Property("read.only", NEEDLESS, "nothing is written to the source (but see `heartbeatTable`)"),
    Property("max.batch.size", RENAMED, "`maxRowsPerTrigger`, of whole transactions"),
    Property("max.queue.size", NEEDLESS, "a batch is bounded by `maxBytesPerTrigger`"),
    Property("max.queue.size.in.bytes", RENAMED, "`maxBytesPerTrigger`"),
    Property("poll.interval.ms", NEEDLESS, "a stream waits for its log"),
    Property(
        "event.processing.failure.handling.mode",
        MISSING,
        "nothing is skipped; see `max-parked` of section `pipeline`",
        fine=("fail",),
    ),
    Property("inconsistent.schema.handling.mode", MISSING, "the same", fine=("fail",)),
    Property("connect.timeout.ms", RENAMED, "`connectTimeoutMs`"),
    Property("connect.keep.alive", NEEDLESS, "always"),
    Property("database.query.timeout.ms", RENAMED, "`queryTimeoutMs`"),
    Property("database.initial.statements", SAME, "roles, and settings that do not change what is read"),
    Property("database.ssl.mode", RENAMED, "`tlsMode`"),
    Property("database.sslmode", RENAMED, "`tlsMode`"),
    Property("database.sslrootcert", RENAMED, "`tlsCa`"),
    Property("database.sslcert", RENAMED, "`tlsCert`"),
    Property("database.sslkey", RENAMED, "`tlsKey`, PEM"),
    Property("database.ssl.truststore", RENAMED, "`tlsCa`, PEM"),
    Property("database.ssl.keystore", RENAMED, "`tlsCert` and `tlsKey`, PEM"),
    Property("database.tcpKeepAlive", NEEDLESS, "always"),
    Property("errors.max.retries", RENAMED, "`retryTimeoutMs`, a time"),
    Property("retriable.restart.connector.wait.ms", RENAMED, "`retryTimeoutMs`"),
    Property(
        "gtid.source.includes",
        SAME,
        "MySQL, in streams that do not read tables first (TR-1092): each range of a table is read as of "
        "another position, with the changes of all servers up to there",
    ),
    Property("gtid.source.excludes", SAME, "likewise"),
    Property(
        "gtid.source.filter.dml.events",
        MISSING,
        "always true. If changes of the other servers were given, a server that takes over could give some "
        "of them again, and others never: their transactions are not looked for in its log",
        fine=("true",),
    ),
    Property(
        "gtid.ignore.on.recovery", MISSING, "a stream goes on by GTID where it has them", fine=("false",)
    ),
    Property("binlog.buffer.size", NEEDLESS, "only what is committed is read"),
    Property("table.ignore.builtin", NEEDLESS, "system tables are never captured"),
    Property("source.struct.version", MISSING, "the present form alone", fine=("v2",)),
    Property("schema.history.internal.*", NEEDLESS, "the log has names, types and keys with each table"),
    Property("plugin.name", NEEDLESS, "always `pgoutput`"),
    Property("slot.name", RENAMED, "`slotName`"),
    Property("slot.drop.on.stop", MISSING, "`tailrace drop` removes the slot", fine=("false",)),
    Property("slot.max.retries", RENAMED, "`retryTimeoutMs`"),
    Property("slot.retry.delay.ms", NEEDLESS, "with back-off"),
    Property("publication.name", RENAMED, "`publicationName`"),
    Property(
        "publication.autocreate.mode", NEEDLESS, "always `filtered`: the publication has the captured tables"
    ),
    Property("replica.identity.autoset.values", MISSING, "`tailrace check` says which statements are needed"),
    Property("status.update.interval.ms", NEEDLESS, "every second"),
    Property("xmin.fetch.interval.ms", MISSING, fine=("0",)),
    Property("offset.mismatch.strategy", RENAMED, "`onPositionLost`"),
    Property("binlog.net.read.timeout", NEEDLESS, "a lost session is opened again, from its position"),
    Property("binlog.net.write.timeout", NEEDLESS, "as above"),
    Property("connect.keep.alive.interval.ms", NEEDLESS, "as above"),
    Property("use.nongraceful.disconnect", NEEDLESS, "as above"),
    Property("connection.validation.timeout.ms", RENAMED, "`connectTimeoutMs`"),
    Property("custom.sanitize.pattern", NEEDLESS, "no secret is printed, whatever its name"),
    Property("database.jdbc.driver", NEEDLESS, "no JDBC"),
    Property("database.protocol", NEEDLESS, "no JDBC"),
    Property("database.sslfactory", NEEDLESS, "no JDBC"),
    Property("database.server.id.offset", NEEDLESS, "tables are read without ids of replicas"),
    Property("database.ssl.keystore.password", NEEDLESS, "keys are PEM files"),
    Property("database.ssl.truststore.password", NEEDLESS, "certificates are PEM files"),
    Property("database.sslpassword", MISSING, "`tlsKey` is a file without a password"),
    Property("ddl.parser.type", NEEDLESS, "no DDL is parsed to read rows"),
    Property("event.deserialization.failure.handling.mode", MISSING, "nothing is skipped", fine=("fail",)),
    Property("executor.shutdown.timeout.ms", NEEDLESS, "of its engine"),
    Property("flush.lsn.source", NEEDLESS, "what all targets hold durably is confirmed to the source"),
    Property("lsn.flush.mode", NEEDLESS, "as above"),
    Property("lsn.flush.timeout.action", NEEDLESS, "as above"),
    Property("lsn.flush.timeout.ms", NEEDLESS, "as above"),
    Property("guardrail.collections.max", MISSING, "no limit of tables", fine=("0",)),
    Property("guardrail.collections.limit.action", NEEDLESS, "as above"),
    Property("heartbeat.topics.prefix", NEEDLESS, "the former name of `topic.heartbeat.prefix`"),
    Property("internal.*", NEEDLESS, "of its engine"),
    Property("legacy.snapshot.max.threads", NEEDLESS, "of its engine"),
    Property("memory.management.schemas.class", NEEDLESS, "of its engine"),
    Property("memory.management.tables.class", NEEDLESS, "of its engine"),
    Property("openlineage.integration.*", RENAMED, "section `lineage`"),
    Property("post.processors", MISSING, "a transform's `projection` computes columns of a row's own"),
    Property(
        "publish.via.partition.root",
        MISSING,
        "always true: changes of partitions are those of their table",
        fine=("true",),
    ),
    Property("query.fetch.size", NEEDLESS, "answers are read page by page"),
    Property("schema.history.internal", NEEDLESS, "the log has names, types and keys with each table"),
    Property("schema.refresh.mode", NEEDLESS, "the log has a table's columns before its changes"),
    Property("slot.failover", NEEDLESS, "slots are made with it where the server has it"),
    Property("slot.stream.params", MISSING, "the parameters of `pgoutput` are the reader's own"),
    Property("snapshot.locking.mode.custom.name", NEEDLESS, "no locks are taken"),
    Property("snapshot.max.threads.multiplier", NEEDLESS, "chunks are of `snapshotChunkRows`"),
    Property("snapshot.mode.configuration.based.*", MISSING, "see `startingPosition`", fine=("false",)),
    Property("snapshot.mode.custom.name", MISSING, "see `startingPosition`"),
    Property("snapshot.query.mode.custom.name", MISSING, "no code of others reads rows"),
    Property("sourceinfo.struct.maker", MISSING, "the block `source` is that of Debezium's own class"),
    Property(
        "transaction.metadata.factory", MISSING, "the block `transaction` is that of Debezium's own class"
    ),
    Property("statistics.metrics.enabled", NEEDLESS, "metrics are always counted; `metrics` serves them"),
    Property("custom.metric.tags", MISSING, "labels are added by the scraper"),
    Property("transforms, predicates", RENAMED, "`transform` and `route`; those of Debezium are below"),
)
