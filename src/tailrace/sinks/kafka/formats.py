"""The message format and the schema registry for the sink's settings."""

from __future__ import annotations

import uuid
from dataclasses import replace

from tailrace.config.kafka import (
    DeleteHandling,
    KafkaSettings,
    KeyEncoding,
    SubjectNames,
    TopicByValue,
    ValueEncoding,
)
from tailrace.formats.assemble import key_value_format
from tailrace.formats.base import MessageFormat
from tailrace.formats.connect.envelopes import Envelopes, SubjectStrategy
from tailrace.formats.connect.topics import TargetNames
from tailrace.formats.debezium.flattened import Flat
from tailrace.formats.debezium.headers import context_of
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox
from tailrace.formats.debezium.side_topics import SideStreams
from tailrace.sinks.kafka.division import Division
from tailrace.sinks.kafka.names import topics_of
from tailrace.sinks.kafka.schema_registry import RegistryAccess, SchemaRegistry
from tailrace.sinks.messages.formats import DebeziumJson, modes_of


def envelopes_of(settings: KafkaSettings, targets: TargetNames, connector: str, database: str) -> Envelopes:
    """The form of the messages.

    Args:
        settings: the sink's settings.
        targets: names the tables' targets.
        connector: Debezium's name of the source's kind.
        database: the source's database, where tables are in one (PostgreSQL).

    Raises:
        ConfigError: a setting is of another kind of source.
    """
    modes = modes_of(settings, connector)
    match settings.subject_names:
        case SubjectNames.TOPIC:
            subjects: SubjectStrategy = "TopicNameStrategy"
        case SubjectNames.RECORD:
            subjects = "RecordNameStrategy"
        case SubjectNames.TOPIC_RECORD:
            subjects = "TopicRecordNameStrategy"
    topics = topics_of(settings, targets, messages=connector == "postgresql")
    return Envelopes(topics, connector, modes=modes, subjects=subjects, database=database)


def message_format(settings: KafkaSettings, envelopes: Envelopes) -> MessageFormat:
    """The message format in `settings`.

    Raises:
        ConfigError: a field to be added is none of the source's kind.
    """
    schemas, context = settings.schemas_enable, None
    if settings.extended_headers_enabled:
        context = context_of(settings.topic_prefix, envelopes.connector, str(uuid.uuid4()))
    if settings.key_encoding is KeyEncoding.JSON and settings.value_format is ValueEncoding.DEBEZIUM_JSON:
        return DebeziumJson(DebeziumFormat(envelopes, schemas, context, settings.headers))
    return key_value_format(
        envelopes,
        settings.key_encoding.value,
        settings.value_format.value,
        schemas=schemas,
        tombstones=settings.tombstones,
        context=context,
        flat=_flat(settings),
        headers=settings.headers,
        extensions=settings.extension_attributes_enable,
    )


def _flat(settings: KafkaSettings) -> Flat:
    """What `flat-json` and `flat-avro` write."""
    deletes = settings.delete_tombstone_handling_mode
    return Flat(
        settings.fields_to_add,
        settings.fields_in_headers,
        has_rows_of_deletes=deletes in (DeleteHandling.REWRITE, DeleteHandling.REWRITE_WITH_TOMBSTONE),
        has_tombstones=deletes is DeleteHandling.REWRITE_WITH_TOMBSTONE,
    )


def division_of(settings: KafkaSettings, envelopes: Envelopes) -> Division:
    """What decides keys, partitions and writers."""
    keys, partitions = settings.key_columns, settings.partition_columns
    # partitions are by the columns of keys alone
    topics = replace(envelopes.topics, key=None)
    return Division(
        _outbox(settings, envelopes),
        keys,
        partitions,
        settings.topic_columns,
        DebeziumFormat(replace(envelopes, topics=topics)),
        topic_is_value=settings.topic_by_value is TopicByValue.TOPIC,
    )


def _outbox(settings: KafkaSettings, envelopes: Envelopes) -> Outbox | None:
    """What makes the messages of outbox tables, None without these."""
    if settings.outbox is None:
        return None
    context = None
    if settings.extended_headers_enabled:
        context = context_of(settings.topic_prefix, envelopes.connector, str(uuid.uuid4()))
    return Outbox(DebeziumFormat(envelopes, context=context, headers=settings.headers), settings.outbox)


def side_streams(settings: KafkaSettings, envelopes: Envelopes) -> SideStreams:
    """The messages of the side topics, encoded like keys."""
    return SideStreams(envelopes, settings.key_encoding.value, settings.schemas_enable)


def schema_registry(settings: KafkaSettings) -> SchemaRegistry | None:
    """The schema registry, None without one."""
    if settings.schema_registry_url is None:
        return None
    return SchemaRegistry(
        RegistryAccess(
            settings.schema_registry_url,
            settings.schema_registry_user,
            settings.schema_registry_password,
            settings.schema_registry_token,
            settings.schema_registry_ca,
            register=settings.schema_registry_register,
        )
    )
