"""The settings of the Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from tailrace.config.flat_fields import DELETED, AddedField, added_fields
from tailrace.config.java_patterns import Replacement
from tailrace.config.outbox import OutboxSettings
from tailrace.config.secret import Secret, shown
from tailrace.config.sink_settings import (
    MOST_QUARANTINED,
    MessageSettings,
    RefusedRow,
    check_positive,
)
from tailrace.config.table_columns import TableColumns
from tailrace.errors import ConfigError


class KafkaDelivery(StrEnum):
    """Whether a replayed batch is in the topics twice."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class KeyEncoding(StrEnum):
    """How keys become bytes."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


#: Settings of flat rows alone.
_OF_FLAT_ROWS = (
    "add_fields",
    "add_fields_prefix",
    "add_headers",
    "add_headers_prefix",
    "delete_tombstone_handling_mode",
)
#: Values of `skipped-operations`.
SKIPPABLE = ("c", "u", "d", "t", "none")


class ValueEncoding(StrEnum):
    """How values become bytes."""

    DEBEZIUM_JSON = "debezium-json"
    CANAL_JSON = "canal-json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    FLAT_JSON = "flat-json"
    FLAT_AVRO = "flat-avro"
    CLOUDEVENTS = "cloudevents"

    @property
    def is_flat(self) -> bool:
        """Whether values are rows alone."""
        return self in (ValueEncoding.FLAT_JSON, ValueEncoding.FLAT_AVRO)


class DeleteHandling(StrEnum):
    """What a delete is among flat rows: Debezium's `delete.tombstone.handling.mode`."""

    DROP = "drop"
    TOMBSTONE = "tombstone"
    #: The same messages as TOMBSTONE.
    DELETE_TO_TOMBSTONE = "delete-to-tombstone"
    REWRITE = "rewrite"
    REWRITE_WITH_TOMBSTONE = "rewrite-with-tombstone"


class TopicByValue(StrEnum):
    """What the values of the columns of `topic-by` are."""

    #: Behind the name of the table's topic and a dot.
    SUFFIX = "suffix"
    #: The names of topics.
    TOPIC = "topic"


class SubjectNames(StrEnum):
    """How the registry's subjects are named: Confluent's strategies."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


@dataclass(frozen=True)
class KafkaSettings(MessageSettings):
    """Topics of a Kafka cluster, filled as Debezium fills them.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        topic_prefix: Debezium's `topic.prefix`: begins the names of topics and schemas.
        value_format: how values are encoded.
        key_format: how keys are encoded; default: as the values, else JSON.
        schema_registry_url: the registry of Avro and Protobuf: its address, or several separated by commas.
        schema_registry_user: user for basic authentication.
        schema_registry_password: the user's password.
        schema_registry_token: bearer token, instead of user and password.
        schema_registry_ca: certificates to trust instead of the system's, a PEM file.
        schema_registry_register: whether schemas that the registry does not know are registered.
        subject_names: how subjects are named.
        delete_tombstone_handling_mode: what a delete is among flat rows.
        add_fields: fields of the envelope that a flat row has, too, each `[STRUCT.]FIELD[:NAME]`.
        add_fields_prefix: begins the names of these fields.
        add_headers: the same for headers of a flat row.
        add_headers_prefix: begins the names of these headers.
        extension_attributes_enable: whether CloudEvents have Debezium's attributes.
        schemas_enable: whether JSON carries its Connect schema.
        tombstones: Debezium's `tombstones.on.delete`: whether a message without a value follows a delete.
        extended_headers_enabled: Debezium's `extended.headers.enabled`: whether messages have its headers
            `__debezium.context.*`.
        delivery: exactly-once by transactions, or at-least-once.
        parallelism: writers, each with a producer of its own; default: as many as Spark has cores, and one
            for a batch that one task reads, as is usual for the log.
        on_refused_row: how a change is handled whose message is larger than its topic allows, or that the
            format has no form for.
        max_quarantined: how many changes of a table may be in quarantine.
        provide_transaction_metadata: Debezium's `provide.transaction.metadata`: BEGIN and END of each
            transaction in a topic of their own, and in envelopes the change's position in the transaction.
        include_schema_changes: Debezium's `include.schema.changes`: changed table schemas in a topic.
        skipped_operations: Debezium's `skipped.operations`: of c, u, d and t (TRUNCATE), those that are left
            out; or none.
        heartbeat_interval_ms: time between heartbeats in a topic of their own; 0: none.
        topic_partitions: partitions of a new topic; -1: the brokers' default.
        topic_replication: replicas of a new topic; -1: the brokers' default.
        topic_config: settings of a new topic, e.g. `cleanup.policy`.
        properties: settings of librdkafka, e.g. `security.protocol`; secrets as references.
        outbox: tables whose inserted rows are messages: Debezium's transform EventRouter.
        message_key_columns: Debezium's `message.key.columns`: `TABLE:COLUMN,COLUMN;TABLE:COLUMN`.
        partition_by: columns of message keys that decide the partition, likewise.
        topic_by: a column of message keys whose value is part of the topic's name, likewise.
        topic_by_value: whether this value ends the topic's name, or is the name.
        topic_regex: a pattern of the names of tables' topics, in Java's syntax: those that it matches get the
            name `topic_replacement`, as by Debezium's transform ByLogicalTableRouter.
        topic_replacement: that name, with `$1` or `${name}` for groups.
        key_enforce_uniqueness: whether the keys of these tables have a field that tells the tables apart.
        key_field_name: its name.
        key_field_regex: a pattern of the name of the topic that a table would have, which is the default.
        key_field_replacement: what the field has where the pattern matches.
        headers: headers that each message of a change has, with their text.

    Raises:
        ConfigError: an address holds a user, a format lacks its registry, or a value is not allowed.
    """

    type: ClassVar[str] = "kafka"
    extra: ClassVar[str | None] = "kafka"
    bootstrap_servers: str
    topic_prefix: str
    value_format: ValueEncoding = ValueEncoding.DEBEZIUM_JSON
    key_format: KeyEncoding | None = None
    schema_registry_url: str | None = None
    schema_registry_user: str | None = None
    schema_registry_password: Secret | None = None
    schema_registry_token: Secret | None = None
    schema_registry_ca: str | None = None
    schema_registry_register: bool = True
    subject_names: SubjectNames = SubjectNames.TOPIC
    delete_tombstone_handling_mode: DeleteHandling = DeleteHandling.TOMBSTONE
    add_fields: tuple[str, ...] = ()
    add_fields_prefix: str = "__"
    add_headers: tuple[str, ...] = ()
    add_headers_prefix: str = "__"
    extension_attributes_enable: bool = True
    schemas_enable: bool = False
    tombstones: bool = True
    extended_headers_enabled: bool = False
    delivery: KafkaDelivery = KafkaDelivery.EXACTLY_ONCE
    parallelism: int | None = None
    on_refused_row: RefusedRow = RefusedRow.FAIL
    max_quarantined: int = MOST_QUARANTINED
    provide_transaction_metadata: bool = False
    include_schema_changes: bool = False
    skipped_operations: tuple[str, ...] = ("t",)
    heartbeat_interval_ms: int = 0
    topic_partitions: int = -1
    topic_replication: int = -1
    topic_config: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    outbox: OutboxSettings | None = None
    message_key_columns: str = ""
    partition_by: str = ""
    topic_by: str = ""
    topic_by_value: TopicByValue = TopicByValue.SUFFIX
    topic_regex: str | None = None
    topic_replacement: str | None = None
    key_enforce_uniqueness: bool = True
    key_field_name: str = "__dbz__physicalTableIdentifier"
    key_field_regex: str | None = None
    key_field_replacement: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bootstrap_servers", "schema_registry_url"):
            if "@" in (getattr(self, name) or ""):
                raise ConfigError(
                    f"`sink.{name.replace('_', '-')}` is wrong",
                    "an address holds no user and no password",
                    "use `schema-registry-user` and `schema-registry-password`"
                    if name == "schema_registry_url"
                    else "use `properties`: {sasl.username: ..., sasl.password: ...}",
                    code="TR-1013",
                )
        needs = {self.value_format.value, self.key_encoding.value} & {"avro", "protobuf", "flat-avro"}
        if needs and self.schema_registry_url is None:
            raise ConfigError(
                "`sink.schema-registry-url` is missing",
                f"{' and '.join(sorted(needs))} need a registry",
                code="TR-1006",
            )
        self.check_modes()
        check_positive(self, "parallelism", "max_quarantined")
        self._check_skipped()
        self._check_flat()
        if not self.extension_attributes_enable and self.value_format is not ValueEncoding.CLOUDEVENTS:
            raise ConfigError(
                "`sink.extension-attributes-enable` has no meaning here",
                f"found `value-format: {self.value_format.value}`, needed cloudevents",
                "remove the setting",
                code="TR-1011",
            )
        self.key_columns, self.partition_columns  # noqa: B018 - checked
        if self.topic_columns is not None and "t" not in self.skipped_operations:
            raise ConfigError(
                "`sink.skipped-operations` must have `t` with `topic-by`",
                "a TRUNCATE has no row to name its topic",
                "add `t`",
                code="TR-1010",
            )
        if self.topic_columns is None and self.topic_by_value is TopicByValue.TOPIC:
            raise ConfigError(
                "`sink.topic-by-value` has no meaning here",
                "`topic-by` names no column",
                "set `topic-by`, or remove `topic-by-value`",
                code="TR-1011",
            )
        self._check_routing()
        self._check_headers()

    def _check_routing(self) -> None:
        for one, other in (
            ("topic-regex", "topic-replacement"),
            ("key-field-regex", "key-field-replacement"),
        ):
            given = [name for name in (one, other) if getattr(self, name.replace("-", "_")) is not None]
            if len(given) == 1:
                raise ConfigError(
                    f"`sink.{given[0]}` needs `{other if given[0] == one else one}`",
                    "a pattern and what replaces a name belong together",
                    f"set `{one}` and `{other}`",
                    code="TR-1006",
                )
        of_key = ("key_enforce_uniqueness", "key_field_name", "key_field_regex")
        changed = [name for name in of_key if getattr(self, name) != getattr(KafkaSettings, name)]
        if changed and (self.topic_regex is None or (not self.key_enforce_uniqueness and len(changed) > 1)):
            raise ConfigError(
                f"`sink.{changed[-1].replace('_', '-')}` has no meaning here",
                "keys get a field where `topic-regex` replaces topics, if `key-enforce-uniqueness` is true",
                "remove the setting",
                code="TR-1011",
            )
        self.topic_routing, self.key_routing  # noqa: B018 - checked

    def _check_skipped(self) -> None:
        given = self.skipped_operations
        for letter in given:
            if letter not in SKIPPABLE or (letter == "none" and len(given) > 1):
                raise ConfigError(
                    f"unknown value {shown(letter)} at `sink.skipped-operations`",
                    f"found {', '.join(given)}; allowed: of c, u, d and t, or none alone",
                    "skipped-operations: t leaves out TRUNCATE; none: nothing",
                    code="TR-1008",
                )
        if "t" not in given and (self.value_format is ValueEncoding.CANAL_JSON or self.value_format.is_flat):
            raise ConfigError(
                f"`sink.skipped-operations` must have `t` with `value-format: {self.value_format.value}`",
                "messages of TRUNCATE are Debezium's",
                "add `t`, or set value-format: debezium-json",
                code="TR-1010",
            )

    def _check_headers(self) -> None:
        for name, text in self.headers.items():
            if not name or name.startswith(("__debezium.", "__tailrace.")) or "\0" in name:
                raise ConfigError(
                    "a name is not allowed at `sink.headers`",
                    f"found {shown(name)}; those that begin with `__debezium.` or `__tailrace.` say what the "
                    "message is",
                    code="TR-1010",
                )
            if "${" in text:
                raise ConfigError(
                    f"the value of {shown(name)} is a reference at `sink.headers`",
                    "headers are constant text, which every consumer reads",
                    "write the text itself",
                    code="TR-1010",
                )

    def _check_flat(self) -> None:
        if not self.value_format.is_flat:
            for field_name in _OF_FLAT_ROWS:
                if getattr(self, field_name) != getattr(KafkaSettings, field_name):
                    name = field_name.replace("_", "-")
                    raise ConfigError(
                        f"`sink.{name}` has no meaning here",
                        f"found `value-format: {self.value_format.value}`, needed flat-json or flat-avro",
                        f"set value-format: flat-json, or remove `{name}`",
                        code="TR-1011",
                    )
            return
        if not self.tombstones:
            raise ConfigError(
                f"`sink.tombstones` must be true with `value-format: {self.value_format.value}`",
                "`delete-tombstone-handling-mode` says what a delete becomes",
                "delete-tombstone-handling-mode: rewrite; or drop to leave deletes out",
                code="TR-1010",
            )
        names = [field.name for field in self.fields_to_add]
        deletes = self.delete_tombstone_handling_mode
        if DELETED in names and deletes in (DeleteHandling.REWRITE, DeleteHandling.REWRITE_WITH_TOMBSTONE):
            raise ConfigError(
                f"an item of `sink.add-fields` gets the name `{DELETED}`",
                "`delete-tombstone-handling-mode` adds a field of this name",
                "name the item differently: FIELD:NAME",
                code="TR-1010",
            )
        for added in self.fields_in_headers:
            if added.name in self.headers or added.name.startswith(("__debezium.", "__tailrace.")):
                raise ConfigError(
                    f"an item of `sink.add-headers` gets the name {shown(added.name)}",
                    "another header has it",
                    "name the item differently: FIELD:NAME",
                    code="TR-1010",
                )
        shown_fields = (*self.fields_to_add, *self.fields_in_headers)
        needs_order = any(field.struct == "transaction" for field in shown_fields)
        if needs_order and not self.provide_transaction_metadata:
            raise ConfigError(
                "`sink.provide-transaction-metadata` must be true here",
                "`add-fields` or `add-headers` names fields of `transaction`, which are null without it",
                "provide-transaction-metadata: true",
                code="TR-1010",
            )

    @property
    def key_columns(self) -> TableColumns | None:
        """The columns of `message_key_columns`."""
        return TableColumns.parse(self.message_key_columns, "message-key-columns")

    @property
    def partition_columns(self) -> TableColumns | None:
        """The columns of `partition_by`."""
        return TableColumns.parse(self.partition_by, "partition-by")

    @property
    def topic_columns(self) -> TableColumns | None:
        """The columns of `topic_by`."""
        return TableColumns.parse(self.topic_by, "topic-by")

    @property
    def topic_routing(self) -> Replacement | None:
        """What replaces the names of tables' topics."""
        if self.topic_regex is None or self.topic_replacement is None:
            return None
        settings = ("sink.topic-regex", "sink.topic-replacement")
        return Replacement(self.topic_regex, self.topic_replacement, settings)

    @property
    def key_routing(self) -> Replacement | None:
        """What makes the value of the field that keys get; None: it is the name of the topic."""
        if self.key_field_regex is None or self.key_field_replacement is None:
            return None
        settings = ("sink.key-field-regex", "sink.key-field-replacement")
        return Replacement(self.key_field_regex, self.key_field_replacement, settings)

    @property
    def fields_to_add(self) -> tuple[AddedField, ...]:
        """The fields of `add_fields`."""
        return added_fields(self.add_fields, self.add_fields_prefix)

    @property
    def fields_in_headers(self) -> tuple[AddedField, ...]:
        """The fields of `add_headers`."""
        return added_fields(self.add_headers, self.add_headers_prefix, "add-headers")

    @property
    def skipped_letters(self) -> tuple[str, ...]:
        """The letters of the operations that are left out."""
        skipped = [letter for letter in self.skipped_operations if letter != "none"]
        drops = self.delete_tombstone_handling_mode is DeleteHandling.DROP and "d" not in skipped
        return tuple([*skipped, "d"] if drops else skipped)

    @property
    def carries_schemas(self) -> bool:
        """Whether messages carry the schema of their table, or its id."""
        return self.schemas_enable or self.schema_registry_url is not None

    @property
    def key_encoding(self) -> KeyEncoding:
        """How keys are encoded."""
        if self.key_format is not None:
            return self.key_format
        match self.value_format:
            case ValueEncoding.AVRO | ValueEncoding.FLAT_AVRO:
                return KeyEncoding.AVRO
            case ValueEncoding.PROTOBUF:
                return KeyEncoding.PROTOBUF
        return KeyEncoding.JSON
