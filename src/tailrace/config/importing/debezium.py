"""`tailrace import debezium`: a connector's configuration as a pipeline file.

The file is a connector's JSON (that of Kafka Connect's REST interface, or its `config` alone), its properties
(Kafka Connect standalone), or those of Debezium Server with a Kafka sink. What is said here of a property is
what Debezium 3 does with it; where its default is another one than here, the draft says it.

    given      source (this module), columns (`debezium_columns`), messages and topics (`debezium_kafka`),
               transforms (`debezium_transforms`), the position (`debezium_offsets`)
    left over  needless, or not there, by `debezium_properties`
"""

from __future__ import annotations

import re
from typing import Any

from tailrace.config.importing import debezium_columns, debezium_kafka
from tailrace.config.importing.debezium_properties import Fate, known, reason
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, json_object, listed, properties, wrong
from tailrace.config.importing.patterns import any_case, at_least, python_pattern
from tailrace.config.options import HIDING, INCLUDE_QUERY, PROPAGATION
from tailrace.config.session_statements import is_allowed, session_statements
from tailrace.config.snapshot_overrides import OVERRIDES, snapshot_overrides
from tailrace.errors import ConfigError
from tailrace.model.column_mask import is_mask

TOOL = "Debezium"
_DIALECTS = {
    "io.debezium.connector.mysql.MySqlConnector": "mysql",
    "io.debezium.connector.mariadb.MariaDbConnector": "mariadb",
    "io.debezium.connector.postgresql.PostgresConnector": "postgresql",
}
#: Names of former versions, and those of today.
_FORMER = {
    "database.server.name": "topic.prefix",
    "table.whitelist": "table.include.list",
    "table.blacklist": "table.exclude.list",
    "database.whitelist": "database.include.list",
    "database.blacklist": "database.exclude.list",
    "schema.whitelist": "schema.include.list",
    "schema.blacklist": "schema.exclude.list",
    "column.whitelist": "column.include.list",
    "column.blacklist": "column.exclude.list",
    "heartbeat.topics.prefix": "topic.heartbeat.prefix",
}
#: `database.ssl.mode` and `database.sslmode`, and `tls-mode`.
_TLS_MODES = {
    "disabled": "disabled",
    "preferred": "preferred",
    "required": "required",
    "verify_ca": "verify-ca",
    "verify_identity": "verify-identity",
    "disable": "disabled",
    "allow": "preferred",
    "prefer": "preferred",
    "require": "required",
    "verify-ca": "verify-ca",
    "verify-full": "verify-identity",
}
_SNAPSHOT_MODES = {
    "initial": "initial",
    "initial_only": "snapshot",
    "no_data": "latest",
    "schema_only": "latest",
    "when_needed": "initial",
}
#: Settings that are sizes and times of another engine: their counterparts have defaults of their own.
_TUNING = (
    "snapshot.fetch.size",
    "incremental.snapshot.chunk.size",
    "max.batch.size",
    "max.queue.size.in.bytes",
    "errors.max.retries",
    "retriable.restart.connector.wait.ms",
    "slot.max.retries",
    "connect.timeout.ms",
    "database.query.timeout.ms",
    "snapshot.lock.timeout.ms",
)
#: Of Kafka Connect and Debezium Server, not of a connector.
_NEEDLESS = {
    r"offset\.(storage|flush)\..*|offsets\.storage\.topic": "the offset is in the pipeline's `checkpoint`",
    r"database\.history\..*": "the log has names, types and keys with each table",
    r"quarkus\..*": "of Debezium Server's own process",
    r"exactly\.once\.support|transaction\.boundary.*": "`delivery` is exactly-once",
    r"config\.action\.reload|tasks\.max\.enforce|errors\.log\..*|errors\.retry\..*": "of Kafka Connect",
    r"header\.converter": "headers are written as Debezium's",
}
_EVERY_TABLE = r".*\..*"


def read(text: str, file_name: str) -> Given:
    """The settings of a file, by the names that Kafka Connect has for them.

    Args:
        text: the file's content.
        file_name: its name without suffix: the connector's, if the file has none.

    Raises:
        ConfigError: it has no form of such a file.
    """
    values: dict[str, str] = {}
    if text.lstrip().startswith("{"):
        document = json_object(text, "the connector's configuration")
        config = document.get("config", document)
        if not isinstance(config, dict):
            raise ConfigError("`config` is not a JSON object", code="TR-1350")
        for name, value in config.items():
            if isinstance(value, dict | list):
                raise wrong(name, "needed a text, number or boolean")
            if value is not None:
                values[name] = str(value).lower() if isinstance(value, bool) else str(value)
        if config is not document and isinstance(document.get("name"), str):
            values["name"] = document["name"]
    else:
        values = properties(text)
    names: dict[str, str] = {}
    if any(name.startswith("debezium.") for name in values):
        values, names = debezium_kafka.of_connect(values)
    for former, now in _FORMER.items():
        if former in values and now not in values:
            values[now] = values.pop(former)
            names[now] = names.get(former, former)
    if "name" not in values:
        values["name"], names["name"] = file_name, ""
    return Given(values, names)


def draft(given: Given, bootstrap_servers: str | None = None) -> Draft:
    """The pipeline file that does what a connector does.

    Args:
        given: the connector's settings.
        bootstrap_servers: the brokers, where the file does not name them.

    Raises:
        ConfigError: a setting is missing or wrong, or no pipeline can do what it asks for.
    """
    made = Draft(TOOL, given.take("name") or "debezium")
    connector = given.needed("connector.class")
    dialect = _DIALECTS.get(connector)
    if dialect is None:
        raise ConfigError(
            "there is no pipeline for this connector",
            f"`{given.named('connector.class')}` is none of {', '.join(_DIALECTS)}",
            code="TR-1352",
        )
    _server(given, made, dialect)
    _tables(given, made, dialect)
    _snapshot(given, made)
    if dialect == "postgresql":
        _slot(given, made)
    debezium_columns.columns(given, made)
    debezium_kafka.sink(given, made, dialect, bootstrap_servers)
    _statements(given, made, dialect)
    _propagation(given, made, dialect)
    _gtid_sources(given, made, dialect)
    _channels(given, made)
    made.settle(given.named("name"))
    _rest(given, made)
    return made


def _server(given: Given, made: Draft, dialect: str) -> None:
    source = made.source
    source["type"] = DraftEntry(dialect, "connector.class")
    source["hostname"] = DraftEntry(given.needed("database.hostname"), "database.hostname")
    if (port := given.number("database.port")) is not None:
        source["port"] = DraftEntry(port, "database.port")
    if dialect == "postgresql":
        source["database"] = DraftEntry(given.needed("database.dbname"), "database.dbname")
    source["username"] = DraftEntry(given.needed("database.user"), "database.user")
    password = given.take("database.password", is_secret=True)
    if password is not None:
        source["password"] = made.secret(
            password,
            "DATABASE_PASSWORD",
            "database.password",
            f"the password of `{source['username'].value}`",
        )
    if (number := given.number("database.server.id")) is not None:
        source["server-id"] = DraftEntry(number, "database.server.id")
    _tls(given, made)
    statements = given.take("database.initial.statements")
    if statements is not None:
        allowed = [one for one in session_statements(statements) if is_allowed(one, dialect)]
        if len(allowed) < len(session_statements(statements)):
            made.miss(
                "database.initial.statements",
                "statements are left out that may change what is read; see the option of this name",
            )
        if allowed:
            text = "; ".join(one.replace(";", ";;") for one in allowed)
            source["database.initial.statements"] = DraftEntry(text, "database.initial.statements")


def _tls(given: Given, made: Draft) -> None:
    for name in ("database.ssl.mode", "database.sslmode"):
        mode = given.take(name)
        if mode is not None:
            if mode.lower() not in _TLS_MODES:
                raise wrong(name, f"needed one of {', '.join(_TLS_MODES)}")
            made.source["tls-mode"] = DraftEntry(_TLS_MODES[mode.lower()], name)
    for name, key in (
        ("database.sslrootcert", "tls-ca"),
        ("database.sslcert", "tls-cert"),
        ("database.sslkey", "tls-key"),
    ):
        if (path := given.take(name)) is not None:
            made.source[key] = DraftEntry(path, name)
    for store, keys in (("truststore", ["tls-ca"]), ("keystore", ["tls-cert", "tls-key"])):
        name = f"database.ssl.{store}"
        path = given.take(name)
        given.take(f"{name}.password", is_secret=True)
        for key in keys if path is not None else ():
            made.source[key] = DraftEntry(f"{path}.{key}.pem", name)
            made.must_set(f"source.{key}", f"a PEM file with what is in `{name}`")
    given.take("database.sslpassword", is_secret=True)


def _tables(given: Given, made: Draft, dialect: str) -> None:
    source = made.source
    included = given.take("table.include.list")
    source["tables"] = DraftEntry(
        [any_case(pattern) for pattern in listed(included or _EVERY_TABLE)],
        "table.include.list" if included else "",
        "in any case, as there" if included else "all tables, as there without table.include.list",
    )
    parts = ("schema",) if dialect == "postgresql" else ("database",)
    for name in ("table.exclude.list", *(f"{part}.{kind}.list" for part in parts for kind in _KINDS)):
        if (text := given.take(name)) is not None:
            source[name] = DraftEntry(listed(text), name)
    for name in ("schema.include.list", "schema.exclude.list"):
        if dialect != "postgresql" and given.take(name) is not None:
            made.need_not(name, "of PostgreSQL")
    if given.flag("skip.messages.without.change", default=False):
        source["skip.messages.without.change"] = DraftEntry(value=True, origin="skip.messages.without.change")
    if dialect == "postgresql":
        lists = [f"message.prefix.{kind}.list" for kind in _KINDS]
        taken = {name: text for name in lists if (text := given.take(name)) is not None}
        for name, text in taken.items():
            source[name] = DraftEntry(listed(text), name)
        if not taken:
            source[lists[0]] = DraftEntry(".*", "", "Debezium captures all logical messages by default")


def _statements(given: Given, made: Draft, dialect: str) -> None:
    """`include.query`, which is refused where something is hidden."""
    if not given.flag(INCLUDE_QUERY, default=False):
        return
    if dialect == "postgresql":
        made.need_not(INCLUDE_QUERY, "of MySQL and MariaDB")
        return
    hiding = [name for name in made.source if is_mask(name) or name in HIDING]
    if hiding or made.transform:
        made.miss(INCLUDE_QUERY, f"a statement would give away what `{[*hiding, 'transform'][0]}` hides")
        return
    made.source[INCLUDE_QUERY] = DraftEntry(value=True, origin=INCLUDE_QUERY)


def _gtid_sources(given: Given, made: Draft, dialect: str) -> None:
    """The servers whose transactions are given, which is refused where tables are read first."""
    for name in ("gtid.source.includes", "gtid.source.excludes"):
        text = given.take(name)
        if text is None or (name.endswith("includes") and text.strip() == ".*"):
            continue
        if dialect != "mysql":
            made.miss(name, "of MySQL alone")
        elif made.source["starting-position"].value in ("initial", "snapshot"):
            made.miss(name, "not where tables are read first: ranges of them are as of different positions")
        else:
            made.source[name] = DraftEntry([python_pattern(pattern) for pattern in listed(text)], name)


def _propagation(given: Given, made: Draft, dialect: str) -> None:
    """What schemas in messages say of columns, which is refused where there are none."""
    asked: dict[str, Any] = {PROPAGATION[0]: True} if given.flag(PROPAGATION[0], default=False) else {}
    for name, dots in ((PROPAGATION[1], 2), (PROPAGATION[2], 0)):
        if (text := given.take(name)) is not None:
            asked[name] = [at_least(dots, python_pattern(pattern)) for pattern in listed(text)]
    formats = made.sink.get("value-format"), made.sink.get("schemas-enable")
    in_avro, in_json = (entry is not None and entry.value in ("avro", "flat-avro", True) for entry in formats)
    for name, value in asked.items():
        if dialect == "postgresql" and name == PROPAGATION[0]:
            made.need_not(name, "of MySQL and MariaDB")
        elif not (in_avro or in_json):
            made.need_not(name, "messages have no schemas")
        else:
            made.source[name] = DraftEntry(value, name)


_KINDS = ("include", "exclude")


def _snapshot(given: Given, made: Draft) -> None:
    mode = (given.take("snapshot.mode") or "initial").lower()
    start = _SNAPSHOT_MODES.get(mode)
    if mode == "never":
        start = "earliest" if made.source["type"].value != "postgresql" else "latest"
    if mode in ("recovery", "schema_only_recovery"):
        start = "initial"
        made.need_not("snapshot.mode", "there is no schema history to recover; the start is `initial`")
    elif start is None:
        start = "initial"
        made.miss("snapshot.mode", f"`{mode}`; a new stream reads all tables, and later starts go on")
    if mode == "when_needed":
        made.source["on-position-lost"] = DraftEntry("refresh", "snapshot.mode")
    made.source["starting-position"] = DraftEntry(start, "snapshot.mode")
    if (threads := given.number("snapshot.max.threads")) is not None and threads > 0:
        made.source["snapshot-parallelism"] = DraftEntry(threads, "snapshot.max.threads")
    subset = given.take("snapshot.include.collection.list")
    if subset is not None and start in ("initial", "snapshot"):
        made.source["snapshot.include.collection.list"] = DraftEntry(
            listed(subset), "snapshot.include.collection.list"
        )
    _overrides(given, made, start)
    strategy = given.take("offset.mismatch.strategy")
    if strategy in ("trust_slot", "trust_greater_lsn"):
        made.miss("offset.mismatch.strategy", "a gap is never passed over; see the option onPositionLost")


def _overrides(given: Given, made: Draft, start: str) -> None:
    """Tables of which only some rows are read first."""
    tables = listed(given.take(OVERRIDES) or "")
    statements = given.without(f"{OVERRIDES}.")
    taken = {}
    for table in tables:
        name = next((n for n in statements.left() if n.lower() == table.lower()), None)
        statement = None if name is None else statements.take(name)
        options = {} if statement is None else {f"{OVERRIDES}.{table}": statement}
        try:
            snapshot_overrides((table,), options, "option")
        except ConfigError as error:
            made.miss(f"{OVERRIDES}.{table}", f"all rows are read: {error.detail}")
            continue
        taken[table] = statement
    if taken and start != "initial":
        made.need_not(OVERRIDES, f"with `{start}` no table is read first, or no other rows come")
    elif taken:
        made.source[OVERRIDES] = DraftEntry(list(taken), OVERRIDES)
        for table, statement in taken.items():
            made.source[f"{OVERRIDES}.{table}"] = DraftEntry(statement, f"{OVERRIDES}.{table}")


def _slot(given: Given, made: Draft) -> None:
    plugin = (given.take("plugin.name") or "decoderbufs").lower()
    slot = given.take("slot.name") or "debezium"
    publication = given.take("publication.name") or "dbz_publication"
    if plugin == "pgoutput":
        made.source["slot-name"] = DraftEntry(slot, "slot.name")
        made.source["publication-name"] = DraftEntry(publication, "publication.name")
        made.must_set(
            "source.slot-name",
            "a new stream is refused while the connector's slot exists (TR-4202), so that none takes "
            "another's log: drop the slot, name another one, or go on from its position by --offsets",
        )
    else:
        made.need_not("plugin.name", f"the log is read by `pgoutput`; the connector's slot has `{plugin}`")
        made.need_not("slot.name", "a slot of another plugin cannot be read; a new one is made")


def _channels(given: Given, made: Draft) -> None:
    """Signals, notifications and heartbeats."""
    enabled = listed(given.take("signal.enabled.channels") or "source")
    table = given.take("signal.data.collection")
    if table is not None:
        if "source" in enabled:
            made.source["signal.data.collection"] = DraftEntry(table, "signal.data.collection")
        else:
            made.need_not("signal.data.collection", "signal.enabled.channels does not have `source`")
    if "jmx" in enabled:
        made.miss("signal.enabled.channels", "`jmx`; see the command `tailrace signal`")
    topic = given.take("signal.kafka.topic")
    brokers = given.take("signal.kafka.bootstrap.servers")
    consumer = given.without("signal.consumer.")
    if "kafka" in enabled:
        prefix = made.sink["topic-prefix"].value
        made.signals["topic"] = DraftEntry(topic or f"{prefix}-signal", "signal.kafka.topic" if topic else "")
        if brokers is not None:
            made.signals["bootstrap-servers"] = DraftEntry(brokers, "signal.kafka.bootstrap.servers")
        clients = debezium_kafka.client(consumer, made, "signal.consumer.", "SIGNAL_KAFKA_PASSWORD")
        if clients:
            made.signals["properties"] = DraftEntry(clients)
    else:
        for name, is_there in (
            ("signal.kafka.topic", topic is not None),
            ("signal.kafka.bootstrap.servers", brokers is not None),
            ("signal.consumer.*", bool(consumer.left())),
        ):
            if is_there:
                made.need_not(name, "signal.enabled.channels does not have `kafka`")
    _notifications(given, made)
    interval = given.number("heartbeat.interval.ms") or 0
    statement = given.take("heartbeat.action.query")
    if interval > 0:
        made.sink["heartbeat-interval-ms"] = DraftEntry(interval, "heartbeat.interval.ms")
        if statement is not None:
            made.source["heartbeat.interval.ms"] = DraftEntry(interval, "heartbeat.interval.ms")
            made.source["heartbeat.action.query"] = DraftEntry(statement, "heartbeat.action.query")
    elif statement is not None:
        made.need_not("heartbeat.action.query", "heartbeat.interval.ms is 0")


def _notifications(given: Given, made: Draft) -> None:
    enabled = listed(given.take("notification.enabled.channels") or "")
    topic = given.take("notification.sink.topic.name")
    for channel in enabled:
        if channel == "log":
            made.notifications["log"] = DraftEntry(value=True, origin="notification.enabled.channels")
        elif channel == "sink" and topic is not None:
            made.notifications["topic"] = DraftEntry(topic, "notification.sink.topic.name")
        else:
            made.miss("notification.enabled.channels", f"`{channel}`; see the section `notifications`")


def _rest(given: Given, made: Draft) -> None:
    """What is left: needless, not there, or unknown."""
    for name in given.left():
        shown = given.named(name)
        text = next((why for pattern, why in _NEEDLESS.items() if re.fullmatch(pattern, name)), None)
        found = known(name)
        if text is not None:
            made.need_not(shown, text)
        elif name in _TUNING:
            made.need_not(shown, f"of another engine; here {reason(name)}, whose default is kept")
        elif found is None:
            made.miss(shown, "not known")
        elif found.fate is Fate.MISSING:
            if _is_fine(given.take(name), found.fine):
                made.need_not(shown, "this value is what is done here")
            else:
                made.miss(shown, reason(name) or "not there")
        else:
            made.need_not(shown, reason(name) or "without effect here")


def _is_fine(value: Any, fine: tuple[str, ...]) -> bool:
    return value is None or value.lower() in [one.lower() for one in fine]
