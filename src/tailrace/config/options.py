"""Options of `spark.readStream.format("tailrace")`: parsed, checked, typed.

Options arrive as strings, their names in any case. Each option is declared once, as a field of
`SourceOptions`: the field's name and default, and in its metadata (`option`) the parser, what is allowed, the
databases that have it and its documentation. `OPTIONS`, from which errors and `docs/reference/options.md`
come, is derived from the fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.option_values import (
    STARTS,
    DayWindow,
    Proxy,
    SshServer,
    ZeroDates,
    archive_address,
    aws_region,
    boolean,
    byte_count,
    column_patterns,
    day_windows,
    ending_position,
    ending_time_us,
    is_host,
    mysql_server,
    not_negative,
    number_or_auto,
    one_of,
    parse_url,
    positive,
    proxy,
    publication_name,
    regexes,
    server_id,
    signal_table,
    slot_name,
    some_of,
    ssh_server,
    starting_position,
    table_names,
    table_patterns,
    zero_dates,
)
from tailrace.config.secret import Secret
from tailrace.config.session_statements import allowed_settings, is_allowed, session_statements
from tailrace.config.snapshot_overrides import OVERRIDES, SnapshotOverride, is_override, snapshot_overrides
from tailrace.errors import ConfigError
from tailrace.extras import of_authentication, of_source
from tailrace.model.column_filter import ColumnFilter
from tailrace.model.column_mask import ColumnMask, column_mask, is_mask
from tailrace.model.declaration import Propagation
from tailrace.model.gtid_sources import GtidSources
from tailrace.model.schema_policy import (
    BEHAVIORS,
    IGNORABLE_KINDS,
    ON_DROP_TABLE,
    ON_TRUNCATE,
    STOPPING_KINDS,
    SchemaPolicy,
)

SHAPES = ("row", "envelope", "debezium", "cells")
DELIVERIES = ("exactly-once", "at-least-once")
PARTITIONERS = ("forward", "hash")
#: Bytes of log in a batch where `maxBytesPerTrigger` is not set: at first, and as long as batches are short.
BATCH_BYTES, MOST_BATCH_BYTES = 64 << 20, 256 << 20
ON_REWRITE = ("refresh", "ignore", "fail")
FORMER_COLUMNS = ("reread", "follow")
ON_POSITION_LOST = ("fail", "refresh")
TLS_MODES = ("disabled", "preferred", "required", "verify-ca", "verify-identity")
#: Those with which the server has to prove who it is.
VERIFIED_TLS = ("verify-ca", "verify-identity")
#: How a user proves who it is: by a password, or by a token that a cloud issues.
PASSWORD, AWS_RDS_IAM = "password", "aws-rds-iam"
AUTHENTICATIONS = (PASSWORD, AWS_RDS_IAM, "azure-entra", "gcp-iam")
#: Debezium's handling modes, by their names there: values, Debezium's default first.
MODES = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": (
        "adaptive_time_microseconds",
        "microseconds",
        "nanoseconds",
        "connect",
        "isostring",
    ),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
}
#: Debezium's names of the options for logical messages.
_MESSAGE_PREFIXES = ("message.prefix.include.list", "message.prefix.exclude.list")
#: Debezium's name of the option for its context headers.
_EXTENDED_HEADERS = "extended.headers.enabled"
#: Debezium's names of the options that leave tables out, and of those of which only one may be given.
_TABLES = "table.exclude.list"
_DATABASES = ("database.include.list", "database.exclude.list")
_SCHEMAS = ("schema.include.list", "schema.exclude.list")
_COLUMNS = ("column.include.list", "column.exclude.list")
#: Debezium's names of the options for what schemas say of columns.
PROPAGATION = (
    "include.schema.comments",
    "column.propagate.source.type",
    "datatype.propagate.source.type",
)
#: Debezium's names of the options for servers whose transactions are given.
GTID_SOURCES = ("gtid.source.includes", "gtid.source.excludes")
#: Options that say what nobody is to see; with them, the masks.
HIDING = (*_COLUMNS, _TABLES, _DATABASES[1])
#: Debezium's name of the option for statements of sessions.
_STATEMENTS = "database.initial.statements"
#: Debezium's name of the option for the tables that are read first.
_SNAPSHOT_TABLES = "snapshot.include.collection.list"
_WITHOUT_CHANGE = "skip.messages.without.change"
#: Debezium's name of the option for the statements of changes.
INCLUDE_QUERY = "include.query"
#: Debezium's name of the option for years below 100.
_TIME_ADJUSTER = "enable.time.adjuster"
#: Debezium's name of the option for the table of signals.
_SIGNAL_TABLE = "signal.data.collection"
#: Flink CDC's names of the options for schema changes.
_BEHAVIOR = "schema.change.behavior"
_CHANGES = ("include.schema.changes", "exclude.schema.changes")
#: A value of `onTruncate` and `onDropTable` that is refused with a reason, rather than as unknown.
_SOFT_DELETE = "soft-delete"
#: Debezium's names of the options for heartbeats.
_INTERVAL, _ACTION_QUERY = "heartbeat.interval.ms", "heartbeat.action.query"
_MYSQL = ("mysql", "mariadb")
#: Tables that gh-ost and pt-online-schema-change make beside the table that they change.
_HELPER_TABLE = re.compile(r"[^.]+\._.+_(gho|ghc|del|new|old)", re.DOTALL)
_POSTGRES = ("postgresql",)
#: What Oracle has of `startingPosition` and `endingPosition`.
_ORACLE_STARTS, _ORACLE_ENDS = ("initial", "latest", "snapshot"), ("latest", "timestamp")
#: Kinds of starting position that only some databases have.
_STARTS_ONLY_FOR = {
    "file": "mysql",
    "file-at-or-before": "mysql",
    "gtid": "mysql",
    "timestamp": "mysql",
    "lsn": "postgresql",
}
#: Options Spark itself adds or that other layers read.
_IGNORED = frozenset({"path"})
#: The default of an option that must be given.
REQUIRED = object()


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        name: in Spark's camelCase, or Debezium's name.
        parse: text to value; raises ValueError or KeyError.
        default: the value when it is not given; REQUIRED when it must be.
        allowed: what may be given, for errors and documentation.
        doc: one line for the documentation.
        only_for: the databases that have it; empty: all.
        is_hidden: whether errors never show its value, which may hold a password.
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    allowed: str
    doc: str
    only_for: tuple[str, ...] = ()
    is_hidden: bool = False


def option(
    parse: Callable[[str], Any],
    allowed: str,
    doc: str,
    *,
    name: str | None = None,
    only_for: tuple[str, ...] = (),
    is_hidden: bool = False,
) -> dict[str, Any]:
    """Metadata of a field that is an option; see `Option`. Default `name`: the field's, in camelCase."""
    return {
        "name": name,
        "parse": parse,
        "allowed": allowed,
        "doc": doc,
        "only_for": only_for,
        "is_hidden": is_hidden,
    }


def _mode(name: str) -> dict[str, Any]:
    modes = MODES[name]
    return option(one_of(*modes), " | ".join(modes), "`debezium` shape: as Debezium's.", name=name)


def _message_prefixes(name: str, which: str) -> dict[str, Any]:
    return option(
        regexes,
        "comma-separated regular expressions, each matched against the whole prefix",
        f"Logical messages (`pg_logical_emit_message`) to capture: {which}. With neither list, none are "
        "captured (Debezium: all).",
        name=name,
        only_for=_POSTGRES,
    )


def _list(name: str, of: str, doc: str, only_for: tuple[str, ...] = ()) -> dict[str, Any]:
    return option(
        regexes,
        f"comma-separated regular expressions, each matched against the whole name of a {of}, in any case",
        f"As Debezium's: {doc}",
        name=name,
        only_for=only_for,
    )


def _columns(name: str, which: str) -> dict[str, Any]:
    return option(
        column_patterns,
        "comma-separated regular expressions over database.table.column (PostgreSQL: schema.table.column), "
        "each matched against the whole name, in any case",
        f"As Debezium's: {which} Key columns cannot be left out. After a change of it, tables are read again "
        "whose columns are others (guide: running in production).",
        name=name,
    )


def _schema_changes(name: str, which: str) -> dict[str, Any]:
    return option(
        some_of(*STOPPING_KINDS),
        f"comma-separated: {' | '.join(STOPPING_KINDS)}",
        f"The changes that targets {which}.",
        name=name,
    )


@dataclass(frozen=True)
class TlsOptions:
    """How connections are encrypted; one setting for SELECTs and log."""

    mode: str = field(
        default="preferred",
        metadata=option(
            one_of(*TLS_MODES), " | ".join(TLS_MODES), "TLS of every connection.", name="tlsMode"
        ),
    )
    ca: str | None = field(
        default=None,
        metadata=option(str, "a PEM file", "Authorities that sign the server's certificate.", name="tlsCa"),
    )
    cert: str | None = field(
        default=None, metadata=option(str, "a PEM file", "Client certificate.", name="tlsCert")
    )
    key: str | None = field(
        default=None, metadata=option(str, "a PEM file", "Key of the client certificate.", name="tlsKey")
    )


@dataclass(frozen=True)
class RouteOptions:
    """How connections get to the server: directly, through an SSH server, or through a proxy."""

    ssh_tunnel: SshServer | None = field(
        default=None,
        metadata=option(
            ssh_server,
            "[USER@]HOST[:PORT]; HOST may be an alias of the client's configuration",
            "SSH server through which every connection goes, of the driver and of each task, by the program "
            "`ssh` (guide: connections).",
            name="sshTunnel",
            is_hidden=True,
        ),
    )
    ssh_key_file: str | None = field(
        default=None,
        metadata=option(
            str,
            "a file",
            "Private key for `sshTunnel`, without a passphrase; default: what the client's configuration and "
            "the agent offer.",
            name="sshKeyFile",
        ),
    )
    ssh_known_hosts_file: str | None = field(
        default=None,
        metadata=option(
            str,
            "a file",
            "Host keys that `sshTunnel` trusts, and no others; default: the client's own. An unknown key is "
            "always refused.",
            name="sshKnownHostsFile",
        ),
    )
    proxy: Proxy | None = field(
        default=None,
        metadata=option(
            proxy,
            "socks5://HOST[:PORT] | http://HOST[:PORT]",
            "Proxy through which every connection goes (SOCKS5, or HTTP with CONNECT); it resolves the "
            "server's name.",
            name="proxy",
            is_hidden=True,
        ),
    )
    proxy_user: str | None = field(
        default=None, metadata=option(str, "a user name", "User of the proxy.", name="proxyUser")
    )
    proxy_password: Secret = field(
        default=Secret(""),
        metadata=option(
            Secret,
            "the password, ${env:NAME} or ${file:PATH}",
            "Password of `proxyUser`; both protocols send it to the proxy unencrypted.",
            name="proxyPassword",
            is_hidden=True,
        ),
    )

    def __str__(self) -> str:
        """For messages, to be added to "connecting to ..."; "" for the direct way."""
        if self.ssh_tunnel is not None:
            return f" through the SSH server `{self.ssh_tunnel}`"
        return "" if self.proxy is None else f" through the proxy `{self.proxy}`"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one stream, in the order of the documentation.

    `dialect`, `host`, `port` and `database` are the option `url`; `tls` holds the options `tls*`, `route`
    those of SSH and proxies.
    """

    dialect: str
    host: str
    port: int
    database: str
    user: str = field(metadata=option(str, "a user name", "User that reads tables and log."))
    password: Secret = field(
        default=Secret(""),
        metadata=option(
            Secret,
            "the password, ${env:NAME} or ${file:PATH}",
            "Password of `user`; a reference is resolved on the driver's machine when a batch needs it.",
            is_hidden=True,
        ),
    )
    authentication: str = field(
        default=PASSWORD,
        metadata=option(
            one_of(*AUTHENTICATIONS),
            " | ".join(AUTHENTICATIONS),
            "How `user` logs in: by `password`, or by a token that each process requests for its connections "
            "from the cloud that it runs in (guide: connections).",
        ),
    )
    aws_region: str | None = field(
        default=None,
        metadata=option(
            aws_region,
            "a region",
            "`aws-rds-iam`: the region of the server; default: the one in the name of its host, else the "
            "environment's.",
        ),
    )
    tables: tuple[str, ...] = field(
        metadata=option(
            table_patterns,
            "comma-separated regular expressions over database.table (PostgreSQL: schema.table), each "
            "matched against the whole name",
            "The tables to capture.",
        )
    )
    table_exclude_list: tuple[str, ...] = field(
        default=(),
        metadata=option(
            table_patterns,
            "comma-separated regular expressions over database.table (PostgreSQL: schema.table), each "
            "matched against the whole name, in any case",
            "As Debezium's: tables that are not captured, although `tables` names them.",
            name=_TABLES,
        ),
    )
    database_include_list: tuple[str, ...] = field(
        default=(),
        metadata=_list(
            _DATABASES[0], "database", "of the tables that `tables` names, only those in them.", _MYSQL
        ),
    )
    database_exclude_list: tuple[str, ...] = field(
        default=(),
        metadata=_list(_DATABASES[1], "database", "none of the tables in them is captured.", _MYSQL),
    )
    schema_include_list: tuple[str, ...] = field(
        default=(),
        metadata=_list(
            _SCHEMAS[0], "schema", "of the tables that `tables` names, only those in them.", _POSTGRES
        ),
    )
    schema_exclude_list: tuple[str, ...] = field(
        default=(),
        metadata=_list(_SCHEMAS[1], "schema", "none of the tables in them is captured.", _POSTGRES),
    )
    column_include_list: tuple[str, ...] = field(
        default=(),
        metadata=_columns(_COLUMNS[0], "the columns to capture, and no others."),
    )
    column_exclude_list: tuple[str, ...] = field(
        default=(),
        metadata=_columns(_COLUMNS[1], "columns that are not captured."),
    )
    #: The options `column.mask.*` and `column.truncate.*`, in the order in which they count.
    column_masks: tuple[ColumnMask, ...] = ()
    column_mask_salt: Secret = field(
        default=Secret(""),
        metadata=option(
            Secret,
            "a text, ${env:NAME} or ${file:PATH}",
            "Salt of the masks `column.mask.hash.ALGORITHM` and `column.mask.hash.v2.ALGORITHM`. These, "
            "`column.mask.with.N.chars` and `column.truncate.to.N.chars` are options, too, whose values are "
            "as those of `column.exclude.list` (guide: transforms and routes).",
            is_hidden=True,
        ),
    )
    skip_messages_without_change: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "As Debezium's: whether an update is left out that changes none of the captured columns. Needs "
            "whole rows in the log (MySQL: `binlog_row_image` FULL; PostgreSQL: REPLICA IDENTITY FULL).",
            name=_WITHOUT_CHANGE,
        ),
    )
    include_query: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "As Debezium's: whether messages have, as `query` of their block `source`, the statement that "
            "made the change, as the log has it (MySQL: `binlog_rows_query_log_events`; MariaDB: "
            "`binlog_annotate_row_events`). A statement is whole: it may name other tables, and values that "
            "no column has. Not beside options that mask columns or leave columns or tables out.",
            name=INCLUDE_QUERY,
            only_for=_MYSQL,
        ),
    )
    gtid_source_includes: tuple[str, ...] = field(
        default=(),
        metadata=_list(
            GTID_SOURCES[0],
            "server's UUID",
            "the servers whose transactions are given, by their GTIDs; changes of others are left out. Not "
            "where tables are read first (guide: MySQL).",
            ("mysql",),
        ),
    )
    gtid_source_excludes: tuple[str, ...] = field(
        default=(),
        metadata=_list(
            GTID_SOURCES[1],
            "server's UUID",
            "servers whose transactions are not given, likewise.",
            ("mysql",),
        ),
    )
    include_schema_comments: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "As Debezium's: whether schemas in messages have the comments of columns. They are those that a "
            "table had when it joined the stream, or after its last schema change (guide: MySQL).",
            name=PROPAGATION[0],
            only_for=_MYSQL,
        ),
    )
    column_propagate_source_type: tuple[str, ...] = field(
        default=(),
        metadata=option(
            column_patterns,
            "comma-separated regular expressions over database.table.column (PostgreSQL: "
            "schema.table.column), each matched against the whole name, in any case",
            "As Debezium's: the columns of which schemas in messages have the declared type, as parameters "
            "`__debezium.source.column.*`; as of the same time as comments.",
            name=PROPAGATION[1],
            only_for=(*_MYSQL, *_POSTGRES),
        ),
    )
    datatype_propagate_source_type: tuple[str, ...] = field(
        default=(),
        metadata=_list(
            PROPAGATION[2],
            "column's type, database.table.TYPE (PostgreSQL: schema.table.TYPE)",
            "the same for the columns of some types, such as `.*\\.VARCHAR`.",
            (*_MYSQL, *_POSTGRES),
        ),
    )
    shape: str = field(
        default="row", metadata=option(one_of(*SHAPES), " | ".join(SHAPES), "Form of the rows.")
    )
    starting_position: str = field(
        default="initial",
        metadata=option(
            starting_position,
            " | ".join(STARTS) + " | file:NAME:OFFSET | file-at-or-before:NAME:OFFSET | gtid:SET "
            "| timestamp:2026-01-31T12:00:00Z (or epoch milliseconds); PostgreSQL: "
            + " | ".join(STARTS)
            + " | lsn:0/16B3748 | timestamp:... (with `archive`)",
            "Where a new stream begins; a restarted stream continues from its checkpoint. "
            "`file-at-or-before`: where the last transaction ends that ends at or before the offset.",
        ),
    )
    ending_position: str | None = field(
        default=None,
        metadata=option(
            ending_position,
            "latest | timestamp:2026-01-31T12:00:00Z (or epoch milliseconds) | file:NAME:OFFSET | gtid:SET; "
            "PostgreSQL: latest | timestamp:... | lsn:0/16B3748; or a position as JSON, as offsets have it",
            "Where the stream ends: at the last transaction at or before it. `latest`: at the log's end when "
            "the stream starts with this option. A time may lie ahead, a position may not. Default: nowhere.",
        ),
    )
    max_rows_per_trigger: int | None = field(
        default=None,
        metadata=option(
            positive,
            "a number > 0",
            "A batch ends at the first transaction at or past this many rows.",
        ),
    )
    max_bytes_per_trigger: int | None = field(
        default=None,
        metadata=option(
            byte_count,
            "bytes > 0, with k, m or g",
            "A batch ends at the first transaction at or past this many bytes of log. Default: 64 MB, and up "
            "to 256 MB as long as batches of a backlog are short.",
        ),
    )
    snapshot_parallelism: int | None = field(
        default=None,
        metadata=option(
            positive,
            "a number > 0",
            "Snapshot splits read at once; a batch has up to 8 times as many. Default: the driver's cores.",
        ),
    )
    snapshot_overridden: tuple[str, ...] = field(
        default=(),
        metadata=option(
            table_names,
            "names of tables, database.table (PostgreSQL: schema.table), with commas between them",
            "As Debezium's: tables of which a stream reads only some rows first, by a statement in the "
            "option `snapshot.select.statement.overrides.TABLE` of each: SELECT * FROM TABLE WHERE and a "
            "condition as those of `additional-conditions` (guide: signals). Other rows come as they change; "
            "so targets do not hold the whole table.",
            name=OVERRIDES,
            is_hidden=True,
        ),
    )
    #: The options `snapshot.select.statement.overrides.TABLE`.
    snapshot_overrides: tuple[SnapshotOverride, ...] = ()
    snapshot_include_collection_list: tuple[str, ...] = field(
        default=(),
        metadata=option(
            table_patterns,
            "comma-separated regular expressions over database.table (PostgreSQL: schema.table), each "
            "matched against the whole name, in any case",
            "As Debezium's: the tables whose rows are read first; default: all. Others are followed from the "
            "stream's position on, and their targets do not hold the whole table (guide: running in "
            "production). One that is added to the list is read then.",
            name=_SNAPSHOT_TABLES,
        ),
    )
    snapshot_chunk_rows: int = field(
        default=250_000, metadata=option(positive, "a number > 0", "Rows per snapshot split.")
    )
    snapshot_protection: str = field(
        default="auto",
        metadata=option(
            one_of("auto", "none"),
            "auto | none",
            "`auto`: while others use the server, rows of tables are read in a small share of the time, so "
            "that they hardly wait longer; a server that is not busy is read at full speed. `none`: "
            "every server is.",
        ),
    )
    snapshot_max_rows_per_second: int | None = field(
        default=None,
        metadata=option(
            positive,
            "a number > 0",
            "Most rows of tables read per second, in first snapshots and when tables are read again; the log "
            "is not limited.",
        ),
    )
    snapshot_max_bytes_per_second: int | None = field(
        default=None,
        metadata=option(
            byte_count,
            "bytes > 0, with k, m or g",
            "Most bytes of tables that are read per second, by the catalog's mean size of a row.",
        ),
    )
    snapshot_windows: tuple[DayWindow, ...] = field(
        default=(),
        metadata=option(
            day_windows,
            "comma-separated HH:MM-HH:MM, by the driver's clock",
            "Times of the day at which tables may be read: `22:00-06:00`. At other times only the log is.",
        ),
    )
    snapshot_max_active_sessions: int | None = field(
        default=None,
        metadata=option(
            positive,
            "a number > 0",
            "No rows of tables are read while the server has more active sessions (MySQL, MariaDB: "
            "`Threads_running`, which counts the reader of the log).",
        ),
    )
    snapshot_max_replica_lag: int | None = field(
        default=None,
        metadata=option(
            positive,
            "seconds > 0",
            "No rows of tables are read while a replica is further behind: PostgreSQL: any standby of the "
            "server (needs `pg_monitor`); MySQL, MariaDB: the server itself, if it is a replica (needs "
            "REPLICATION CLIENT; MariaDB: REPLICA MONITOR).",
        ),
    )
    snapshot_max_held_log_bytes: int | None = field(
        default=None,
        metadata=option(
            byte_count,
            "bytes > 0, with k, m or g",
            "No rows of tables are read while the server holds more log for the stream, so that the log is "
            "read first (PostgreSQL: what the slot retains; MySQL, MariaDB: from the stream's position on). "
            "Not for runs that end, such as with `available-now`.",
        ),
    )
    snapshot_url: tuple[str, int] | None = field(
        default=None,
        metadata=option(
            mysql_server,
            "mysql://HOST[:PORT]",
            "A replica from which rows of tables are read, while the log comes from `url`; with the same "
            "user and TLS. MySQL with GTIDs only (guide: MySQL). Default: rows are read from `url`.",
            only_for=("mysql",),
            is_hidden=True,
        ),
    )
    snapshot_query_timeout_ms: int | None = field(
        default=None,
        metadata=option(
            positive,
            "milliseconds > 0",
            "Longest time for a statement that reads rows of a table; the server ends it (MySQL: "
            "`max_execution_time`, of a page; MariaDB: `max_statement_time`, of a page; PostgreSQL: "
            "`statement_timeout`, of a chunk, in which the sinks may make it wait). Default: no limit.",
        ),
    )
    log_parallelism: int = field(
        default=1,
        metadata=option(
            number_or_auto,
            "a number > 0 | auto",
            "Tasks that read a backlog of the log (MySQL, MariaDB). auto: up to 4 where they run on the host "
            "of the process that follows it, else 1; the default of pipelines all of whose sinks are Delta "
            "or Iceberg tables. With several, only `_seq` orders the changes of a batch.",
            only_for=_MYSQL,
        ),
    )
    partitioner: str = field(
        default="forward",
        metadata=option(
            one_of(*PARTITIONERS),
            " | ".join(PARTITIONERS),
            "How `logParallelism` tasks divide the log: each reads a range of it (forward), or the changes "
            "of some keys in log order (hash).",
            only_for=_MYSQL,
        ),
    )
    delivery: str = field(
        default="exactly-once",
        metadata=option(
            one_of(*DELIVERIES),
            " | ".join(DELIVERIES),
            "at-least-once leaves out the rewind of snapshot rows.",
        ),
    )
    on_rewrite: str = field(
        default="refresh",
        metadata=option(
            one_of(*ON_REWRITE),
            " | ".join(ON_REWRITE),
            "When a schema change alters rows without logging them (a default for old rows, a conversion, a "
            "table swapped or truncated): read the table again, keep the old values in targets, or stop.",
        ),
    )
    former_columns: str = field(
        default="reread",
        metadata=option(
            one_of(*FORMER_COLUMNS),
            " | ".join(FORMER_COLUMNS),
            "When columns are renamed or dropped: read the table again; or do not, as whoever receives the "
            "rows does the same with its columns. `tailrace run` sets it to follow if all sinks do: "
            "replicas, Delta and Iceberg with `mode: upsert`.",
        ),
    )
    schema_change_behavior: str = field(
        default="evolve",
        metadata=option(
            one_of(*BEHAVIORS),
            " | ".join(BEHAVIORS),
            "As Flink CDC's: targets follow schema changes; or they keep a column that they can neither "
            "rename nor drop; or they keep all columns that were renamed or dropped; or they keep their "
            "columns as they are, and get no new ones; or the first change stops the stream before anything "
            "of its batch is written. A new table never stops it.",
            name=_BEHAVIOR,
        ),
    )
    include_schema_changes: tuple[str, ...] = field(
        default=(),
        metadata=_schema_changes(
            _CHANGES[0], "follow, or that stop the stream with `exception`; default: all"
        ),
    )
    exclude_schema_changes: tuple[str, ...] = field(
        default=(),
        metadata=_schema_changes(
            _CHANGES[1], "do not follow, or that do not stop the stream with `exception`"
        ),
    )
    on_truncate: str = field(
        default="apply",
        metadata=option(
            one_of(*ON_TRUNCATE, _SOFT_DELETE),
            " | ".join(ON_TRUNCATE),
            "When a table is truncated: targets that hold rows lose them, too (by `onRewrite` `refresh`); or "
            "they keep them; or the stream stops.",
        ),
    )
    on_drop_table: str = field(
        default="ignore",
        metadata=option(
            one_of(*ON_DROP_TABLE, _SOFT_DELETE),
            " | ".join(ON_DROP_TABLE),
            "When a table is dropped: targets that hold rows lose them (the target itself stays); or they "
            "keep them; or the stream stops.",
            only_for=_MYSQL,
        ),
    )
    on_position_lost: str = field(
        default="fail",
        metadata=option(
            one_of(*ON_POSITION_LOST),
            " | ".join(ON_POSITION_LOST),
            "When the server no longer has the log that the stream needs: stop, or read every table again "
            "and continue from the log's present end.",
        ),
    )
    archive: str | None = field(
        default=None,
        metadata=option(
            archive_address,
            "a directory, or a URI of S3 (s3://), GCS, Azure or HDFS",
            "Archive of the server's log, which `tailrace archive` writes. What the server no longer "
            "has is read from it (guide: log archive).",
            only_for=(*_MYSQL, *_POSTGRES),
            is_hidden=True,
        ),
    )
    archive_key: Secret | None = field(
        default=None,
        metadata=option(
            Secret,
            "32 bytes in base64 or hex, ${env:NAME} or ${file:PATH}",
            "Key of an encrypted archive.",
            only_for=(*_MYSQL, *_POSTGRES),
            is_hidden=True,
        ),
    )
    signal_data_collection: str | None = field(
        default=None,
        metadata=option(
            signal_table,
            "a table as `database.table` (PostgreSQL: `schema.table`)",
            "Table whose inserts are signals, as Debezium's. Its rows are read from the log; they are not "
            "delivered unless `tables` names it, too.",
            name=_SIGNAL_TABLE,
        ),
    )
    checkpoint_path: str | None = field(
        default=None,
        metadata=option(
            str,
            "a directory",
            "Spark 4.1: the writer's `checkpointLocation`, as Spark does not tell a source where its stream "
            "stands. Needed there; without effect on Spark 4.2. Pipelines set it themselves.",
        ),
    )
    requests_path: str | None = field(
        default=None,
        metadata=option(
            str,
            "a directory",
            "Where the stream looks for requests (`tailrace resync`); pipelines: below the checkpoint.",
        ),
    )
    sample_path: str | None = field(
        default=None,
        metadata=option(
            str,
            "a directory",
            "Where the stream looks whether somebody looks at its last changes; pipelines set it themselves.",
        ),
    )
    trouble_path: str | None = field(
        default=None,
        metadata=option(
            str,
            "a directory",
            "Where the stream notes why its source does not answer while it tries again; pipelines set it "
            "themselves.",
        ),
    )
    max_parked: int = field(
        default=0,
        metadata=option(
            not_negative,
            "a number >= 0",
            "How many tables may be parked because they cannot be captured, while the others go on; "
            "pipelines: `pipeline.max-parked`.",
        ),
    )
    server_id: int | None = field(
        default=None,
        metadata=option(
            server_id,
            "1..4294967295",
            "First replication server id to use; default: derived from the stream. After a clash, others are "
            "tried.",
            only_for=_MYSQL,
        ),
    )
    heartbeat_table: str | None = field(
        default=None,
        metadata=option(
            str,
            "database.table",
            "Table (id INT PRIMARY KEY, ts TIMESTAMP(6)) that the stream may write to as a barrier where "
            "GTIDs are off.",
            only_for=_MYSQL,
        ),
    )
    heartbeat_interval_ms: int = field(
        default=0,
        metadata=option(
            not_negative,
            "milliseconds, 0: none",
            f"Time between two runs of `{_ACTION_QUERY}`, as Debezium's; a Kafka sink's messages have a "
            "setting of their own.",
            name=_INTERVAL,
        ),
    )
    heartbeat_action_query: str | None = field(
        default=None,
        metadata=option(
            str,
            "a statement",
            "As Debezium's: a statement that writes something to the log, so that the stream's position "
            "moves on while nothing happens in the captured tables. It is run as `user`. PostgreSQL: SELECT "
            "pg_logical_emit_message(true, 'heartbeat', '').",
            name=_ACTION_QUERY,
        ),
    )
    slot_name: str | None = field(
        default=None,
        metadata=option(
            slot_name,
            "a name of a-z, 0-9 and _, at most 63 characters",
            "Replication slot, one for each stream, created if it is missing; default: tailrace.",
            only_for=_POSTGRES,
        ),
    )
    publication_name: str | None = field(
        default=None,
        metadata=option(
            publication_name,
            "a name of at most 63 bytes",
            "Publication of the stream, created if it is missing, and extended by captured tables that it "
            "lacks; default: the slot's name.",
            only_for=_POSTGRES,
        ),
    )
    text_columns: tuple[str, ...] | None = field(
        default=None,
        metadata=option(
            column_patterns,
            "comma-separated regular expressions over schema.table.column",
            "Columns to read as text, for values that their own type cannot hold (NaN in a NUMERIC(p, s)).",
            only_for=_POSTGRES,
        ),
    )
    unfit_as_null: tuple[str, ...] | None = field(
        default=None,
        metadata=option(
            column_patterns,
            "comma-separated regular expressions over schema.table.column",
            "Columns in which a value that their type cannot hold is read as null, where it would stop the "
            "stream: NaN in a NUMERIC(p, s), an array of two dimensions. In the `debezium` shape also NaN "
            "and the infinities of a NUMERIC without limits, which `decimal.handling.mode` `precise` cannot "
            "encode.",
            only_for=_POSTGRES,
        ),
    )
    message_prefix_include_list: tuple[str, ...] | None = field(
        default=None,
        metadata=_message_prefixes(_MESSAGE_PREFIXES[0], "those whose prefix matches"),
    )
    message_prefix_exclude_list: tuple[str, ...] | None = field(
        default=None,
        metadata=_message_prefixes(_MESSAGE_PREFIXES[1], "all but those whose prefix matches"),
    )
    tls: TlsOptions = TlsOptions()
    route: RouteOptions = RouteOptions()
    capture_helper_tables: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "Whether patterns of `tables` also match helper tables of gh-ost and pt-online-schema-change "
            "(`_t_gho`, `_t_ghc`, `_t_del`, `_t_new`, `_t_old`). One that `tables` names without wildcards "
            "is captured anyway.",
            only_for=_MYSQL,
        ),
    )
    allow_public_key_retrieval: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "As Connector/J's. Without TLS: whether the password may be encrypted with a key that the server "
            "sends, whoever that is.",
            only_for=_MYSQL,
        ),
    )
    server_public_key_file: str | None = field(
        default=None,
        metadata=option(
            str,
            "a PEM file",
            "The server's RSA key (Connector/J: serverRSAPublicKeyFile): without TLS, the password is "
            "encrypted with it.",
            only_for=_MYSQL,
        ),
    )
    allow_cleartext_password: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "Without TLS: whether the password may be sent in clear text to a server that requests it.",
        ),
    )
    database_initial_statements: tuple[str, ...] = field(
        default=(),
        metadata=option(
            session_statements,
            "statements, with semicolons between them (two of them: a semicolon in a statement)",
            "As Debezium's: what each session begins with (PostgreSQL: but those that replicate). SET ROLE, "
            "SET RESOURCE GROUP (MySQL), and SET of settings that do not change what is read; an error lists "
            "them.",
            name=_STATEMENTS,
        ),
    )
    connect_timeout_ms: int = field(
        default=10_000,
        metadata=option(
            positive,
            "milliseconds > 0",
            "Longest time for a whole log-in: the look-up of the host, TLS and every answer.",
        ),
    )
    query_timeout_ms: int = field(
        default=3_600_000,
        metadata=option(
            positive,
            "milliseconds > 0",
            "Longest time for the whole answer to a query about catalog, keys or log, here and at the "
            "server; for rows of a table, the longest time in which nothing of them comes. The log itself "
            "has none. `check` as a whole has `retryTimeoutMs`.",
        ),
    )
    lock_timeout_ms: int = field(
        default=10_000,
        metadata=option(
            positive,
            "milliseconds > 0; MySQL, MariaDB: rounded up to seconds",
            "Longest time that a statement waits for a lock on a table, held by LOCK TABLE or a schema "
            "change. Then it is tried again.",
        ),
    )
    max_answer_bytes: int = field(
        default=512 << 20,
        metadata=option(
            byte_count,
            "bytes > 0, with k, m or g",
            "Most memory that such an answer may take. A row and an event of the log may have 1 GB.",
        ),
    )
    retry_timeout_ms: int = field(
        default=300_000,
        metadata=option(
            positive,
            "milliseconds > 0",
            "How long the stream tries to reconnect to a lost server, with back-off, before it stops.",
        ),
    )
    zero_dates: ZeroDates = field(
        default=ZeroDates(),
        metadata=option(
            zero_dates,
            "comma-separated: null | text | error, each alone for all columns or as POLICY:PATTERN, a "
            "regular expression over database.table.column; the first that matches counts",
            "How `0000-00-00` and dates with a zero month or day are read: as null; as text, as are then all "
            "values of the column; or as an error that stops the stream.",
            only_for=_MYSQL,
        ),
    )
    topic_prefix: str | None = field(
        default=None,
        metadata=option(str, "a name", "`debezium` shape: first part of topics and schema names."),
    )
    schemas_enable: bool = field(
        default=False,
        metadata=option(
            boolean, "true | false", "`debezium` shape: whether key and value carry their schema."
        ),
    )
    decimal_handling_mode: str = field(default="precise", metadata=_mode("decimal.handling.mode"))
    time_precision_mode: str = field(
        default="adaptive_time_microseconds", metadata=_mode("time.precision.mode")
    )
    bigint_unsigned_handling_mode: str = field(
        default="long", metadata=_mode("bigint.unsigned.handling.mode")
    )
    binary_handling_mode: str = field(default="bytes", metadata=_mode("binary.handling.mode"))
    enable_time_adjuster: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "`debezium` shape: as Debezium's (there: true): whether the years 0 to 69 of a DATE or DATETIME "
            "become 2000 to 2069, and 70 to 99 become 1970 to 1999. MySQL itself does so with years of two "
            "digits in a statement: what it has stored as the year 18 is the year 18.",
            name=_TIME_ADJUSTER,
            only_for=_MYSQL,
        ),
    )
    extended_headers_enabled: bool = field(
        default=False,
        metadata=option(
            boolean,
            "true | false",
            "`debezium` shape: whether messages have Debezium's headers `__debezium.context.*` (there: true)"
            "; they cost up to a fifth of the rate.",
            name=_EXTENDED_HEADERS,
        ),
    )

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras that bring the database's driver, and what requests tokens."""
        needed = of_source(self.dialect), of_authentication(self.authentication)
        return tuple(extra for extra in needed if extra is not None)

    @property
    def address(self) -> str:
        """The server and the way to it, for messages."""
        return f"`{self.host}:{self.port}`{self.route}"

    def for_tasks(self) -> SourceOptions:
        """The options for other machines, where references of secrets have no meaning: with their values.

        Tokens of a cloud are not among them: each process requests its own.

        Raises:
            ConfigError: a variable or file that a secret refers to does not exist.
        """
        proxy_password = self.route.proxy_password.resolved("the proxy's password")
        return dataclasses.replace(
            self,
            password=self.password.resolved(),
            column_mask_salt=self.column_mask_salt.resolved("`columnMaskSalt`"),
            archive_key=None if self.archive_key is None else self.archive_key.resolved("`archiveKey`"),
            route=dataclasses.replace(self.route, proxy_password=proxy_password),
        )

    @property
    def slot(self) -> str:
        """The replication slot's name."""
        return self.slot_name or "tailrace"

    @property
    def publication(self) -> str:
        """The publication's name."""
        return self.publication_name or self.slot

    def unfit(self, column: str) -> str | None:
        """What the column `schema.table.column` is given for values that its type cannot hold.

        `text`: the whole column is text. `null`: they are null. None: they are errors.
        """
        for policy, patterns in (("text", self.text_columns), ("null", self.unfit_as_null)):
            if any(re.fullmatch(p, column, re.DOTALL) for p in patterns or ()):
                return policy
        return None

    @property
    def has_messages(self) -> bool:
        """Whether logical messages are captured."""
        return bool(self.message_prefix_include_list or self.message_prefix_exclude_list)

    def wants_message(self, prefix: str) -> bool:
        """Whether logical messages with that prefix are captured."""
        if self.message_prefix_include_list:
            return any(re.fullmatch(p, prefix, re.DOTALL) for p in self.message_prefix_include_list)
        return not any(
            re.fullmatch(p, prefix, re.DOTALL) for p in self.message_prefix_exclude_list or (".*",)
        )

    @property
    def schema_policy(self) -> SchemaPolicy:
        """What the stream does about schema changes."""
        return SchemaPolicy(
            self.schema_change_behavior,
            self.include_schema_changes,
            self.exclude_schema_changes,
            self.on_truncate,
            self.on_drop_table,
        )

    @property
    def batch_bytes(self) -> tuple[int, int]:
        """The bytes of log after which a batch ends, and to how many these may grow."""
        if self.max_bytes_per_trigger is None:
            return BATCH_BYTES, MOST_BATCH_BYTES
        return self.max_bytes_per_trigger, self.max_bytes_per_trigger

    @property
    def ending_time_us(self) -> int | None:
        """The time at which the stream ends, microseconds since 1970 UTC."""
        return None if self.ending_position is None else ending_time_us(self.ending_position)

    @property
    def propagation(self) -> Propagation:
        """What schemas in messages say of columns."""
        return Propagation(
            self.column_propagate_source_type,
            self.datatype_propagate_source_type,
            self.include_schema_comments,
            self.column_masks,
        )

    @property
    def gtid_sources(self) -> GtidSources:
        """The servers whose transactions are given."""
        return GtidSources(self.gtid_source_includes, self.gtid_source_excludes)

    @property
    def exactly_once(self) -> bool:
        """Whether snapshot rows are rewound to their batch's position."""
        return self.delivery == "exactly-once"

    @property
    def columns(self) -> ColumnFilter:
        """The columns that are captured."""
        return ColumnFilter(
            self.column_include_list, self.column_exclude_list, self.skip_messages_without_change
        )

    def capturing(self, tables: tuple[str, ...] | None, columns: ColumnFilter | None = None) -> SourceOptions:
        """The options with these patterns of tables, and these columns; None: with their own."""
        tables = self.tables if tables is None else tables
        columns = self.columns if columns is None else columns
        if (tables, columns) == (self.tables, self.columns):
            return self
        return dataclasses.replace(
            self,
            tables=tables,
            column_include_list=columns.include,
            column_exclude_list=columns.exclude,
            skip_messages_without_change=columns.skips_unchanged,
        )

    def capturing_only(self, name: str) -> SourceOptions:
        """The options of a stream of the table `database.table`, whole, whatever these leave out."""
        lists = (*_DATABASES, *_SCHEMAS, *_COLUMNS, _TABLES)
        none: dict[str, Any] = {field: () for field, o in _SOURCE_OPTIONS.items() if o.name in lists}
        return dataclasses.replace(self, tables=(re.escape(name),), capture_helper_tables=True, **none)

    def reads_rows_of(self, name: str) -> bool:
        """Whether all rows of the table `database.table` are read before its changes are followed."""
        if self.first_rows_of(name) is not None:
            return False
        patterns = self.snapshot_include_collection_list
        return not patterns or _in_list(patterns, [name])

    def first_rows_of(self, name: str) -> str | None:
        """The condition of the rows that are read of the table `database.table` first; None: none."""
        return next((o.where for o in self.snapshot_overrides if o.table == name.lower()), None)

    def has_signals(self, name: str) -> bool:
        """Whether the table `database.table` is that of the signals."""
        return name == self.signal_data_collection

    def captures(self, name: str) -> bool:
        """Whether the table `database.table` is captured."""
        return self.matches(name) and not self.hides(name)

    def matches(self, name: str) -> bool:
        """Whether a pattern of `tables` matches the table `database.table`, and no list leaves it out."""
        return any(re.fullmatch(p, name, re.DOTALL) for p in self.tables) and not self.leaves_out(name)

    def leaves_out(self, name: str) -> bool:
        """Whether a list of tables, databases or schemas leaves out the table `database.table`."""
        parts = name.split(".")
        # the name of a database may have dots: it is left out if any of the possible ones is
        databases = [".".join(parts[:count]) for count in range(1, len(parts))]
        only = self.database_include_list or self.schema_include_list
        return (
            _in_list(self.table_exclude_list, [name])
            or _in_list(self.database_exclude_list or self.schema_exclude_list, databases)
            or bool(only and not _in_list(only, databases))
        )

    @property
    def choice(self) -> str:
        """The patterns by which tables are captured, for errors."""
        found = ", ".join(f"`{pattern}`" for pattern in self.tables)
        for name, o in _SOURCE_OPTIONS.items():
            if o.name in (*_DATABASES, *_SCHEMAS, _TABLES) and (given := getattr(self, name)):
                found += f" with `{o.name}` {', '.join(f'`{pattern}`' for pattern in given)}"
        return found

    def hides(self, name: str) -> bool:
        """Whether `database.table` is a helper table of an online schema tool, and not captured as such."""
        return (
            self.dialect in _MYSQL
            and not self.capture_helper_tables
            and _HELPER_TABLE.fullmatch(name) is not None
            and name not in (p.replace("\\.", ".") for p in self.tables)
        )


def _in_list(patterns: Collection[str], names: Collection[str]) -> bool:
    """Whether one of Debezium's lists has one of `names`; it compares names in any case."""
    return any(re.fullmatch(p, name, re.DOTALL | re.IGNORECASE) for p in patterns for name in names)


_URL = Option(
    "url",
    parse_url,
    REQUIRED,
    "mysql://HOST[:PORT] | mariadb://HOST[:PORT] | postgresql://HOST[:PORT]/DATABASE | "
    "oracle://HOST[:PORT]/SERVICE",
    "The server to capture.",
    is_hidden=True,
)


def _options_of(cls: type[SourceOptions | TlsOptions | RouteOptions]) -> dict[str, Option]:
    """The options that the fields of `cls` declare, by the fields' names."""
    declared = {}
    for spec in dataclasses.fields(cls):
        if spec.metadata:
            default = REQUIRED if spec.default is dataclasses.MISSING else spec.default
            name = spec.metadata["name"] or re.sub(r"_(\w)", lambda m: m[1].upper(), spec.name)
            declared[spec.name] = Option(**{**spec.metadata, "name": name, "default": default})
    return declared


_TLS_OPTIONS = _options_of(TlsOptions)
_ROUTE_OPTIONS = _options_of(RouteOptions)
_SOURCE_OPTIONS = _options_of(SourceOptions)


def _in_order() -> Iterator[Option]:
    yield _URL
    for spec in dataclasses.fields(SourceOptions):
        if spec.name == "tls":
            yield from _TLS_OPTIONS.values()
        elif spec.name == "route":
            yield from _ROUTE_OPTIONS.values()
        elif spec.name in _SOURCE_OPTIONS:
            yield _SOURCE_OPTIONS[spec.name]


#: Every option, in the order of the documentation.
OPTIONS: tuple[Option, ...] = tuple(_in_order())
_BY_NAME = {known.name.lower(): known for known in OPTIONS}


def parse_options(given: Mapping[str, str], where: str = "option") -> SourceOptions:
    """The typed options.

    Args:
        given: names (any case) and texts.
        where: what a name is called in errors.

    Returns:
        The options, with defaults where none is given.

    Raises:
        ConfigError: an option is unknown, missing or wrong; the message names it and what is allowed.
    """
    values: dict[str, Any] = {}
    masks: list[ColumnMask] = []
    statements: dict[str, str] = {}
    for name, text in given.items():
        if is_override(name):
            statements[name] = str(text)
            continue
        if is_mask(name):
            masks.append(_mask(name, str(text), where))
            continue
        known = _BY_NAME.get(name.lower())
        if known is not None:
            values[known.name] = _parsed(known, str(text), where)
        elif name.lower() not in _IGNORED:
            raise _unknown(name, where)
    for known in OPTIONS:
        if known.name not in values and known.default is REQUIRED:
            raise ConfigError(
                f"{where} `{known.name}` is missing",
                f"allowed: {known.allowed}",
                f'set it, e.g. .option("{known.name}", "...")',
                code="TR-1006",
            )
    dialect, host, port, database = values["url"]
    tls = {name: values[o.name] for name, o in _TLS_OPTIONS.items() if o.name in values}
    others = {name: values[o.name] for name, o in _SOURCE_OPTIONS.items() if o.name in values}
    route = {name: values[o.name] for name, o in _ROUTE_OPTIONS.items() if o.name in values}
    options = SourceOptions(
        dialect=dialect,
        host=host,
        port=port,
        database=database,
        tls=TlsOptions(**tls),
        snapshot_overrides=snapshot_overrides(values.get(OVERRIDES, ()), statements, where),
        column_masks=tuple(sorted(masks, key=lambda mask: (mask.kind, mask.name.lower()))),
        route=RouteOptions(**route),
        **others,
    )
    _check_masks(options, where)
    _check_query(options, values.keys(), where)
    _check_propagation(options, where)
    _check_gtid_sources(options, values.keys(), where)
    _check_route(options, values.keys(), where)
    _check_authentication(options, values.keys(), where)
    _check_shape(options.shape, values.keys(), where)
    _check_schema_changes(options, values.keys(), where)
    _check_heartbeat(options, where)
    _check_dialect(options, values.keys(), where)
    _check_ending(options, where)
    _check_snapshot_tables(options, where)
    return options


def _mask(name: str, text: str, where: str) -> ColumnMask:
    try:
        return column_mask(name, regexes(text))
    except ValueError as error:
        raise ConfigError(
            f"{where} `{name}` is wrong",
            str(error),
            "comma-separated regular expressions, each matched against the whole `database.table.column`",
            code="TR-1010",
        ) from None


def _check_masks(options: SourceOptions, where: str) -> None:
    """Reject a hash without a salt, and a salt without a hash."""
    hashes = [mask.name for mask in options.column_masks if mask.is_hash]
    if bool(hashes) == bool(options.column_mask_salt.text):
        return
    if not hashes:
        raise ConfigError(
            f"{where} `columnMaskSalt` has no effect here",
            "no option `column.mask.hash.*` is given",
            "leave it out",
            code="TR-1011",
        )
    raise ConfigError(
        f"{where} `columnMaskSalt` is missing",
        f"`{hashes[0]}` needs it: without a salt, hashes of known texts can be looked up",
        "set it, e.g. to ${env:MASK_SALT}",
        code="TR-1006",
    )


def _check_query(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject statements where nothing shows them, and where they would give away what is hidden."""
    if not options.include_query:
        return
    if options.shape in ("row", "envelope"):
        raise ConfigError(
            f"{where} `{INCLUDE_QUERY}` has no effect on shape `{options.shape}`",
            "statements are part of `debezium` messages",
            "leave it out, or set shape to debezium",
            code="TR-1011",
        )
    hiding = [mask.name for mask in options.column_masks]
    hiding += [name for name in HIDING if name in given]
    if hiding:
        raise ConfigError(
            f"{where}s `{INCLUDE_QUERY}` and `{hiding[0]}` exclude each other",
            "a statement has the values of all columns and tables that it names, also of those that are "
            "masked or left out",
            "leave one of them out",
            code="TR-1090",
        )


def _check_propagation(options: SourceOptions, where: str) -> None:
    """Reject what schemas are to say where there are none."""
    if not options.propagation:
        return
    name = next(name for name, value in zip(PROPAGATION, _propagated(options), strict=True) if value)
    if options.shape in ("row", "envelope") or (options.shape == "debezium" and not options.schemas_enable):
        raise ConfigError(
            f"{where} `{name}` has no effect here",
            "it is part of the schemas in messages",
            "leave it out, or set shape to debezium and schemasEnable to true",
            code="TR-1011",
        )


def _check_gtid_sources(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject servers whose transactions are given beside rows of tables, which have those of all servers."""
    name = next((name for name in GTID_SOURCES if name in given), None)
    if name is not None and options.starting_position in ("initial", "snapshot"):
        raise ConfigError(
            f"{where} `{name}` needs a stream that does not read tables first",
            f"found `startingPosition` `{options.starting_position}`: each range of a table is read as of "
            "another position, with the changes of all servers up to there, so which of them targets have "
            "would depend on when it was read",
            "set startingPosition to latest, earliest, a GTID set or a time, or leave it out",
            code="TR-1092",
        )


def _propagated(options: SourceOptions) -> tuple[object, ...]:
    return (
        options.include_schema_comments,
        options.column_propagate_source_type,
        options.datatype_propagate_source_type,
    )


def _parsed(known: Option, text: str, where: str) -> Any:
    try:
        return known.parse(text)
    except (ValueError, KeyError) as error:
        found = "a value that is not shown" if known.is_hidden else f"`{text}`"
        problem = str(error)
        is_shown = (known.is_hidden and problem) or "not a reg" in problem
        raise ConfigError(
            f"{where} `{known.name}` is wrong",
            f"found {found}{f' ({problem})' if is_shown else ''}, allowed: {known.allowed}",
            code="TR-1010",
        ) from None


def _unknown(name: str, where: str) -> ConfigError:
    near = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
    return ConfigError(
        f"unknown {where}" + (f" `{name}`" if re.fullmatch(r"[\w.-]{1,60}", name) else ""),
        f"known are: {', '.join(sorted(o.name for o in OPTIONS))}",
        f"did you mean `{_BY_NAME[near[0]].name}`?" if near else None,
        code="TR-1007",
    )


def _check_shape(shape: str, given: Collection[str], where: str) -> None:
    """Reject options that have no effect on the shape, and two lists that exclude each other."""
    for name in (*MODES, _EXTENDED_HEADERS):
        if shape != "debezium" and name in given:
            raise ConfigError(
                f"{where} `{name}` has no effect on shape `{shape}`",
                "it says how `debezium` messages look",
                "leave it out, or set shape to debezium",
                code="TR-1011",
            )
    prefixes = [name for name in _MESSAGE_PREFIXES if name in given]
    if prefixes and shape in ("row", "envelope"):
        raise ConfigError(
            f"{where} `{prefixes[0]}` has no effect on shape `{shape}`",
            "rows of that shape are those of one table",
            "leave it out, or set shape to debezium",
            code="TR-1011",
        )
    for pair in (_MESSAGE_PREFIXES, _DATABASES, _SCHEMAS, _COLUMNS, GTID_SOURCES):
        if all(name in given for name in pair):
            raise ConfigError(
                f"{where}s `{pair[0]}` and `{pair[1]}` exclude each other",
                hint="give one of them",
                code="TR-1005",
            )


def _check_schema_changes(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject options about schema changes that have no effect beside the others."""
    for name in _CHANGES:
        if name not in given or options.schema_change_behavior == "exception":
            continue
        if options.schema_change_behavior == "ignore":
            raise ConfigError(
                f"{where} `{name}` has no effect with `{_BEHAVIOR}` `ignore`",
                "targets follow no change of a column",
                f"leave it out, or set `{_BEHAVIOR}` to evolve; onTruncate and onDropTable are settings of "
                "their own",
                code="TR-1030",
            )
        kinds = options.include_schema_changes if name == _CHANGES[0] else options.exclude_schema_changes
        for kind in kinds:
            if kind not in IGNORABLE_KINDS:
                raise ConfigError(
                    f"{where} `{name}` cannot have `{kind}` with `{_BEHAVIOR}` "
                    f"`{options.schema_change_behavior}`",
                    f"targets always follow it; allowed: {', '.join(IGNORABLE_KINDS)}",
                    f"leave it out, or set `{_BEHAVIOR}` to exception, which it can stop",
                    code="TR-1030",
                )
    for name, value in (("onTruncate", options.on_truncate), ("onDropTable", options.on_drop_table)):
        if value == _SOFT_DELETE:
            raise ConfigError(
                f"{where} `{name}` cannot be `{_SOFT_DELETE}`",
                "it is a pipeline's transforms that mark rows as deleted",
                f"use a pipeline file; or set {name}: apply and `mode: scd2` in the sink (Delta), which ends "
                f"the rows' versions and keeps them; or {name}: ignore, with which targets keep the rows as "
                "they are",
                code="TR-1032",
            )
    refreshes = options.starting_position == "initial" and options.on_rewrite == "refresh"
    if options.on_drop_table == "apply" and not refreshes:
        raise ConfigError(
            f"{where} `onDropTable` cannot be `apply` here",
            "targets delete the rows of a dropped table as they do when a table is read again",
            "set onRewrite: refresh and startingPosition: initial, or onDropTable: ignore",
            code="TR-1031",
        )


def _check_route(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject settings of a way that is not taken, two ways, and hosts that no proxy could be told."""
    if "sshTunnel" in given and "proxy" in given:
        raise ConfigError(
            f"{where}s `sshTunnel` and `proxy` exclude each other",
            "a connection takes one way",
            "give one of them; `ProxyCommand` in the configuration of `ssh` leads a tunnel through a proxy",
            code="TR-1005",
        )
    for name, needed in (
        ("sshKeyFile", "sshTunnel"),
        ("sshKnownHostsFile", "sshTunnel"),
        ("proxyUser", "proxy"),
        ("proxyPassword", "proxyUser"),
    ):
        if name in given and needed not in given:
            raise ConfigError(
                f"{where} `{name}` has no effect without `{needed}`",
                hint=f"set `{needed}`, or leave `{name}` out",
                code="TR-1011",
            )
    named = options.host if ":" not in options.host else f"[{options.host}]"
    if ("sshTunnel" in given or "proxy" in given) and not is_host(named):
        raise ConfigError(
            f"{where} `url` is wrong",
            "its host is neither a name of letters, digits, dots and hyphens nor an address",
            code="TR-1010",
        )


def _check_authentication(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject a password beside a token, and a token that could be sent to somebody else."""
    if "awsRegion" in given and options.authentication != AWS_RDS_IAM:
        raise ConfigError(
            f"{where} `awsRegion` has no effect with `authentication` `{options.authentication}`",
            hint=f"set `authentication` to {AWS_RDS_IAM}, or leave it out",
            code="TR-1011",
        )
    if options.authentication == PASSWORD:
        return
    if "password" in given:
        raise ConfigError(
            f"{where}s `password` and `authentication: {options.authentication}` exclude each other",
            "the token is the password",
            "leave one of them out",
            code="TR-1005",
        )
    if options.tls.mode not in VERIFIED_TLS:
        raise ConfigError(
            f"{where} `authentication: {options.authentication}` needs a verified server",
            f"with `tlsMode` `{options.tls.mode}` the token could be sent to whoever answers",
            f"set `tlsMode` to {' or '.join(reversed(VERIFIED_TLS))}, and `tlsCa` to the cloud's authorities",
            code="TR-3120",
        )


def _check_heartbeat(options: SourceOptions, where: str) -> None:
    """Reject an interval without a statement, and a statement without an interval."""
    if bool(options.heartbeat_interval_ms) == bool(options.heartbeat_action_query):
        return
    given, missing = (
        (_INTERVAL, _ACTION_QUERY) if options.heartbeat_interval_ms else (_ACTION_QUERY, _INTERVAL)
    )
    raise ConfigError(
        f"{where} `{given}` has no effect without `{missing}`",
        "a heartbeat is a statement that is run at an interval",
        f"set `{missing}`, or leave `{given}` out",
        code="TR-1011",
    )


def _check_ending(options: SourceOptions, where: str) -> None:
    """Reject an end of the stream beside options with which it cannot be kept."""
    text = options.ending_position
    if text is None:
        return
    kind = text.partition(":")[0].lower()
    if text.startswith("{"):
        kind = "lsn" if "lsn" in json.loads(text) else "file"
    needed = "postgresql" if kind == "lsn" else "mysql" if kind in ("file", "gtid") else None
    if needed is not None and (needed == "postgresql") != (options.dialect == "postgresql"):
        raise ConfigError(
            f"{where} `endingPosition` is wrong",
            f"found a position by `{kind}`, which {options.dialect} does not have",
            code="TR-1010",
        )
    if options.starting_position == "snapshot":
        raise ConfigError(
            f"{where} `endingPosition` has no effect with `startingPosition` `snapshot`",
            "the stream ends once its tables are read",
            "leave it out",
            code="TR-1011",
        )
    for name, value, excluded, why in (
        (
            "onPositionLost",
            options.on_position_lost,
            "refresh",
            "what is read again is as of a later position",
        ),
        ("delivery", options.delivery, "at-least-once", "rows of tables would be newer than the end"),
    ):
        if value == excluded:
            raise ConfigError(
                f"{where}s `endingPosition` and `{name}: {excluded}` exclude each other",
                why,
                "leave one of them out",
                code="TR-1005",
            )


def _check_snapshot_tables(options: SourceOptions, where: str) -> None:
    """Reject a list of tables to read beside options with which it cannot be kept."""
    for name, given, starts in (
        (_SNAPSHOT_TABLES, options.snapshot_include_collection_list, ("initial", "snapshot")),
        (OVERRIDES, options.snapshot_overridden, ("initial",)),
    ):
        if given:
            _check_partial(options, name, starts, where)


def _check_partial(options: SourceOptions, setting: str, starts: Collection[str], where: str) -> None:
    if options.starting_position not in starts:
        raise ConfigError(
            f"{where} `{setting}` has no effect here",
            f"found `startingPosition` `{options.starting_position}`; needed {' or '.join(starts)}",
            "leave it out",
            code="TR-1011",
        )
    if options.on_position_lost == "refresh":
        raise ConfigError(
            f"{where}s `{setting}` and `onPositionLost: refresh` exclude each other",
            "tables that are not read could not be made complete behind a part of the log that is lost",
            "leave one of them out",
            code="TR-1005",
        )


def _check_oracle(options: SourceOptions, where: str) -> None:
    """Reject what python-oracledb, or LogMiner, does not have."""
    if not options.database:
        raise ConfigError(
            f"{where} `url` names no service",
            "a session belongs to one pluggable database",
            "oracle://HOST[:PORT]/SERVICE",
            code="TR-1012",
        )
    ending = "latest" if options.ending_position is None else options.ending_position
    for setting, value, allowed in (
        ("startingPosition", options.starting_position, _ORACLE_STARTS),
        ("endingPosition", ending.partition(":")[0].lower(), _ORACLE_ENDS),
    ):
        if value not in allowed:
            raise ConfigError(
                f"{where} `{setting}` is wrong",
                f"found `{value}`, which oracle does not have",
                f"allowed: {' | '.join(allowed)}",
                code="TR-1010",
            )
    for setting, is_set in (
        ("authentication", options.authentication != PASSWORD),
        ("sshTunnel", options.route.ssh_tunnel is not None),
        ("proxy", options.route.proxy is not None),
        (_STATEMENTS, bool(options.database_initial_statements)),
    ):
        if is_set:
            raise ConfigError(
                f"{where} `{setting}` has no effect on oracle",
                "the driver connects by itself, with a password",
                "leave it out",
                code="TR-1011",
            )


def _check_dialect(options: SourceOptions, given: Collection[str], where: str) -> None:
    """Reject options that the database does not have."""
    dialect = options.dialect
    if dialect == "postgresql" and not options.database:
        raise ConfigError(
            f"{where} `url` names no database",
            "a session belongs to one database",
            "postgresql://HOST[:PORT]/DATABASE",
            code="TR-1012",
        )
    if dialect == "oracle":
        _check_oracle(options, where)
    for name in sorted(given):
        only_for = _BY_NAME[name.lower()].only_for
        if only_for and dialect not in only_for:
            raise ConfigError(
                f"{where} `{name}` has no effect on {dialect}",
                f"it is one of {' and '.join(only_for)}",
                "leave it out",
                code="TR-1011",
            )
    for statement in options.database_initial_statements:
        if not is_allowed(statement, dialect):
            group = "SET RESOURCE GROUP, " if dialect == "mysql" else ""
            raise ConfigError(
                f"{where} `{_STATEMENTS}` has a statement that is not allowed",
                f"found `{statement}`, which may change what is read",
                f"SET ROLE, {group}or SET of one of these, one in a statement: "
                f"{', '.join(allowed_settings(dialect))}",
                code="TR-1019",
            )
    if options.signal_data_collection is not None and options.starting_position == "snapshot":
        raise ConfigError(
            f"{where} `{_SIGNAL_TABLE}` has no effect with `startingPosition` `snapshot`",
            "signals are read from the log",
            "leave it out",
            code="TR-1011",
        )
    if options.snapshot_url is not None and not options.exactly_once:
        raise ConfigError(
            f"{where} `snapshotUrl` has no effect with `delivery` `at-least-once`",
            "rows of a replica are older than the log, and only the rewind makes them fit",
            "leave one of them out",
            code="TR-1011",
        )
    kind = options.starting_position.partition(":")[0].lower()
    needed = _STARTS_ONLY_FOR.get(kind)
    if kind == "timestamp" and dialect == "postgresql" and options.archive is not None:
        return
    if needed is not None and (needed == "postgresql") != (dialect == "postgresql"):
        raise ConfigError(
            f"{where} `startingPosition` is wrong",
            f"found `{kind}:...`, which {dialect} does not have"
            + (" without `archive`" if kind == "timestamp" else ""),
            code="TR-1010",
        )
