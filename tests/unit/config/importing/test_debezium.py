"""A connector's configuration becomes a pipeline that loads, does the same, and says what it does not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.config.importing import debezium, debezium_offsets
from tailrace.config.importing.debezium_properties import PROPERTIES, Fate, known
from tailrace.config.importing.draft import Draft
from tailrace.config.importing.given import properties
from tailrace.config.kafka import DeleteHandling, KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.kafka.names import topics_of
from tailrace.sinks.route import Router

FILES = Path(__file__).parent / "files"
ROOT = Path(__file__).parents[4]
MYSQL = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "database.hostname": "db.example.com",
    "database.port": "3306",
    "database.user": "debezium",
    "database.password": "not-to-be-seen",
    "database.server.id": "184054",
    "topic.prefix": "shop",
    "table.include.list": "shop.orders,shop.customers",
    "schema.history.internal.kafka.bootstrap.servers": "broker:9092",
    "schema.history.internal.kafka.topic": "schema-changes.shop",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db.example.com",
    "database.user": "debezium",
    "database.password": "not-to-be-seen",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "plugin.name": "pgoutput",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
}
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
AVRO = {
    f"{side}.converter{name}": value
    for side in ("key", "value")
    for name, value in (
        ("", "io.confluent.connect.avro.AvroConverter"),
        (".schema.registry.url", "https://registry:8081"),
        (".basic.auth.credentials.source", "USER_INFO"),
        (".basic.auth.user.info", "reader:not-to-be-seen"),
    )
}


def imported(given: dict[str, str | None], **more: str | None) -> tuple[Pipeline, KafkaSettings, Draft]:
    values = {name: value for name, value in {**given, **more}.items() if value is not None}
    made = debezium.draft(debezium.read(json.dumps({"name": "shop-connector", "config": values}), "file"))
    text = made.text("test")
    assert "not-to-be-seen" not in text
    pipeline = parse_pipeline(text)
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    return pipeline, sink, made


def missing(made: Draft) -> set[str]:
    return {note.name for note in made.missing}


def needless(made: Draft) -> set[str]:
    return {note.name for note in made.needless}


def test_connector_of_mysql_is_taken_over_with_the_defaults_of_debezium() -> None:
    pipeline, sink, made = imported(MYSQL)
    source = pipeline.source
    assert (source.dialect, source.host, source.port) == ("mysql", "db.example.com", 3306)
    assert (source.user, source.password.text) == ("debezium", "${env:DATABASE_PASSWORD}")
    assert (source.server_id, source.starting_position) == (184054, "initial")
    assert [source.matches(name) for name in ("shop.orders", "SHOP.Orders", "shop.x")] == [True, True, False]
    assert (sink.bootstrap_servers, sink.topic_prefix) == ("broker:9092", "shop")
    assert (sink.value_format, sink.schemas_enable) == (ValueEncoding.DEBEZIUM_JSON, False)
    assert (sink.enable_time_adjuster, sink.include_schema_changes) == (True, True)
    assert (sink.extended_headers_enabled, sink.tombstones) == (True, True)
    assert pipeline.settings.name == "shop-connector"
    assert missing(made) == set()
    assert needless(made) == {"tasks.max", "schema.history.internal.kafka.topic"}
    made.require_complete()


def test_connector_of_postgresql_is_taken_over_with_the_defaults_of_debezium() -> None:
    pipeline, sink, made = imported(POSTGRES)
    source = pipeline.source
    assert (source.dialect, source.database) == ("postgresql", "shop")
    assert (source.slot, source.publication) == ("debezium", "dbz_publication")
    assert source.message_prefix_include_list == (".*",)
    assert (sink.schemas_enable, sink.include_schema_changes, sink.enable_time_adjuster) == (
        True,
        False,
        False,
    )
    assert sink.bootstrap_servers == "broker.invalid:9092"
    assert "sink.bootstrap-servers" in {note.name for note in made.to_set}
    assert missing(made) == {"time.precision.mode"}, "adaptive is PostgreSQL's default there, and not here"


def test_messages_have_the_modes_and_encodings_of_the_connector() -> None:
    _, sink, made = imported(
        MYSQL,
        **AVRO,
        **{
            "decimal.handling.mode": "string",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "base64",
            "time.precision.mode": "connect",
            "enable.time.adjuster": "false",
            "tombstones.on.delete": "false",
            "skipped.operations": "none",
            "provide.transaction.metadata": "true",
            "include.schema.changes": "false",
            "extended.headers.enabled": "false",
            "key.converter.schemas.enable": None,
            "value.converter.schemas.enable": None,
            "value.converter.auto.register.schemas": "false",
        },
    )
    assert (sink.value_format, sink.key_encoding.value) == (ValueEncoding.AVRO, "avro")
    assert sink.schema_registry_url == "https://registry:8081"
    assert sink.schema_registry_user == "reader"
    assert sink.schema_registry_password is not None
    assert sink.schema_registry_password.text == "${env:SCHEMA_REGISTRY_PASSWORD}"
    assert not sink.schema_registry_register
    assert (sink.decimal_handling_mode, sink.bigint_unsigned_handling_mode) == ("string", "precise")
    assert (sink.binary_handling_mode, sink.time_precision_mode) == ("base64", "connect")
    assert (sink.enable_time_adjuster, sink.tombstones, sink.skipped_letters) == (False, False, ())
    assert (sink.provide_transaction_metadata, sink.include_schema_changes) == (True, False)
    assert not sink.extended_headers_enabled
    assert missing(made) == set()


def test_settings_of_tables_columns_and_sessions_are_taken_over() -> None:
    pipeline, _, made = imported(
        MYSQL,
        **{
            "table.include.list": None,
            "database.include.list": "shop,shop_[0-9]{1\\,2}",
            "table.exclude.list": "shop\\.tmp_.*",
            "column.exclude.list": "shop.customers.pin,.*secret",
            "skip.messages.without.change": "true",
            "database.ssl.mode": "verify_identity",
            "database.ssl.truststore": "/etc/trust.jks",
            "database.ssl.truststore.password": "not-to-be-seen",
            "database.initial.statements": "SET ROLE reader; SET sql_select_limit = 3",
            "snapshot.max.threads": "4",
            "snapshot.fetch.size": "2000",
        },
    )
    source = pipeline.source
    captured = ("shop.t", "shop_12.t", "shop_123.t", "other.t", "shop.tmp_1")
    assert [source.captures(name) for name in captured] == [True, True, False, False, False]
    assert source.column_exclude_list == ("shop.customers.pin", r"(?=.*\..*\.).*secret")
    assert source.skip_messages_without_change
    assert (source.tls.mode, source.tls.ca) == ("verify-identity", "/etc/trust.jks.tls-ca.pem")
    assert source.database_initial_statements == ("SET ROLE reader",)
    assert source.snapshot_parallelism == 4
    assert missing(made) == {"database.initial.statements"}
    assert "snapshot.fetch.size" in needless(made)


def test_masks_of_columns_are_those_of_the_source() -> None:
    pipeline, _, made = imported(
        MYSQL,
        **{
            "column.mask.hash.v2.SHA-256.with.salt.not-to-be-seen": "shop.customers.email,.*\\.mail",
            "column.mask.hash.MD5.with.salt.not-to-be-seen": "shop.customers.name",
            "column.mask.hash.v2.SHA-256.with.salt.not-to-be-seen-2": "shop\\.customers\\.iban",
            "column.mask.hash.MD2.with.salt.not-to-be-seen": "shop\\.customers\\.old",
            "column.mask.with.3.chars": "shop.customers.phone",
            "column.truncate.to.20.chars": "shop.orders.note,.*\\.remark",
        },
    )
    source = pipeline.source
    assert [(mask.name, mask.patterns) for mask in source.column_masks] == [
        ("column.truncate.to.20.chars", ("shop.orders.note", ".*\\.remark")),
        ("column.mask.with.3.chars", ("shop.customers.phone",)),
        ("column.mask.hash.MD5", ("shop.customers.name",)),
        ("column.mask.hash.v2.SHA-256", ("shop.customers.email", ".*\\.mail")),
    ]
    assert source.column_mask_salt.text == "${env:MASK_SALT}"
    assert source.column_exclude_list == ("shop\\.customers\\.iban", "shop\\.customers\\.old")
    assert missing(made) == {
        "column.mask.hash.v2.SHA-256.with.salt.***",  # a second salt
        "column.mask.hash.MD2.with.salt.***",
    }


def test_column_with_a_mask_that_is_not_known_is_left_out() -> None:
    pipeline, _, made = imported(
        MYSQL, **{"column.mask.hash.v3.SHA-256.with.salt.not-to-be-seen": "shop.t.a,.*\\.b"}
    )
    assert pipeline.source.column_exclude_list == ("shop.t.a", r".*\.b")
    assert missing(made) == {"column.mask.hash.v3.SHA-256.with.salt.***"}


def test_column_that_cannot_be_masked_is_never_in_clear() -> None:
    with pytest.raises(ConfigError) as error:
        imported(
            MYSQL,
            **{"column.include.list": "shop.customers.(id|email)", "column.mask.in.3.chars": ".*\\.email"},
        )
    assert error.value.code == "TR-1352"


@pytest.mark.parametrize(
    ("regex", "replacement", "topic"),
    [
        ("shop\\.shop\\.(.*)", "shop.$1", "shop.orders"),
        ("(?<a>[^.]+)\\.([^.]+)\\.([^.]+)", "${a}-$3", "shop-orders"),
        ("shop\\.other", "x", "shop.shop.orders"),
    ],
)
def test_router_of_topics_is_taken_over(regex: str, replacement: str, topic: str) -> None:
    settings = {"type": ROUTER, "regex": regex, "replacement": replacement}
    _, sink, made = imported(
        MYSQL, transforms="r", **{f"transforms.r.{name}": value for name, value in settings.items()}
    )
    topics = topics_of(sink, Router(()), messages=False)
    assert topics.topic(TableId("shop", "orders")) == topic
    assert (sink.key_enforce_uniqueness, missing(made)) == (False, set())


def test_topics_of_no_table_keep_their_names() -> None:
    _, _, made = imported(
        MYSQL,
        **{
            "transforms": "r",
            "transforms.r.type": ROUTER,
            "transforms.r.regex": "(.*)",
            "transforms.r.replacement": "x.$1",
        },
    )
    assert missing(made) == {"transforms.r"}


@pytest.mark.parametrize("given", [{}, {"key.enforce.uniqueness": "false"}, {"key.field.name": "table"}])
def test_router_of_logical_tables_brings_shards_together(given: dict[str, str]) -> None:
    _, sink, made = imported(
        MYSQL,
        **{
            "transforms": "r",
            "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
            "transforms.r.topic.regex": "shop\\.shop\\.orders_\\d+",
            "transforms.r.topic.replacement": "shop.orders",
            **{f"transforms.r.{name}": value for name, value in given.items()},
        },
    )
    topics = topics_of(sink, Router(()), messages=False)
    table = TableId("shop", "orders_7")
    assert topics.topic(table) == "shop.orders"
    name = given.get("key.field.name", "__dbz__physicalTableIdentifier")
    field = None if "key.enforce.uniqueness" in given else (name, "shop.shop.orders_7")
    assert (topics.key_field(table), missing(made)) == (field, set())


def test_outbox_is_taken_over() -> None:
    given = {
        "transforms": "o",
        "transforms.o.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.o.table.fields.additional.placement": "type:header:eventType,part:partition",
        "transforms.o.table.expand.json.payload": "true",
        "transforms.o.table.field.event.schema.version": "version",
        "transforms.o.route.topic.replacement": "events.${routedByValue}",
        "transforms.o.tracing.operation.name": "x",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    _, sink, made = imported(MYSQL, **given)
    outbox = sink.outbox
    assert outbox is not None
    assert (outbox.tables, outbox.topic("a")) == ((".*",), "events.a")
    assert outbox.table_fields_additional_placement == ("type:header:eventType", "part:partition")
    assert (outbox.table_expand_json_payload, outbox.table_json_payload_null_behavior.value) == (
        True,
        "ignore",
    )
    assert (outbox.key_converter.value, outbox.has_json_values) == ("string", True)
    assert missing(made) == {"transforms.o.tracing.operation.name"}
    assert "transforms.o.table.field.event.schema.version" in needless(made)
    names = {
        "transforms.o.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    }
    _, sink, made = imported(MYSQL, **given, **names)
    assert "sink.outbox.tables" in {note.name for note in made.to_set}


@pytest.mark.parametrize(
    ("settings", "handling", "skipped"),
    [
        ({}, DeleteHandling.TOMBSTONE, ("t",)),
        ({"tombstones.on.delete": "false"}, DeleteHandling.TOMBSTONE, ("t",)),
        ({"transforms.unwrap.delete.tombstone.handling.mode": "drop"}, DeleteHandling.DROP, ("t",)),
        ({"transforms.unwrap.drop.tombstones": "true"}, DeleteHandling.DROP, ("t",)),
        ({"transforms.unwrap.drop.tombstones": "false"}, DeleteHandling.TOMBSTONE, ("t",)),
        (
            {"transforms.unwrap.drop.tombstones": "false", "tombstones.on.delete": "false"},
            DeleteHandling.DROP,
            ("t",),
        ),
        ({"transforms.unwrap.delete.tombstone.handling.mode": "rewrite"}, DeleteHandling.REWRITE, ("t",)),
        (
            {
                "transforms.unwrap.drop.tombstones": "false",
                "transforms.unwrap.delete.handling.mode": "rewrite",
                "transforms.unwrap.add.fields": "op,source.ts_ms:changed_at",
            },
            DeleteHandling.REWRITE_WITH_TOMBSTONE,
            ("t",),
        ),
    ],
)
def test_flat_rows_are_those_of_the_transform(
    settings: dict[str, str], handling: DeleteHandling, skipped: tuple[str, ...]
) -> None:
    _, sink, made = imported(MYSQL, **UNWRAP, **settings)
    assert (sink.value_format, sink.delete_tombstone_handling_mode) == (ValueEncoding.FLAT_JSON, handling)
    assert sink.skipped_operations == skipped
    assert sink.add_fields == (
        ("op", "source.ts_ms:changed_at") if "transforms.unwrap.add.fields" in settings else ()
    )
    assert missing(made) == set()


def test_flat_rows_have_the_schemas_of_their_converter() -> None:
    _, sink, made = imported(MYSQL, **UNWRAP, **AVRO)
    assert (sink.value_format, sink.key_encoding.value, missing(made)) == (
        ValueEncoding.FLAT_AVRO,
        "avro",
        set(),
    )
    _, sink, made = imported(MYSQL, **UNWRAP, **{"value.converter.schemas.enable": "true"})
    assert (sink.value_format, sink.schemas_enable) == (ValueEncoding.FLAT_JSON, True)
    protobuf = {"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"}
    _, sink, made = imported(MYSQL, **{**UNWRAP, **AVRO, **protobuf})
    assert (sink.value_format, missing(made)) == (ValueEncoding.PROTOBUF, {"transforms.unwrap"})


def test_cloudevents_are_those_of_the_converter() -> None:
    given = {
        "value.converter": "io.debezium.converters.CloudEventsConverter",
        "value.converter.schemas.enable": None,
        "value.converter.json.schemas.enable": "false",
        "value.converter.extension.attributes.enable": "false",
        "value.converter.metadata.source": "value,id:generate,type:generate,traceparent:header",
        "value.converter.schema.cloudevents.name": "events",
    }
    _, sink, made = imported(MYSQL, **given)
    assert (sink.value_format, sink.key_encoding.value) == (ValueEncoding.CLOUDEVENTS, "json")
    assert (sink.schemas_enable, sink.extension_attributes_enable) == (False, False)
    assert (missing(made), "value.converter.schema.cloudevents.name" in needless(made)) == (set(), True)
    avro = {
        "value.converter.data.serializer.type": "avro",
        "value.converter.avro.schema.registry.url": "http://r",
    }
    _, sink, made = imported(MYSQL, **{**given, **avro, "value.converter.metadata.source": "header"})
    assert missing(made) == {*avro, "value.converter.metadata.source"}


def test_other_settings_of_flat_rows_are_those_of_the_transform() -> None:
    given = {
        "transforms.unwrap.add.fields": "before.name:old",
        "transforms.unwrap.add.headers": "op,total_order",
        "transforms.unwrap.add.headers.prefix": "_",
        "transforms.unwrap.route.by.field": "region",
        "transforms.unwrap.drop.fields.header.name": "unchanged",
        "transforms.unwrap.drop.fields.from.key": "true",
    }
    _, sink, made = imported(MYSQL, **UNWRAP, **given)
    assert (sink.add_fields, sink.add_headers) == (("before.name:old",), ("op", "total_order"))
    assert (sink.add_headers_prefix, sink.provide_transaction_metadata) == ("_", True)
    assert (sink.topic_by, sink.topic_by_value.value) == (".*:region", "topic")
    assert missing(made) == {"transforms.unwrap.drop.fields.header.name"}


def test_fields_that_transforms_take_out_or_blank_are_left_out() -> None:
    pipeline, _, made = imported(
        MYSQL,
        **{
            **UNWRAP,
            "transforms": "unwrap,drop,blank,only",
            "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.drop.exclude": "pin",
            "transforms.blank.type": "org.apache.kafka.connect.transforms.MaskField$Value",
            "transforms.blank.fields": "iban",
            "transforms.blank.predicate": "some",
            "transforms.only.type": "io.debezium.transforms.Filter",
            "transforms.only.condition": "value.op == 'c'",
            "predicates": "some",
            "predicates.some.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        },
    )
    assert pipeline.source.column_exclude_list == ("[^.]+\\.[^.]+\\.(pin)", "[^.]+\\.[^.]+\\.(iban)")
    assert missing(made) == {"transforms.blank", "transforms.only"}


@pytest.mark.parametrize(
    ("mode", "start", "lost"),
    [
        ("initial_only", "snapshot", "fail"),
        ("no_data", "latest", "fail"),
        ("never", "earliest", "fail"),
        ("when_needed", "initial", "refresh"),
    ],
)
def test_mode_of_the_snapshot_is_the_start(mode: str, start: str, lost: str) -> None:
    pipeline, _, made = imported(MYSQL, **{"snapshot.mode": mode})
    assert (pipeline.source.starting_position, pipeline.source.on_position_lost) == (start, lost)
    assert missing(made) == set()


def test_statement_that_is_no_condition_has_no_equivalent() -> None:
    name = "snapshot.select.statement.overrides"
    given = {
        name: "shop.orders,shop.Items,shop.none",
        f"{name}.shop.orders": "SELECT id FROM shop.orders",
        f"{name}.shop.items": "SELECT * FROM shop.items WHERE id > 7",
    }
    pipeline, _, made = imported(MYSQL, **given)
    assert [(o.table, o.where) for o in pipeline.source.snapshot_overrides] == [("shop.items", "id > 7")]
    assert missing(made) == {f"{name}.shop.orders", f"{name}.shop.none"}


def test_signals_notifications_and_heartbeats_are_those_of_enabled_channels() -> None:
    given = {
        "signal.data.collection": "shop.signals",
        "signal.kafka.topic": "commands",
        "signal.kafka.bootstrap.servers": "other:9092",
        "signal.consumer.security.protocol": "SASL_SSL",
        "signal.consumer.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="reader" password="not-to-be-seen";',
        "notification.enabled.channels": "log,sink",
        "notification.sink.topic.name": "news",
        "heartbeat.interval.ms": "5000",
        "heartbeat.action.query": "INSERT INTO shop.beat VALUES (NOW())",
    }
    pipeline, sink, made = imported(MYSQL, **given, **{"signal.enabled.channels": "kafka"})
    assert (pipeline.signals.topic, pipeline.signals.bootstrap_servers) == ("commands", "other:9092")
    assert dict(pipeline.signals.properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "reader",
        "sasl.password": "${env:SIGNAL_KAFKA_PASSWORD}",
    }
    assert pipeline.source.signal_data_collection is None
    assert (pipeline.notifications.log, pipeline.notifications.topic) == (True, "news")
    assert (sink.heartbeat_interval_ms, pipeline.source.heartbeat_interval_ms) == (5000, 5000)
    assert "signal.data.collection" in needless(made)
    pipeline, _, made = imported(MYSQL, **given)  # `source` alone is enabled by default
    assert (pipeline.source.signal_data_collection, pipeline.signals.topic) == ("shop.signals", None)
    assert "signal.consumer.*" in needless(made)
    assert missing(made) == set()


def test_properties_that_are_not_there_are_named_with_the_reason() -> None:
    _, _, made = imported(
        MYSQL,
        **{
            "gtid.source.includes": "some-uuid",  # with a snapshot
            "snapshot.delay.ms": "0",
            "hstore.handling.mode": "map",
            "no.such.property": "x",
        },
    )
    assert missing(made) == {"gtid.source.includes", "hstore.handling.mode", "no.such.property"}
    assert "snapshot.delay.ms" in needless(made)
    with pytest.raises(ConfigError) as error:
        made.require_complete()
    assert error.value.code == "TR-1353"
    assert "hstore.handling.mode: " in str(error.value.detail)


def test_columns_of_keys_and_tables_with_a_snapshot_are_taken_over() -> None:
    pipeline, _, made = imported(
        MYSQL,
        **{
            "message.key.columns": r"shop\.orders:code;(.*).items:order_id,line",
            "snapshot.include.collection.list": "shop.orders,shop.items",
        },
    )
    assert missing(made) == set()
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    assert sink.key_columns is not None
    assert sink.key_columns.of("Shop.Orders") == {"code"}
    assert sink.key_columns.of("shop.items") == {"order_id", "line"}
    assert pipeline.source.snapshot_include_collection_list == ("shop.orders", "shop.items")


def test_file_of_debezium_server_is_taken_over() -> None:
    text = r"""
# Debezium Server
debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=broker:9092
debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer
debezium.sink.kafka.producer.compression.type = zstd
debezium.source.connector.class=io.debezium.connector.mariadb.MariaDbConnector
debezium.source.offset.storage.file.filename=data/offsets.dat
debezium.source.database.hostname: db.example.com
debezium.source.database.user=debezium
debezium.source.database.password=${DATABASE_PW}
debezium.source.topic.prefix=shop
debezium.source.table.include.list=shop\\.orders,\
    shop\\.customers
debezium.format.value=json
debezium.format.schemas.enable=false
quarkus.log.console.json=false
"""
    made = debezium.draft(debezium.read(text, "application"))
    pipeline = parse_pipeline(made.text("test"))
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSettings)
    assert (pipeline.source.dialect, sink.bootstrap_servers, sink.schemas_enable) == (
        "mariadb",
        "broker:9092",
        False,
    )
    assert dict(sink.properties) == {"compression.type": "zstd"}
    assert pipeline.source.tables == ("(?i)shop\\.orders", "(?i)shop\\.customers")
    assert pipeline.settings.name == "application"
    assert missing(made) == set()
    assert needless(made) == {
        "debezium.sink.kafka.producer.key.serializer",
        "debezium.source.offset.storage.file.filename",
        "quarkus.log.console.json",
    }


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"connector.class": "io.debezium.connector.oracle.OracleConnector"}, "TR-1352"),
        ({"database.hostname": None}, "TR-1351"),
        ({"database.hostname": "${file:/opt/secrets:host}"}, "TR-1351"),
        ({"database.port": "not-to-be-seen"}, "TR-1351"),
        ({"table.include.list": "shop\\.\\p{Alpha}+"}, "TR-1351"),
        ({"table.include.list": "shop.("}, "TR-1351"),
        ({"tombstones.on.delete": "not-to-be-seen"}, "TR-1351"),
    ],
)
def test_what_cannot_be_taken_over_is_an_error(changed: dict[str, str | None], code: str) -> None:
    with pytest.raises(ConfigError) as error:
        imported(MYSQL, **changed)
    assert error.value.code == code
    assert "not-to-be-seen" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"config": 3}', '{"a": {"b": 1}}', '{"a": 1}' + "}"])
def test_file_of_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "connector.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        CliRunner().invoke(cli, ["import", "debezium", str(file)], catch_exceptions=False)
    assert error.value.code in ("TR-1350", "TR-1351")


def test_command_prints_a_file_and_fails_if_it_is_to_be_strict(tmp_path: Path) -> None:
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({**MYSQL, "hstore.handling.mode": "map"}))
    done = CliRunner().invoke(cli, ["import", "debezium", str(file)], catch_exceptions=False)
    assert parse_pipeline(done.stdout).settings.name == "connector"
    assert "hstore.handling.mode" in done.stderr
    with pytest.raises(ConfigError) as error:
        CliRunner().invoke(cli, ["import", "debezium", str(file), "--strict"], catch_exceptions=False)
    assert error.value.code == "TR-1353"


def test_names_of_the_file_cannot_leave_a_comment(tmp_path: Path) -> None:
    pipeline, _, _ = imported(
        MYSQL, **{"x\nsink: {type: console}\u2028y\x85z": "1", "topic.creation.a\nb: c": "1"}
    )
    assert pipeline.sinks[0].type == "kafka"


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\n! no\n  b : 2 \\\n   3\nc\\ d  e\nf=\\u00e4\\t\\=\ng\nh\\==x\\\\\ni=last"
    assert properties(text) == {
        "a": "1",
        "b": "2 3",
        "c d": "e",
        "f": "ä\t=",
        "g": "",
        "h=": "x\\",
        "i": "last",
    }


# ---- offsets -------------------------------------------------------------------------------------------


def started(given: dict[str, str], offsets: Any, **more: str) -> tuple[str, Draft]:
    _, _, made = imported(given, **more)
    content = offsets if isinstance(offsets, bytes) else json.dumps(offsets).encode()
    debezium_offsets.start(made, content, "shop")
    return parse_pipeline(made.text("test")).source.starting_position, made


def of_connect(**offset: Any) -> dict[str, Any]:
    return {"offsets": [{"partition": {"server": "shop"}, "offset": offset}]}


@pytest.mark.parametrize(
    ("offset", "start"),
    [
        (
            {"file": "b.3", "pos": 154, "gtids": "3e11fa47:1-5,\n4e11fa47:1-2"},
            "gtid:3e11fa47:1-5,4e11fa47:1-2",
        ),
        ({"file": "b.3", "pos": 154, "gtids": None}, "file-at-or-before:b.3:154"),
        ({"file": "b.3", "pos": 154, "gtids": "a:1-5", "event": 2, "row": 7}, "gtid:a:1-5"),
        ({"file": "b.3", "pos": 154, "event": 2, "row": 7}, "file-at-or-before:b.3:154"),
        (
            {"file": "b.3", "pos": 154, "snapshot": "INITIAL", "snapshot_completed": "true"},
            "file-at-or-before:b.3:154",
        ),
        ({"file": "b.3", "pos": 154, "snapshot": True}, "initial"),
        ({"file": "b.3", "pos": 154, "snapshot": "INITIAL", "snapshot_completed": False}, "initial"),
    ],
)
def test_stream_begins_where_the_connector_of_mysql_stood(offset: dict[str, Any], start: str) -> None:
    found, made = started(MYSQL, of_connect(**offset))
    assert found == start
    assert ("2 events, 7 rows" in made.text("test")) == ("event" in offset)


def test_snapshots_that_were_not_finished_are_named() -> None:
    found, made = started(
        MYSQL, of_connect(gtids="a:1", snapshot="BLOCKING", incremental_snapshot_collections="[]")
    )
    assert (found, missing(made)) == ("gtid:a:1", {"blocking snapshot", "incremental snapshot"})


@pytest.mark.parametrize(
    ("offset", "start"),
    [
        ({"lsn_commit": 24023128, "lsn_proc": 24023200, "lsn": 24023200, "txId": 555}, "lsn:0/16E9058"),
        ({"lsn_commit": 5 << 32 | 255, "lsn_proc": 1, "lsn": 1}, "lsn:5/FF"),
        ({"lsn_proc": 24023128, "lsn": 24023200, "messageType": "INSERT"}, "lsn:0/16E9058"),
        ({"lsn": 24023128, "snapshot": "INITIAL", "last_snapshot_record": True}, "lsn:0/16E9058"),
        ({"lsn": 24023128, "snapshot": "INITIAL", "last_snapshot_record": False}, "initial"),
    ],
)
def test_stream_begins_where_the_connector_of_postgresql_stood(offset: dict[str, Any], start: str) -> None:
    assert started(POSTGRES, of_connect(**offset))[0] == start


def test_offset_is_read_from_the_file_of_debezium_server() -> None:
    content = (FILES / "debezium-server-offsets.dat").read_bytes()  # a java.util.HashMap, written by Java 17
    found, made = started(MYSQL, content)
    assert found == "file-at-or-before:binlog.000003:1547"
    assert "3 events, 2 rows" in made.text("test")
    with pytest.raises(ConfigError) as error:
        started(MYSQL, content[:-20])
    assert error.value.code == "TR-1350"


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ({"offsets": []}, "TR-1354"),
        ({"offsets": [{"partition": {"server": "other"}, "offset": {"file": "b.3", "pos": 4}}]}, "TR-1354"),
        (of_connect(), "TR-1354"),
        (of_connect(lsn=5), "TR-1354"),
        (of_connect(file="b.3", pos="x"), "TR-1354"),
        ({"offsets": 3}, "TR-1350"),
        ({"offsets": [{"offset": 3}]}, "TR-1350"),
        (b"\xff\xfe", "TR-1350"),
        (b"{", "TR-1350"),
    ],
)
def test_offset_that_is_none_is_an_error(offsets: Any, code: str) -> None:
    with pytest.raises(ConfigError) as error:
        started(MYSQL, offsets)
    assert error.value.code == code


def test_slot_of_another_plugin_cannot_be_continued() -> None:
    with pytest.raises(ConfigError) as error:
        started(POSTGRES, of_connect(lsn_commit=5), **{"plugin.name": "decoderbufs"})
    assert error.value.code == "TR-1354"


# ---- the list of properties ----------------------------------------------------------------------------


def test_list_of_properties_is_that_of_the_document() -> None:
    text = (ROOT / "docs/reference/debezium.md").read_text(encoding="utf-8")
    section = text.partition("## Connector properties")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [p.row for p in PROPERTIES]


def test_properties_are_known_by_name() -> None:
    assert all(known(name) is p for p in PROPERTIES for name in p.name.split(", ") if "*" not in name)
    assert known("column.truncate.to.20.chars") is not None
    assert known("topic.creation.default.partitions") is not None
    assert known("database.hostname2") is None


_VALUES_OF_SAME = {
    "name": "other",
    "topic.prefix": "other",
    "database.include.list": "shop",
    "database.exclude.list": "mysql",
    "schema.include.list": "public",
    "schema.exclude.list": "private",
    "table.exclude.list": "shop.x",
    "column.include.list": "shop.orders.id",
    "column.exclude.list": "shop.orders.note",
    "skip.messages.without.change": "true",
    "include.query": "true",
    "include.schema.comments": "true",
    "column.propagate.source.type": "shop.orders.id",
    "datatype.propagate.source.type": ".*\\.VARCHAR",
    "column.truncate.to.*length*.chars": "shop.orders.note",
    "column.mask.with.*length*.chars": "shop.orders.note",
    "message.key.columns": "shop.orders:id",
    "time.precision.mode": "isostring",
    "decimal.handling.mode": "string",
    "bigint.unsigned.handling.mode": "precise",
    "binary.handling.mode": "hex",
    "enable.time.adjuster": "true",
    "skipped.operations": "u",
    "include.schema.changes": "false",
    "provide.transaction.metadata": "true",
    "extended.headers.enabled": "false",
    "heartbeat.interval.ms": "1000",
    "heartbeat.action.query": "INSERT INTO shop.beat VALUES (1)",
    "message.prefix.include.list": "a",
    "message.prefix.exclude.list": "a",
    "signal.data.collection": "shop.signals",
    "snapshot.include.collection.list": "shop.orders",
    "database.initial.statements": "SET ROLE ALL",
    "snapshot.select.statement.overrides": "shop.orders",
    "gtid.source.includes": "3e11fa47-.*",
    "gtid.source.excludes": "3e11fa47-.*",
}


def test_each_property_that_is_the_same_is_taken_over() -> None:
    same = [p.name for p in PROPERTIES if p.fate is Fate.SAME]
    assert sorted(same) == sorted(_VALUES_OF_SAME)
    for name in same:
        own = POSTGRES if name.startswith(("schema.", "message.prefix.")) else MYSQL
        if "propagate" in name or name == "include.schema.comments":
            own = {**MYSQL, **{f"{side}.converter.schemas.enable": "true" for side in ("key", "value")}}
        if name.startswith("gtid.source"):
            own = {**MYSQL, "snapshot.mode": "no_data"}
        given = {name.replace("*length*", "7"): _VALUES_OF_SAME[name]}
        if name == "snapshot.select.statement.overrides":
            given[f"{name}.shop.orders"] = "SELECT * FROM shop.orders WHERE id > 7"
        if name == "heartbeat.action.query":
            given["heartbeat.interval.ms"] = "1000"
        _, _, before = imported(own)
        _, _, made = imported({**own, **given})
        new = {*missing(made), *needless(made)} - {*missing(before), *needless(before)}
        assert new == set(), name
        if name not in ("name", "enable.time.adjuster"):
            assert made.text("x") != before.text("x"), name


@pytest.mark.parametrize("hiding", ["column.exclude.list", "table.exclude.list", "column.mask.with.3.chars"])
def test_statements_are_not_taken_over_beside_what_they_would_give_away(hiding: str) -> None:
    _, _, made = imported(MYSQL, **{"include.query": "true", hiding: "shop.orders.note"})
    assert missing(made) == {"include.query"}
    _, _, made = imported(POSTGRES, **{"include.query": "true"})
    assert "include.query" in needless(made)


def test_what_schemas_say_of_columns_is_taken_over_where_there_are_schemas() -> None:
    given = {"include.schema.comments": "true", "column.propagate.source.type": "shop.orders.id,.*\\.note"}
    own = {**MYSQL, **AVRO}
    pipeline, _, made = imported(own, **given)
    assert pipeline.source.propagation.comments
    assert pipeline.source.column_propagate_source_type == ("shop.orders.id", r".*\.note")
    assert missing(made) - missing(imported(own)[2]) == set()
    assert given.keys() <= needless(imported(MYSQL, **given)[2])
    made = imported({**POSTGRES, **AVRO}, **given)[2]
    assert given.keys() & needless(made) == {"include.schema.comments"}
    assert "column.propagate.source.type" in made.source
