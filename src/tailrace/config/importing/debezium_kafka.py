"""A connector's messages and topics, and the Kafka clients' settings: the section `sink`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tailrace.config.importing.debezium_transforms import Chain, transforms
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, listed
from tailrace.config.importing.patterns import any_case
from tailrace.errors import ConfigError

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_CLOUDEVENTS = "io.debezium.converters.CloudEventsConverter"
#: Converters, and the formats that they are here.
_CONVERTERS = {
    _JSON: "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    _CLOUDEVENTS: "cloudevents",
}
#: Debezium Server's formats, and Kafka Connect's converters.
_SERVER_FORMATS = {
    "json": _JSON,
    "jsonbytearray": _JSON,
    "avro": "io.confluent.connect.avro.AvroConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "cloudevents": _CLOUDEVENTS,
}
#: Formats of flat rows.
_FLAT = {"json": "flat-json", "avro": "flat-avro"}
#: Converters of events of outboxes, which write text and bytes as they are.
_TEXTS = (
    "org.apache.kafka.connect.storage.StringConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter",
    "io.debezium.converters.BinaryDataConverter",
)
#: Handling modes: settings of the sink by Debezium's names.
_MODES = (
    "decimal.handling.mode",
    "bigint.unsigned.handling.mode",
    "binary.handling.mode",
)
#: Java's clients and librdkafka have these by the same name and with the same meaning.
_SAME_IN_CLIENTS = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "compression.type",
    "client.dns.lookup",
)
_TUNING_OF_CLIENTS = (
    r"acks|retries|linger\.ms|batch\.size|buffer\.memory|max\.block\.ms|max\.in\.flight\..*|max\.request\.size|.*\.timeout\.ms"
    r"|.*\.backoff(\.max)?\.ms|enable\.idempotence|.*serializer|auto\.offset\.reset|.*\.max\.idle\.ms"
)
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|([^\s;]+))")


def of_connect(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Debezium Server's properties as Kafka Connect names them.

    Returns:
        The settings, and of each name that changed the one in the file.

    Raises:
        ConfigError: the server's sink is not Kafka.
    """
    kind = values.get("debezium.sink.type", "").strip()
    if kind != "kafka":
        raise ConfigError(
            "there is no pipeline for the sink of this Debezium Server",
            "`debezium.sink.type` is not `kafka`",
            "write a pipeline for one of the sinks here: docs/reference/pipeline.md",
            code="TR-1352",
        )
    found: dict[str, str] = {}
    names: dict[str, str] = {}

    def put(name: str, value: str, origin: str) -> None:
        found[name] = value
        names[name] = origin

    for side in ("key", "value"):
        for name, value in values.items():
            own, both = f"debezium.format.{side}", "debezium.format."
            if name == own:
                converter = _SERVER_FORMATS.get(value.strip().lower(), f"{value.strip()} of Debezium Server")
                put(f"{side}.converter", converter, name)
            elif name.startswith(f"{own}."):
                put(f"{side}.converter.{name[len(own) + 1 :]}", value, name)
            elif name.startswith(both) and name.split(".")[2] not in ("key", "value", "header"):
                found.setdefault(f"{side}.converter.{name[len(both) :]}", value)
        if f"debezium.format.{side}" not in values:
            put(f"{side}.converter", _JSON, f"debezium.format.{side}")
    for name, value in values.items():
        if name.startswith("debezium.source."):
            put(name.removeprefix("debezium.source."), value, name)
        elif name.startswith("debezium.sink.kafka.producer."):
            put("producer.override." + name.removeprefix("debezium.sink.kafka.producer."), value, name)
        elif name.startswith(("debezium.transforms", "debezium.predicates")):
            put(name.removeprefix("debezium."), value, name)
        elif not name.startswith(("debezium.format.", "debezium.sink.type")):
            put(name, value, name)
    return found, names


def sink(given: Given, made: Draft, dialect: str, bootstrap_servers: str | None) -> None:
    """Take what is about messages and topics into a draft.

    Args:
        given: the connector's settings.
        made: the draft.
        dialect: the database.
        bootstrap_servers: the brokers, if somebody has named them.

    Raises:
        ConfigError: a setting is wrong.
    """
    section = made.sink
    section["type"] = DraftEntry("kafka")
    prefix = given.needed("topic.prefix")
    producer = given.without("producer.override.")
    section["bootstrap-servers"] = _brokers(given, made, producer, bootstrap_servers)
    section["topic-prefix"] = DraftEntry(prefix, "topic.prefix")
    if (columns := given.take("message.key.columns")) is not None:
        section["message-key-columns"] = DraftEntry(_key_columns(columns), "message.key.columns")
    chain = transforms(given, made, prefix)
    has_tombstones = given.flag("tombstones.on.delete", default=True)
    _formats(given, made, chain, has_tombstones=has_tombstones)
    if chain.renames_topics and {"schemas-enable", "schema-registry-url"} & section.keys():
        made.miss(
            chain.renames_topics, "the names of schemas follow the topic; Debezium's stay those of tables"
        )
    _values(given, section, dialect, made)
    if (clients := client(producer, made, "producer.override.", "KAFKA_PASSWORD")) != {}:
        section["properties"] = DraftEntry(clients)
    _topics(given, made)
    if not has_tombstones and not chain.is_flat:
        section["tombstones"] = DraftEntry(value=False, origin="tombstones.on.delete")
    if given.flag("provide.transaction.metadata", default=False) or chain.needs_transactions:
        section["provide-transaction-metadata"] = DraftEntry(
            value=True, origin="provide.transaction.metadata"
        )
    skipped = listed(given.take("skipped.operations") or "t")
    if chain.is_flat and "t" not in skipped:
        made.miss("skipped.operations", "flat rows have no message of TRUNCATE")
        skipped = [letter for letter in skipped if letter != "none"] + ["t"]
    if skipped != ["t"]:
        section["skipped-operations"] = DraftEntry(skipped, "skipped.operations")
    if given.flag("include.schema.changes", default=True) and dialect != "postgresql":
        section["include-schema-changes"] = DraftEntry(
            value=True, origin="include.schema.changes", remark="true in Debezium by default"
        )
    if given.flag("extended.headers.enabled", default=True):
        section["extended-headers-enabled"] = DraftEntry(
            value=True,
            origin="extended.headers.enabled",
            remark="true in Debezium by default; costly: leave it out if nobody reads these headers",
        )


def _key_columns(text: str) -> str:
    """Debezium's `message.key.columns` in Python's syntax: its patterns match in any case."""
    items = [item.rpartition(":") for item in map(str.strip, text.split(";")) if item]
    return ";".join(f"{any_case(pattern)}:{columns}" for pattern, _, columns in items)


def _brokers(given: Given, made: Draft, producer: Given, named: str | None) -> DraftEntry:
    of_producer = producer.take("bootstrap.servers")
    if named is not None:
        return DraftEntry(named, "", "of --bootstrap-servers")
    if of_producer is not None:
        return DraftEntry(of_producer, producer.named("bootstrap.servers"))
    for name in ("schema.history.internal.kafka.bootstrap.servers", "signal.kafka.bootstrap.servers"):
        if name in given and (text := given.take(name)) is not None:
            if name.startswith("signal"):
                made.signals["bootstrap-servers"] = DraftEntry(text, name)
            made.must_set(
                "sink.bootstrap-servers", f"the brokers of `{name}`: are these those of the topics?"
            )
            made.must_set("sink.properties", "security settings of the Kafka Connect worker, if it has any")
            return DraftEntry(text, name)
    made.must_set(
        "sink.bootstrap-servers", "the brokers of the Kafka Connect worker, and its security settings"
    )
    return DraftEntry("broker.invalid:9092", "", "not in the connector's configuration")


def _formats(given: Given, made: Draft, chain: Chain, *, has_tombstones: bool) -> None:
    if chain.outbox:
        _events(given, made, chain)
        return
    key = _converter(given, made, "key")
    value = _converter(given, made, "value")
    section = made.sink
    has_schemas = {}
    for side, found in (("key", key), ("value", value)):
        if found == "json":
            has_schemas[side] = given.flag(f"{side}.converter.schemas.enable", default=True)
    if value == "cloudevents":
        has_schemas["value"] = given.flag("value.converter.json.schemas.enable", default=True)
        _cloudevents(given.without("value.converter."), made)
    registry = {"avro", "protobuf"} & {key, value}
    if registry:
        _registry(given, made, "value" if value in registry else "key")
    if chain.is_flat and value not in _FLAT:
        made.miss(
            chain.unwrap,
            f"flat rows are in JSON or Avro, not in {value}; messages have the envelope",
        )
        chain.give_up_flat()
    if chain.is_flat:
        section["value-format"] = DraftEntry(_FLAT[value], chain.unwrap)
        for name, entry in chain.settings(has_tombstones=has_tombstones).items():
            section[name] = entry
        if key != value:
            section["key-format"] = DraftEntry(key, "key.converter")
    else:
        section["value-format"] = DraftEntry("debezium-json" if value == "json" else value, "value.converter")
        if key != value.replace("cloudevents", "json"):
            section["key-format"] = DraftEntry(key, "key.converter")
    if len(set(has_schemas.values())) > 1:
        made.miss("key.converter.schemas.enable", "keys have schemas where values have them")
    if has_schemas.get("value", has_schemas.get("key", False)):
        section["schemas-enable"] = DraftEntry(
            value=True, origin="value.converter.schemas.enable", remark="true in Kafka Connect by default"
        )


def _events(given: Given, made: Draft, chain: Chain) -> None:
    """Converters of events of outboxes: the connector has no other tables."""
    for side in ("key", "value"):
        name = f"{side}.converter"
        found = given.take(name)
        if found == _JSON:
            chain.outbox[f"{side}-converter"] = DraftEntry("json", name)
            if given.flag(f"{name}.schemas.enable", default=True):
                made.miss(f"{name}.schemas.enable", "events have no schema")
        elif found is None:
            made.must_set(f"sink.outbox.{side}-converter", f"`{name}` is that of the Kafka Connect worker")
        elif found not in _TEXTS:
            made.miss(name, "events are text and bytes as they are, or JSON")
        given.without(f"{name}.")


def _cloudevents(settings: Given, made: Draft) -> None:
    for name in ("serializer.type", "data.serializer.type"):
        if (settings.take(name) or "json").lower() != "json":
            made.miss(settings.named(name), "CloudEvents and their data are JSON")
    if not settings.flag("extension.attributes.enable", default=True):
        made.sink["extension-attributes-enable"] = DraftEntry(
            value=False, origin="value.converter.extension.attributes.enable"
        )
    if settings.flag("opentelemetry.tracing.attributes.enable", default=False):
        made.miss(
            settings.named("opentelemetry.tracing.attributes.enable"), "no transform writes such a header"
        )
    if "header" in (settings.take("metadata.source") or "").replace("traceparent:header", ""):
        made.miss(settings.named("metadata.source"), "what an event says of itself is from its value")
    for name in (
        "schema.cloudevents.name",
        "schema.name.adjustment.mode",
        "schema.data.name.source.header.enable",
    ):
        if settings.take(name) is not None:
            made.need_not(settings.named(name), "of Avro")
    for name in settings.left():
        made.miss(settings.named(name), "no such setting of CloudEvents here")


def _converter(given: Given, made: Draft, side: str) -> str:
    name = f"{side}.converter"
    found = given.take(name)
    if found is None:
        made.must_set(
            "sink.schemas-enable" if side == "value" else "sink.key-format",
            f"`{name}` is that of the Kafka Connect worker; JSON with schemas is assumed, its usual one",
        )
        return "json"
    if found not in _CONVERTERS or (found == _CLOUDEVENTS and side == "key"):
        made.miss(name, "messages are JSON; there is no format for this converter")
        given.without(f"{name}.")
        return "json"
    if f"{name}.apicurio.registry.url" in given:
        made.miss(name, "of Apicurio's own interface; here by the registry's Confluent interface")
    return _CONVERTERS[found]


def _registry(given: Given, made: Draft, side: str) -> None:
    section = made.sink
    settings = given.without(f"{side}.converter.")
    given.without(f"{'key' if side == 'value' else 'value'}.converter.")
    origin = f"{side}.converter.schema.registry.url"
    url = settings.take("schema.registry.url")
    if url is None:
        url = "http://registry.invalid:8081"
        made.must_set("sink.schema-registry-url", "the registry of the converter")
    section["schema-registry-url"] = DraftEntry(url, origin)
    user = settings.take("basic.auth.user.info", is_secret=True)
    settings.take("basic.auth.credentials.source")
    if user is not None:
        name, colon, password = user.partition(":")
        if "${" in name or not colon:
            made.must_set("sink.schema-registry-user", "the user of the registry")
            name, password = "user", ""
        section["schema-registry-user"] = DraftEntry(name, f"{side}.converter.basic.auth.user.info")
        section["schema-registry-password"] = made.secret(
            password,
            "SCHEMA_REGISTRY_PASSWORD",
            f"{side}.converter.basic.auth.user.info",
            "the password of the registry's user",
        )
    token = settings.take("bearer.auth.token", is_secret=True)
    if token is not None:
        section["schema-registry-token"] = made.secret(
            token, "SCHEMA_REGISTRY_TOKEN", f"{side}.converter.bearer.auth.token", "the registry's token"
        )
    if not settings.flag("auto.register.schemas", default=True):
        section["schema-registry-register"] = DraftEntry(
            value=False, origin=f"{side}.converter.auto.register.schemas"
        )
    strategy = settings.take(f"{side}.subject.name.strategy")
    if strategy is not None:
        section["subject-names"] = DraftEntry(
            strategy.rpartition(".")[2], f"{side}.converter.{side}.subject.name.strategy"
        )
    store = settings.take("schema.registry.ssl.truststore.location")
    if store is not None:
        section["schema-registry-ca"] = DraftEntry(
            f"{store}.pem", f"{side}.converter.schema.registry.ssl.truststore.location"
        )
        made.must_set("sink.schema-registry-ca", "a PEM file with what is in the truststore")
    settings.take("schema.registry.ssl.truststore.password", is_secret=True)
    settings.take("schemas.enable")
    for name in settings.left():
        made.miss(settings.named(name), "no such setting of the registry here")


def _values(given: Given, section: dict[str, DraftEntry], dialect: str, made: Draft) -> None:
    for name in _MODES:
        if (mode := given.take(name)) is not None:
            section[name.replace(".", "-")] = DraftEntry(mode.lower(), name)
    name = "time.precision.mode"
    default = "adaptive" if dialect == "postgresql" else "adaptive_time_microseconds"
    mode = (given.take(name) or default).lower()
    if mode == "adaptive":
        made.miss(
            name,
            "`adaptive` (Debezium's default for PostgreSQL): TIME with up to three digits is in microseconds "
            "here, too; nothing else differs",
        )
    elif mode == "structured":
        made.miss(name, "`structured`; times are in microseconds here")
    elif mode != "adaptive_time_microseconds":
        section["time-precision-mode"] = DraftEntry(mode, name)
    if given.flag("enable.time.adjuster", default=True) and dialect != "postgresql":
        section["enable-time-adjuster"] = DraftEntry(
            value=True, origin="enable.time.adjuster", remark="true in Debezium by default"
        )


def _topics(given: Given, made: Draft) -> None:
    settings = given.without("topic.creation.")
    partitions = settings.number("default.partitions")
    replicas = settings.number("default.replication.factor")
    if partitions is not None:
        made.sink["topic-partitions"] = DraftEntry(partitions, "topic.creation.default.partitions")
    if replicas is not None:
        made.sink["topic-replication"] = DraftEntry(replicas, "topic.creation.default.replication.factor")
    config = settings.without("default.")
    others = {
        name: DraftEntry(text, config.named(name))
        for name in config.left()
        if (text := config.take(name)) is not None
    }
    if others:
        made.sink["topic-config"] = DraftEntry(others)
    settings.take("enable")
    for name in settings.left():
        made.miss(f"topic.creation.{name}", "all topics are created alike")


def client(settings: Given, made: Draft, prefix: str, variable: str) -> dict[str, DraftEntry]:
    """Settings of a Kafka client of Java's as librdkafka's.

    Args:
        settings: Java's.
        made: for what is not taken over.
        prefix: begins their names in the file.
        variable: the environment variable for a password.
    """
    found: dict[str, DraftEntry] = {}
    for name in _SAME_IN_CLIENTS:
        if (text := settings.take(name)) is not None:
            found[name] = DraftEntry(
                text, settings.named(name) if settings.named(name) != name else prefix + name
            )
    jaas = settings.take("sasl.jaas.config", is_secret=True)
    if jaas is not None:
        words = {match[1]: next(filter(None, match.groups()[1:]), "") for match in _JAAS.finditer(jaas)}
        if "${" in words.get("username", "${" if "${" in jaas else ""):
            words["username"] = "user"
            made.must_set("sasl.username", f"the user of `{prefix}sasl.jaas.config`")
        if words.keys() == {"username", "password"}:
            found["sasl.username"] = DraftEntry(words["username"], f"{prefix}sasl.jaas.config")
            found["sasl.password"] = made.secret(
                words["password"], variable, f"{prefix}sasl.jaas.config", "the password of the Kafka user"
            )
        else:
            made.miss(f"{prefix}sasl.jaas.config", "only user and password are taken over")
    store = settings.take("ssl.truststore.location")
    if store is not None:
        found["ssl.ca.location"] = DraftEntry(f"{store}.pem", f"{prefix}ssl.truststore.location")
        made.must_set("ssl.ca.location", f"a PEM file with what is in `{prefix}ssl.truststore.location`")
    for name in ("ssl.truststore.password", "ssl.truststore.type"):
        settings.take(name, is_secret=True)
    for name in settings.left():
        if re.fullmatch(_TUNING_OF_CLIENTS, name):
            made.need_not(settings.named(name), "of Java's client; the sink has values of its own")
        else:
            made.miss(settings.named(name), "no such setting of librdkafka is known; see `properties`")
        settings.take(name, is_secret=True)
    return found
