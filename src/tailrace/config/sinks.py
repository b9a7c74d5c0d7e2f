"""The settings of each type of sink: the section `sink` of a pipeline file, read by `config.load`.

A new sink is a dataclass, here or in a module of its own, in SINKS; a setting is a field. `__post_init__`
checks values, and settings against each other. Its errors name a setting as `sink.name`; `config.load`
corrects the path in a list of sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.option_values import parse_url
from tailrace.config.options import TLS_MODES, SourceOptions, TlsOptions
from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.secret import Secret, refuse_credentials, shown
from tailrace.config.sink_settings import (
    MOST_QUARANTINED,
    CommonSettings,
    RefusedRow,
    check_positive,
)
from tailrace.errors import ConfigError

#: Longest time for a statement of a replica: merging a batch or altering a table may take hours.
_STATEMENT_MS = 86_400_000


class WriteMode(StrEnum):
    """The content of a sink's tables."""

    UPSERT = "upsert"
    CHANGELOG = "changelog"
    SCD2 = "scd2"


class ReplicaTransaction(StrEnum):
    """How much of a batch becomes visible at once in a database replica."""

    PARTS = "parts"
    WHOLE_BATCH = "whole-batch"


class ExistingTables(StrEnum):
    """How a table is handled that the target had before the stream."""

    REFUSE = "refuse"
    ADOPT = "adopt"


class ReaderFeatures(StrEnum):
    """Which features of Delta readers of a target must know."""

    #: None for renamed, dropped and widened columns: files are rewritten.
    COMPATIBLE = "compatible"
    #: Those by which columns are altered in place.
    LATEST = "latest"


class OnIncompatibleType(StrEnum):
    """What becomes of a column whose new type the target's column cannot hold."""

    PARK = "park"
    TEXT = "text"
    NEW_COLUMN = "new-column"
    FAIL = "fail"


def _follows(mode: WriteMode, on_incompatible_type: OnIncompatibleType) -> bool:
    """Whether lake tables rename and drop all columns that their source renames and drops."""
    return mode is WriteMode.UPSERT and on_incompatible_type is not OnIncompatibleType.NEW_COLUMN


@dataclass(frozen=True)
class DeltaSettings(CommonSettings):
    """One Delta table per target below `path`.

    Args:
        path: their directory.
        mode: their content.
        parallelism: tables written at the same time.
        on_incompatible_type: what becomes of a column whose new type the target's cannot hold.
        on_refused_row: how a row is handled that the target refuses.
        max_quarantined: how many rows of a table may be in quarantine.
        reader_features: which features of Delta readers of the targets must know.
        merge_interval: seconds between merges; 0: each batch is merged; default: adaptive, by the time that
            merges take. Not in mode changelog.
        cluster_by_key: whether new tables are clustered by their key (OPTIMIZE does it).
        optimize_interval: seconds between two OPTIMIZE of a table; default: never.
        vacuum_interval: seconds between two VACUUM of a table; default: never.
        vacuum_retention_hours: how old a file that no version needs must be to be deleted.
        catalog: the name of the catalog of Spark in which targets are registered; default: in none.

    Raises:
        ConfigError: a value is out of its range, or has no effect in the mode.
    """

    type: ClassVar[str] = "delta"
    extra: ClassVar[str | None] = "delta"
    path: str
    mode: WriteMode = WriteMode.UPSERT
    parallelism: int = 8
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    reader_features: ReaderFeatures = ReaderFeatures.COMPATIBLE
    merge_interval: int | None = None
    cluster_by_key: bool = False
    optimize_interval: int | None = None
    vacuum_interval: int | None = None
    vacuum_retention_hours: int = 168
    catalog: str | None = None

    def __post_init__(self) -> None:
        refuse_credentials(self.path, "sink.path")
        check_positive(
            self,
            "parallelism",
            "max_quarantined",
            "optimize_interval",
            "vacuum_interval",
            "vacuum_retention_hours",
        )
        interval = self.merge_interval
        if interval is not None and (interval < 0 or self.mode is WriteMode.CHANGELOG):
            raise ConfigError(
                "`sink.merge-interval` must be >= 0, in a mode that merges",
                f"found {interval}",
                "0 merges each batch; mode changelog merges nothing: leave it out there",
                code="TR-1010",
            )

    @property
    def follows_former_columns(self) -> bool:
        """Whether targets rename and drop columns with their source."""
        return _follows(self.mode, self.on_incompatible_type)

    @property
    def takes_any_order(self) -> bool:
        """Rows are sorted by `_seq` where they are read or merged."""
        return True


@dataclass(frozen=True)
class IcebergSettings(CommonSettings):
    """One Iceberg table per target, below `path`.

    Args:
        path: their directory.
        mode: their content: upsert or changelog.
        parallelism: tables written at the same time.
        on_incompatible_type: what becomes of a column whose new type the target's cannot hold.
        on_refused_row: how a row is handled that the target refuses.
        max_quarantined: how many rows of a table may be in quarantine.
        catalog: pyiceberg's properties of the catalog (`type`, `uri`, ...; values may be `${env:NAME}`);
            default: a SQLite file below the path.
        optimize_interval: seconds between two compactions of a table's small files; default: never.
        expire_interval: seconds between two expiries of a table's old snapshots; default: never.
        snapshot_retention_hours: how old a snapshot must be to be expired.

    Raises:
        ConfigError: a value is out of its range, or the mode is scd2.
    """

    type: ClassVar[str] = "iceberg"
    extra: ClassVar[str | None] = "iceberg"
    path: str
    mode: WriteMode = WriteMode.UPSERT
    parallelism: int = 4
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    optimize_interval: int | None = None
    expire_interval: int | None = None
    snapshot_retention_hours: int = 168

    def __post_init__(self) -> None:
        refuse_credentials(self.path, "sink.path")
        check_positive(
            self,
            "parallelism",
            "max_quarantined",
            "optimize_interval",
            "expire_interval",
            "snapshot_retention_hours",
        )
        if self.mode is WriteMode.SCD2:
            raise ConfigError(
                "Iceberg sinks do not support mode scd2 at `sink.mode`",
                "allowed: upsert, changelog",
                "use `type: delta`",
                code="TR-1008",
            )

    @property
    def follows_former_columns(self) -> bool:
        """Whether targets rename and drop columns with their source."""
        return _follows(self.mode, self.on_incompatible_type)

    @property
    def takes_any_order(self) -> bool:
        """Rows are sorted by `_seq` where they are read or merged."""
        return True


@dataclass(frozen=True)
class FileSettings(CommonSettings):
    """Change log as files: one directory per target, one directory in it per batch.

    Args:
        path: their directory.
        parallelism: targets written at the same time.

    Raises:
        ConfigError: a value is out of its range.
    """

    type: ClassVar[str]
    extra: ClassVar[str | None] = None
    path: str
    parallelism: int = 4

    def __post_init__(self) -> None:
        refuse_credentials(self.path, "sink.path")
        check_positive(self, "parallelism")


@dataclass(frozen=True)
class ParquetSettings(FileSettings):
    """Change log as Parquet files."""

    type: ClassVar[str] = "parquet"


@dataclass(frozen=True)
class JsonSettings(FileSettings):
    """Change log as files of JSON lines."""

    type: ClassVar[str] = "json"


@dataclass(frozen=True)
class ReplicaSettings(CommonSettings):
    """Tables of a database that are kept equal to the source's.

    Args:
        url: `mysql://HOST[:PORT][/DATABASE]` or `postgresql://HOST[:PORT]/DATABASE`.
        user: a user who may create tables there.
        password: the user's.
        transaction: whether the shares of a batch are committed one by one, or the batch as a whole.
        on_incompatible_type: what becomes of a column whose new type the table's cannot hold.
        on_refused_row: how a row is handled that the database refuses.
        max_quarantined: how many rows of a table may be in quarantine.
        existing_tables: how a table is handled that exists already.
        parallelism: connections that write at the same time.
        tls_mode: as the source's option `tlsMode`.
        tls_ca: authorities that sign the server's certificate, a PEM file.
        tls_cert: client certificate, a PEM file.
        tls_key: its key, a PEM file.
        allow_cleartext_password: as the source's option `allowCleartextPassword`.

    Raises:
        ConfigError: the url is not one of this type's, or a value is not allowed.
    """

    type: ClassVar[str]
    extra: ClassVar[str | None]
    schemes: ClassVar[tuple[str, ...]]
    url: str
    user: str
    password: Secret = field(default_factory=lambda: Secret(""))
    transaction: ReplicaTransaction = ReplicaTransaction.PARTS
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    existing_tables: ExistingTables = ExistingTables.REFUSE
    parallelism: int = 4
    tls_mode: str = "preferred"
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_cleartext_password: bool = False

    def __post_init__(self) -> None:
        self.address  # noqa: B018 - checked
        if self.tls_mode not in TLS_MODES:
            raise ConfigError(
                "`sink.tls-mode` is wrong",
                f"found {shown(self.tls_mode)}, allowed: {', '.join(TLS_MODES)}",
                code="TR-1008",
            )
        refuse_credentials(self.url, "sink.url")
        if self.on_incompatible_type is OnIncompatibleType.NEW_COLUMN:
            raise ConfigError(
                "`sink.on-incompatible-type` cannot be `new-column` in a database replica",
                "a replica has the columns of its source; allowed: park, text, fail",
                "on-incompatible-type: text",
                code="TR-1010",
            )
        check_positive(self, "parallelism", "max_quarantined")

    @property
    def address(self) -> tuple[str, str, int, str]:
        """The url's scheme, host, port and path."""
        allowed = " or ".join(f"{scheme}://HOST[:PORT]/DATABASE" for scheme in self.schemes)
        try:
            address = parse_url(self.url)
        except ValueError as error:
            raise ConfigError(
                "`sink.url` is wrong", f"needed {allowed}", str(error) or None, code="TR-1010"
            ) from None
        if address[0] not in self.schemes:
            raise ConfigError(
                "`sink.url` is wrong", f"found `{address[0]}://...`, needed {allowed}", code="TR-1010"
            )
        return address

    @property
    def tls(self) -> TlsOptions:
        """How connections are encrypted."""
        return TlsOptions(self.tls_mode, self.tls_ca, self.tls_cert, self.tls_key)

    @property
    def server(self) -> SourceOptions:
        """How to connect to the server, as options of a source."""
        scheme, host, port, database = self.address
        return SourceOptions(
            dialect=scheme,
            host=host,
            port=port,
            database=database,
            user=self.user,
            tables=(),
            password=self.password,
            tls=self.tls,
            allow_cleartext_password=self.allow_cleartext_password,
            query_timeout_ms=_STATEMENT_MS,
        )

    @property
    def follows_former_columns(self) -> bool:
        """Whether targets rename and drop columns with their source."""
        return True


@dataclass(frozen=True)
class MySqlSettings(ReplicaSettings):
    """A replica in MySQL or MariaDB; the url's database is for targets without one, and our own tables.

    Args:
        allow_public_key_retrieval: as the source's option `allowPublicKeyRetrieval`.
        server_public_key_file: as the source's option `serverPublicKeyFile`.
    """

    type: ClassVar[str] = "mysql"
    extra: ClassVar[str | None] = None
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    allow_public_key_retrieval: bool = False
    server_public_key_file: str | None = None

    @property
    def server(self) -> SourceOptions:
        """See ReplicaSettings."""
        return replace(
            super().server,
            allow_public_key_retrieval=self.allow_public_key_retrieval,
            server_public_key_file=self.server_public_key_file,
        )


@dataclass(frozen=True)
class PostgresSettings(ReplicaSettings):
    """A replica in PostgreSQL; `schema` is for targets without one, and our own tables."""

    type: ClassVar[str] = "postgresql"
    extra: ClassVar[str | None] = "postgres"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql",)
    schema: str = "public"


@dataclass(frozen=True)
class NestedTable:
    """A table whose rows are nested in the documents of another one.

    Args:
        parent: the target whose documents get them.
        child: the target that they have of their own.
        columns: by column of the child the column of the parent that it refers to.
        field: the field of the parent's documents that holds them.
    """

    parent: str
    child: str
    columns: Mapping[str, str]
    field: str


#: Most rows that OpenSearch finds, and nests in a document, at once by default.
_MOST_NESTED = 10_000


@dataclass(frozen=True)
class OpenSearchSettings(CommonSettings):
    """Documents of an OpenSearch cluster, one for each row.

    Args:
        url: a node's address, or several separated by commas.
        user: user for basic authentication.
        password: the user's password.
        api_key: an API key instead of a user, as the cluster has encoded it.
        tls_ca: authorities that sign the nodes' certificates, a PEM file; default: the system's.
        parallelism: tasks that write changes at the same time.
        on_refused_row: how a row is handled whose document OpenSearch refuses.
        max_quarantined: how many rows of a table may be in quarantine.
        index_settings: settings of new indices, e.g. `number_of_shards`.
        routing: by target: the column of its key whose value decides the shard of a document.
        nested: tables whose rows are nested in the documents of others.
        max_nested: most rows of a table that are nested in one document.

    Raises:
        ConfigError: an address is none or holds a user, or a value is out of its range.
    """

    type: ClassVar[str] = "opensearch"
    extra: ClassVar[str | None] = None
    url: str
    user: str | None = None
    password: Secret | None = None
    api_key: Secret | None = None
    tls_ca: str | None = None
    parallelism: int = 4
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    index_settings: Mapping[str, str] = field(default_factory=dict)
    routing: Mapping[str, str] = field(default_factory=dict)
    nested: tuple[NestedTable, ...] = ()
    max_nested: int = 1000

    def __post_init__(self) -> None:
        if "@" in self.url:
            raise ConfigError(
                "`sink.url` is wrong",
                "an address holds no user and no password",
                "use `user` and `password`",
                code="TR-1013",
            )
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ConfigError(
                "`sink.url` is wrong",
                f"found {shown(self.url)}, needed http://HOST:PORT or https://HOST:PORT",
                code="TR-1010",
            )
        if self.api_key is not None and (self.user is not None or self.password is not None):
            raise ConfigError(
                "`sink.api-key` stands alone",
                "found `user` or `password`, too: a request has one of them",
                "leave out the others",
                code="TR-1010",
            )
        check_positive(self, "parallelism", "max_quarantined", "max_nested")
        self._check_nested()

    def _check_nested(self) -> None:
        parents = {nested.parent for nested in self.nested}
        seen: set[object] = set()
        for nested in self.nested:
            of_parent = (nested.parent, nested.field)
            problem = (
                "`columns` is empty"
                if not nested.columns
                else f"{shown(nested.field)} cannot be a `field`: no dots, and no `_` at its beginning"
                if "." in nested.field or nested.field[:1] in ("", "_")
                else f"{shown(nested.child)} is a child and a parent, or a child twice"
                if nested.child in parents or nested.child in seen
                else f"two tables have the field {shown(nested.field)} of one parent"
                if of_parent in seen
                else ""
            )
            if problem:
                raise ConfigError("an entry is wrong at `sink.nested`", problem, code="TR-1010")
            seen |= {nested.child, of_parent}
        if self.max_nested > _MOST_NESTED:
            raise ConfigError(
                "`sink.max-nested` is too large",
                f"found {self.max_nested}, needed at most {_MOST_NESTED}, OpenSearch's own limit",
                code="TR-1010",
            )

    @property
    def urls(self) -> tuple[str, ...]:
        """The nodes' addresses."""
        return tuple(url.strip().rstrip("/") for url in self.url.split(",") if url.strip())


class ClickHouseEngine(StrEnum):
    """Whether the targets' tables have replicas."""

    LOCAL = "local"
    REPLICATED = "replicated"


#: Settings of a connection that rows are only exact with as the sink sets them.
CLICKHOUSE_OWN = (
    *("async_insert", "wait_for_async_insert", "insert_deduplicate", "insert_deduplication_token"),
    *("deduplicate_insert", "alter_sync", "final", "apply_mutations_on_fly"),
)


@dataclass(frozen=True)
class ClickHouseSettings(CommonSettings):
    """Tables of a ClickHouse server: the source's rows, or all changes.

    Args:
        url: the server's HTTP interface: `http://HOST[:PORT]` or `https://HOST[:PORT]`.
        mode: their content: upsert or changelog.
        database: that of targets without one, and of our own tables.
        user: a user who may create tables there.
        password: the user's.
        tls_ca: authorities that sign the server's certificate, a PEM file; default: the system's.
        parallelism: tasks that write changes at the same time.
        on_refused_row: how a row is handled that a column cannot hold, or (upsert) the server refuses.
        max_quarantined: how many rows of a table may be in quarantine.
        engine: whether new tables are `Replicated...MergeTree`.
        cluster: the cluster on whose servers databases and tables are created and altered.
        order_by: by target: columns that new tables are sorted by, with commas.
        partition_by: by target: the expression that new tables are partitioned by.
        table_settings: settings of new tables.
        connection_settings: settings of all statements.

    Raises:
        ConfigError: the address is none or holds a user, or a value is out of its range.
    """

    type: ClassVar[str] = "clickhouse"
    extra: ClassVar[str | None] = "clickhouse"
    url: str
    mode: WriteMode = WriteMode.UPSERT
    database: str = "default"
    user: str = "default"
    password: Secret | None = None
    tls_ca: str | None = None
    parallelism: int = 4
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    engine: ClickHouseEngine = ClickHouseEngine.LOCAL
    cluster: str | None = None
    order_by: Mapping[str, str] = field(default_factory=dict)
    partition_by: Mapping[str, str] = field(default_factory=dict)
    table_settings: Mapping[str, str] = field(default_factory=dict)
    connection_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_credentials(self.url, "sink.url")
        self.address  # noqa: B018 - checked
        check_positive(self, "parallelism", "max_quarantined")
        if self.mode is WriteMode.SCD2:
            raise ConfigError(
                "ClickHouse sinks do not support mode scd2 at `sink.mode`",
                "allowed: upsert, changelog",
                "use `type: delta`",
                code="TR-1008",
            )
        for name in self.connection_settings:
            if name in CLICKHOUSE_OWN:
                raise ConfigError(
                    f"`sink.connection-settings` cannot have `{name}`",
                    "the sink sets it itself: rows would not be exact otherwise",
                    "leave it out",
                    code="TR-1010",
                )
        for key in ("table_settings", "connection_settings"):
            for name in getattr(self, key):
                if not name.isidentifier():
                    raise ConfigError(
                        f"`sink.{key.replace('_', '-')}` has a name that no setting has",
                        f"found {shown(name)}",
                        code="TR-1010",
                    )

    @property
    def follows_former_columns(self) -> bool:
        """See CommonSettings."""
        return self.mode is WriteMode.UPSERT

    @property
    def address(self) -> tuple[str, str, int]:
        """The url's scheme, host and port."""
        ports = {"http": 8123, "https": 8443}
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:  # its text shows the port, which may be a password
            parts, port = urlsplit(""), None
        rest = (parts.path.strip("/"), parts.query, parts.fragment)
        if parts.scheme not in ports or not parts.hostname or "@" in self.url or any(rest):
            raise ConfigError(
                "`sink.url` is wrong",
                f"found {shown(self.url)}, needed http://HOST[:PORT] or https://HOST[:PORT]",
                code="TR-1010",
            )
        return parts.scheme, parts.hostname, port or ports[parts.scheme]


@dataclass(frozen=True, kw_only=True)
class DuckDbSettings(CommonSettings):
    """Tables in a file of DuckDB.

    Args:
        database: the file.
        mode: their content: upsert or changelog.
        on_incompatible_type: what becomes of a column whose new type the target's cannot hold: park or fail.
        parallelism: tables whose rows are prepared at the same time.

    Raises:
        ConfigError: a value is out of its range.
    """

    type: ClassVar[str] = "duckdb"
    extra: ClassVar[str | None] = "duckdb"
    database: str
    mode: WriteMode = WriteMode.UPSERT
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK
    parallelism: int = 4

    def __post_init__(self) -> None:
        refuse_credentials(self.database, "sink.database")
        if "://" in self.database:
            raise ConfigError(
                "`sink.database` must be a local file",
                f"found {shown(self.database)}",
                "DuckDB locks and syncs the file, which object stores cannot do",
                code="TR-1010",
            )
        check_positive(self, "parallelism")
        allowed = (OnIncompatibleType.PARK, OnIncompatibleType.FAIL)
        if self.mode is WriteMode.SCD2 or self.on_incompatible_type not in allowed:
            raise ConfigError(
                "sinks of type `duckdb` support neither mode scd2 nor columns that become others",
                "allowed: `mode: upsert` or `changelog`, `on-incompatible-type: park` or `fail`",
                "use `type: delta`",
                code="TR-1008",
            )

    @property
    def follows_former_columns(self) -> bool:
        """Whether targets rename and drop columns with their source."""
        return self.mode is WriteMode.UPSERT


@dataclass(frozen=True)
class ConsoleSettings(CommonSettings):
    """Changes printed to the terminal."""

    type: ClassVar[str] = "console"
    extra: ClassVar[str | None] = None
    #: Most changes printed of one batch.
    rows: int = 20

    def __post_init__(self) -> None:
        check_positive(self, "rows")


SinkSettings = (
    DeltaSettings
    | IcebergSettings
    | ParquetSettings
    | JsonSettings
    | KafkaSettings
    | RocketMqSettings
    | RedisSettings
    | NatsSettings
    | RabbitMqSettings
    | WebhookSettings
    | OpenSearchSettings
    | ClickHouseSettings
    | DuckDbSettings
    | ConsoleSettings
    | MySqlSettings
    | PostgresSettings
)


#: The settings of each sink type.
SINKS: Mapping[str, type[SinkSettings]] = {
    s.type: s
    for s in (
        DeltaSettings,
        IcebergSettings,
        ParquetSettings,
        JsonSettings,
        KafkaSettings,
        RocketMqSettings,
        RedisSettings,
        NatsSettings,
        RabbitMqSettings,
        WebhookSettings,
        OpenSearchSettings,
        ClickHouseSettings,
        DuckDbSettings,
        ConsoleSettings,
        MySqlSettings,
        PostgresSettings,
    )
}


def sink_names(sinks: Sequence[SinkSettings]) -> list[str]:
    """Each sink's name in its pipeline: its own, or its type, from the second of a type on with a number."""
    types = [sink.type for sink in sinks]
    numbers = [types[:i].count(kind) + 1 for i, kind in enumerate(types)]
    return [
        sink.name or (kind if number == 1 else f"{kind}-{number}")
        for sink, kind, number in zip(sinks, types, numbers, strict=True)
    ]
