"""`tailrace import seatunnel`: a job of SeaTunnel with a source MySQL-CDC or Postgres-CDC.

The file is HOCON, in which plugins are the keys of `source`, `transform` and `sink`, or JSON, in which they
are lists of objects with `plugin_name`. A stream of SeaTunnel cannot be continued: its position is in a
checkpoint of its engine.
"""

from __future__ import annotations

import re
from typing import Any

from tailrace.config.importing.debezium_kafka import client
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, wrong
from tailrace.config.importing.hocon import Entries, flat, one_text, read_hocon
from tailrace.config.importing.patterns import python_pattern
from tailrace.errors import ConfigError

_SOURCES = {"mysql-cdc": "mysql", "postgres-cdc": "postgresql", "postgresql-cdc": "postgresql"}
_STARTS = {"initial": "initial", "earliest": "earliest", "latest": "latest"}
_URL = re.compile(r"jdbc:(\w+)://([^/:?]+|\[[^\]]+\])(?::(\d+))?(?:/([^?]*))?(?:\?(.*))?")
#: Why settings of a source are needless, by pattern.
_NEEDLESS = {
    r"(snapshot|incremental|chunk-key|connect|connection|(inverse|sample)-\w+)\..*": "of its engine",
    r"parallelism|driver|jdbc\.properties\..*|scan\..*": "of its engine",
    r"server-time-zone": "times are converted by the log's own rules",
    r"exactly_once": "rows of a snapshot are always reconciled with the log; see `delivery`",
    r"(plugin|result_table|source_table)_\w+|plugin_name": "one source, and every sink has its changes",
    r"schema-names|database-names|require-replica-identity-full": "the tables' names have them",
}
#: Kinds of rows of FilterRowKind, and letters of `skipped-operations`.
_KINDS = {"INSERT": "c", "UPDATE_BEFORE": "", "UPDATE_AFTER": "u", "DELETE": "d"}
_FORMATS = {
    "canal_json": "canal-json",
    "debezium_json": "debezium-json",
    "compatible_debezium_json": "debezium-json",
}


def draft(text: str, name: str) -> Draft:
    """The pipeline file that does what a job does.

    Args:
        text: the file.
        name: its name, if the job has none.

    Raises:
        ConfigError: it is none, or a setting is missing or wrong.
    """
    sections: dict[str, Any] = dict(read_hocon(text))
    sources = _plugins(sections.get("source"), "source")
    found = [(kind, given) for kind, given in sources if kind.lower() in _SOURCES]
    if len(found) != 1 or len(sources) != 1:
        raise ConfigError(
            "the file has no single source of MySQL or PostgreSQL",
            f"found {len(sources)} sources, {len(found)} of them MySQL-CDC or Postgres-CDC",
            "make a file for each source",
            code="TR-1352",
        )
    made = Draft("SeaTunnel", name)
    env = Given(
        {key: one_text(value, key) for key, value in flat(_entries(sections.get("env"), "env")).items()}
    )
    made.name = env.take("job.name") or name
    kind, given = found[0]
    _source(given, made, _SOURCES[kind.lower()])
    for kind, plugin in _plugins(sections.get("transform"), "transform"):
        _transform(kind, plugin, made)
    sinks = _plugins(sections.get("sink"), "sink")
    for kind, plugin in sinks[1:]:
        made.miss(f"sink.{kind}", "make a list of sinks: this is the second one")
        del plugin
    _sink(*(sinks[0] if sinks else ("Console", Given({}))), made)
    made.settle("env.job.name")
    if (env.take("job.mode") or "STREAMING").upper() == "BATCH":
        made.pipeline["trigger"] = DraftEntry("available-now", "env.job.mode")
    for left in env.left():
        made.need_not(f"env.{left}", "of its engine")
    return made


def _entries(section: Any, name: str) -> Entries:
    if section is None:
        return []
    if not isinstance(section, list) or not all(isinstance(item, tuple) for item in section):
        raise ConfigError(f"section `{name}` is no object", code="TR-1350")
    return section


def _plugins(section: Any, name: str) -> list[tuple[str, Given]]:
    """The plugins of a section, by name."""
    if not section:
        return []
    if not isinstance(section, list):
        raise ConfigError(f"section `{name}` has something that is no plugin", code="TR-1350")
    found: list[tuple[str, Entries]] = []
    for item in section:
        if isinstance(item, tuple):
            found.append((item[0], item[1]))
        elif isinstance(item, list) and item and isinstance(item[0], tuple):
            kind = next((value for key, value in item if key == "plugin_name"), None)
            if not isinstance(kind, str):
                raise ConfigError(f"an item of `{name}` has no `plugin_name`", code="TR-1350")
            found.append((kind, [entry for entry in item if entry[0] != "plugin_name"]))
        else:
            raise ConfigError(f"section `{name}` has something that is no plugin", code="TR-1350")
    plugins = []
    for kind, entries in found:
        values = {}
        for key, value in flat(_entries(entries, f"{name}.{kind}")).items():
            if isinstance(value, list) and any(not isinstance(item, str) for item in value):
                values[key] = _tables_config(value) if key.endswith("-config") else ""
            else:
                values[key] = one_text(value, f"{name}.{kind}.{key}")
        plugins.append((kind, Given(values, prefix=f"{name}.{kind}.")))
    return plugins


def _tables_config(items: list[Any]) -> str:
    """`table-names-config` on one line: `table=key,key;table=key`."""
    tables = []
    for item in items:
        settings = flat(item) if isinstance(item, list) else {}
        keys = settings.get("primaryKeys")
        if isinstance(settings.get("table"), str) and isinstance(keys, list):
            tables.append(f"{settings['table']}={','.join(map(str, keys))}")
    return ";".join(tables)


def _source(given: Given, made: Draft, dialect: str) -> None:
    source = made.source
    origin = "url" if "url" in given else "base-url"
    url = _URL.fullmatch(given.needed(origin))
    if url is None:
        raise wrong(
            given.named(origin), "needed jdbc:mysql://HOST:PORT/... or jdbc:postgresql://HOST:PORT/..."
        )
    source["type"] = DraftEntry("mariadb" if url[1] == "mariadb" else dialect, origin)
    source["hostname"] = DraftEntry(url[2], origin)
    if url[3] is not None:
        source["port"] = DraftEntry(int(url[3]), origin)
    if dialect == "postgresql":
        if not url[4]:
            raise wrong(given.named(origin), "needed the name of a database")
        source["database"] = DraftEntry(url[4], origin)
    user = "username" if "username" in given else "user"
    source["username"] = DraftEntry(given.needed(user), user)
    password = given.take("password", is_secret=True)
    if password is not None:
        source["password"] = made.secret(
            password, "DATABASE_PASSWORD", "password", f"the password of `{source['username'].value}`"
        )
    if "useSSL=false" in (url[5] or ""):
        source["tls-mode"] = DraftEntry("disabled", origin)
    _tables(given, made, dialect)
    if (number := given.take("server-id")) is not None:
        first = re.match(r"\d{1,10}", number)
        if first is None:
            raise wrong(given.named("server-id"), "needed a number or a range of numbers")
        source["server-id"] = DraftEntry(int(first[0]), "server-id", "the first one that is used")
    source["starting-position"] = _start(given, made)
    if (end := _end(given)) is not None:
        source["ending-position"] = end
    if given.flag("schema-changes.enabled", default=False):
        source["schema.change.behavior"] = DraftEntry("evolve", "schema-changes.enabled")
    else:
        source["schema.change.behavior"] = DraftEntry(
            "ignore", "schema-changes.enabled", "false by default there"
        )
    if given.flag("int_type_narrowing", default=True) and dialect == "mysql":
        made.miss(
            given.named("int_type_narrowing"), "TINYINT(1) is a number; there it is a boolean by default"
        )
    slot = given.take("slot.name")
    plugin = (given.take("decoding.plugin.name") or "pgoutput").lower()
    if slot is not None and dialect == "postgresql" and plugin == "pgoutput":
        source["slot-name"] = DraftEntry(slot, "slot.name")
        made.must_set("source.slot-name", "a new stream is refused while the old one's slot exists (TR-4202)")
    given.take("format")
    debezium = given.without("debezium.")
    for name in debezium.left():
        debezium.take(name, is_secret=True)
        made.miss(debezium.named(name), "write what it means here: docs/reference/debezium.md")
    for name in given.left():
        given.take(name, is_secret=True)
        why = next((text for pattern, text in _NEEDLESS.items() if re.fullmatch(pattern, name)), None)
        if why is not None:
            made.need_not(given.named(name), why)
        else:
            made.miss(given.named(name), "there is no such setting of a source here")


def _tables(given: Given, made: Draft, dialect: str) -> None:
    names = [one.strip() for one in (given.take("table-names") or "").split(",") if one.strip()]
    pattern = given.take("table-pattern")
    count = 3 if dialect == "postgresql" else 2
    if pattern is not None:
        text = python_pattern(pattern)
        if count == 3:  # database.schema.table
            text = re.sub(r"^[\w*.+]+?\\\.", "", text)
        made.source["tables"] = DraftEntry([text], "table-pattern")
    elif names:
        parts = [name.split(".") for name in names]
        if any(len(part) < 2 for part in parts):
            raise wrong(given.named("table-names"), f"needed {count} parts with a dot between them")
        listed = [r"\.".join(map(re.escape, part[-2:] if count == 3 else part)) for part in parts]
        made.source["tables"] = DraftEntry(listed, "table-names")
    else:
        databases = [re.escape(one.strip()) for one in (given.take("database-names") or "").split(",") if one]
        if not databases or count == 3:
            raise wrong(given.named("table-names"), "needed the names of the tables, or a pattern")
        made.source["tables"] = DraftEntry([rf"{one}\..*" for one in databases], "database-names")
    for item in filter(None, (given.take("table-names-config") or "").split(";")):
        table, _, keys = item.partition("=")
        made.transform.append(
            {
                "source-table": DraftEntry(
                    r"\.".join(map(re.escape, table.split(".")[-2:])), "table-names-config"
                ),
                "primary-keys": DraftEntry(keys.split(","), "table-names-config"),
            }
        )


def _start(given: Given, made: Draft) -> DraftEntry:
    mode = (given.take("startup.mode") or "initial").lower()
    settings = given.without("startup.")
    for name in ("specific-offset.skip-events", "specific-offset.skip-rows"):
        if settings.take(name) is not None:
            made.need_not(settings.named(name), "a half-read transaction comes again, from its first change")
    if mode == "timestamp":
        return DraftEntry(f"timestamp:{settings.needed('timestamp')}", "startup.timestamp")
    if mode == "specific":
        gtids = settings.take("specific-offset.gtid-set")
        if gtids is not None:
            return DraftEntry("gtid:" + re.sub(r"\s", "", gtids), "startup.specific-offset.gtid-set")
        file, pos = settings.needed("specific-offset.file"), settings.number("specific-offset.pos")
        return DraftEntry(f"file-at-or-before:{file}:{pos or 4}", "startup.specific-offset.file")
    if mode not in _STARTS:
        raise wrong(given.named("startup.mode"), f"needed one of {', '.join(_STARTS)}, specific, timestamp")
    return DraftEntry(_STARTS[mode], "startup.mode")


def _end(given: Given) -> DraftEntry | None:
    """Where the stream ends; None: nowhere."""
    mode = (given.take("stop.mode") or "never").lower()
    settings = given.without("stop.")
    match mode:
        case "never":
            return None
        case "latest":
            return DraftEntry("latest", "stop.mode")
        case "timestamp":
            return DraftEntry(f"timestamp:{settings.needed('timestamp')}", "stop.timestamp")
        case "specific":
            file, pos = settings.needed("specific-offset.file"), settings.number("specific-offset.pos")
            return DraftEntry(f"file:{file}:{pos or 4}", "stop.specific-offset.file")
    raise wrong(given.named("stop.mode"), "needed one of never, latest, specific, timestamp")


def _transform(kind: str, given: Given, made: Draft) -> None:
    name = f"transform.{kind}"
    for link in ("plugin_input", "plugin_output", "source_table_name", "result_table_name"):
        given.take(link)
    included, excluded = given.take("include_fields"), given.take("exclude_fields")
    lowered = kind.lower()
    if lowered == "filter" and (included or excluded):
        which = "include" if included else "exclude"
        fields = "|".join(re.escape(one.strip()) for one in str(included or excluded).split(","))
        made.source[f"column.{which}.list"] = DraftEntry(
            [rf"[^.]+\.[^.]+\.({fields})"], f"{name}.{which}_fields"
        )
        return
    kinds_in, kinds_out = given.take("include_kinds"), given.take("exclude_kinds")
    if lowered == "filterrowkind" and (kinds_in or kinds_out):
        given_kinds = [one.strip().upper() for one in str(kinds_in or kinds_out).split(",")]
        if not set(given_kinds) <= _KINDS.keys():
            raise wrong(given.named("exclude_kinds"), f"needed some of {', '.join(_KINDS)}")
        left_out = [k for k in _KINDS if (k in given_kinds) != bool(kinds_in)]
        letters = [_KINDS[k] for k in left_out if _KINDS[k]]
        if "c" in letters:
            letters.append("r")
        if letters:
            for rule in made.transform:  # the first rule that matches a table counts
                rule["skipped-operations"] = DraftEntry(letters, name)
            made.transform.append(
                {"source-table": DraftEntry(".*", name), "skipped-operations": DraftEntry(letters, name)}
            )
        return
    made.miss(name, "write it as a transform in Spark SQL; until then its columns and rows stay as they are")


def _sink(kind: str, given: Given, made: Draft) -> None:
    lowered = kind.lower()
    for link in ("plugin_input", "source_table_name"):
        given.take(link)
    if lowered == "kafka":
        _kafka(given, made)
    elif lowered == "jdbc":
        _jdbc(given, made)
    elif lowered == "console":
        made.sink["type"] = DraftEntry("console", kind)
    else:
        made.sink["type"] = DraftEntry("console")
        made.must_set("sink", "the target: this one only shows changes")
        made.miss(f"sink.{kind}", "there is no such sink; those that are: docs/reference/pipeline.md")
        return
    for name in given.left():
        given.take(name, is_secret=True)
        if re.fullmatch(
            r"batch_.*|max_.*|.*_save_mode|driver|generate_sink_sql|support_upsert.*|primary_keys", name
        ):
            made.need_not(given.named(name), "the sink makes tables and batches by itself")
        else:
            made.miss(given.named(name), "there is no such setting of the sink here")


def _kafka(given: Given, made: Draft) -> None:
    sink = made.sink
    sink["type"] = DraftEntry("kafka")
    sink["bootstrap-servers"] = DraftEntry(given.needed("bootstrap.servers"), "bootstrap.servers")
    topic = given.take("topic") or "cdc"
    sink["topic-prefix"] = DraftEntry(re.sub(r"[^\w.-]", "_", topic), "topic")
    made.miss(given.named("topic"), f"topics are `{sink['topic-prefix'].value}.database.table`")
    form = (given.take("format") or "json").lower()
    sink["value-format"] = DraftEntry(_FORMATS.get(form, "flat-json"), "format")
    if form not in _FORMATS:
        made.miss(given.named("format"), "rows are flat JSON; a delete is a message without a value")
    semantics = (given.take("semantics") or "NON").upper()
    sink["delivery"] = DraftEntry(
        "exactly-once" if semantics == "EXACTLY_ONCE" else "at-least-once", "semantics"
    )
    clients = client(given.without("kafka.config."), made, "kafka.config.", "KAFKA_PASSWORD")
    if clients:
        sink["properties"] = DraftEntry(clients)


def _jdbc(given: Given, made: Draft) -> None:
    sink = made.sink
    url = _URL.fullmatch(given.needed("url"))
    if url is None or url[1] not in ("mysql", "mariadb", "postgresql"):
        given.take("password", is_secret=True)
        sink["type"] = DraftEntry("console")
        made.must_set("sink", "the target: this one only shows changes")
        made.miss(given.named("url"), "replicas are of MySQL, MariaDB and PostgreSQL")
        return
    host = url[2] + (f":{url[3]}" if url[3] else "")
    sink["type"] = DraftEntry("postgresql" if url[1] == "postgresql" else "mysql", "url")
    sink["url"] = DraftEntry(f"{url[1]}://{host}" + (f"/{url[4]}" if url[4] else ""), "url")
    user = "username" if "username" in given else "user"
    sink["user"] = DraftEntry(given.needed(user), user)
    if (password := given.take("password", is_secret=True)) is not None:
        sink["password"] = made.secret(
            password,
            "SINK_PASSWORD",
            given.named("password"),
            f"the password of `{sink['user'].value}` there",
        )
    if given.take("query") is not None:
        made.miss(given.named("query"), "rows are written by the table's key")
    if given.flag("is_exactly_once", default=False) or given.flag("exactly_once", default=False):
        made.need_not(given.named("is_exactly_once"), "each batch is written exactly once")
    database = given.take("database")
    table = given.take("table", is_secret=True)  # `${table_name}` is SeaTunnel's own
    if table is None:
        return
    if re.search(r"\$\{(?!(database|schema|table)_name\})", table):
        made.miss(given.named("table"), "its placeholder")
        return
    target = table if "." in table or not database or sink["type"].value != "mysql" else f"{database}.{table}"
    for name, group in (("database", "$1"), ("schema", "$1"), ("table", "$2")):
        target = target.replace(f"${{{name}_name}}", group)
    made.route.append(
        {"source-table": DraftEntry(r"([^.]+)\.(.*)"), "sink-table": DraftEntry(target, "table")}
    )
