"""`tailrace import flink-cdc`: a pipeline of Flink CDC 3, in YAML.

The two files look alike: sections, rules of `transform` and `route` and the policies of schema changes have
one form. What differs is said here: names of tables, in which a dot divides and an escaped one matches
anything; all routes that match count there, the first one here; expressions are Flink SQL there and Spark SQL
here.

A stream of Flink CDC cannot be continued: its position is in Flink's savepoint. Set `starting-position` by
hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tailrace.config.document import read_document
from tailrace.config.importing.debezium_kafka import client
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.flink_source import source
from tailrace.config.importing.flink_sql_functions import unknown_functions
from tailrace.config.importing.given import Given, wrong
from tailrace.config.importing.patterns import divided, python_pattern
from tailrace.config.secret import has_credentials
from tailrace.errors import ConfigError

TOOL = "Flink CDC"
_SECTIONS = ("source", "sink", "transform", "route", "pipeline")
_BEHAVIORS = ("evolve", "try_evolve", "lenient", "ignore", "exception")
#: Kinds of changes that are here, too, by the same names.
_CHANGES = (
    "add.column",
    "drop.column",
    "rename.column",
    "alter.column.type",
    "drop.table",
    "truncate.table",
)


def draft(text: str, name: str) -> Draft:
    """The pipeline file that does what a pipeline of Flink CDC does.

    Args:
        text: the file.
        name: its name, if it has none.

    Raises:
        ConfigError: it is none, or a setting is missing or wrong.
    """
    document = read_document(text)
    if not isinstance(document, dict) or not isinstance(document.get("source"), dict):
        raise ConfigError(
            "the file is no pipeline of Flink CDC", "needed: YAML with the section `source`", code="TR-1350"
        )
    made = Draft(TOOL, name)
    for section in document:
        if section not in _SECTIONS:
            made.miss(section, "the section is not known")
    pipeline = _given(document.get("pipeline") or {}, "pipeline")
    made.name = pipeline.take("name") or name
    given = _given(document["source"], "source")
    given.take("name")
    source(given, made)
    _rest(given, made, "source")
    _transforms(document.get("transform") or [], made)
    _routes(document.get("route") or [], made, pipeline)
    sink = _given(document.get("sink") or {}, "sink")
    _sink(sink, made)
    _schema_changes(sink, pipeline, made)
    _rest(sink, made, "sink")
    _pipeline(pipeline, made)
    return made


def _given(section: Any, name: str) -> Given:
    if not isinstance(section, dict):
        raise ConfigError(f"section `{name}` is not a mapping", code="TR-1350")
    values = {}
    for key, value in _flat(section):
        values[key] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return Given(values, prefix=f"{name}.")


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Settings with their whole names: `properties: {a: 1}` is `properties.a`."""
    found: list[tuple[str, Any]] = []
    for key, value in section.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            found.append((f"{prefix}{key}", ",".join(map(str, value))))
        elif value is not None:
            found.append((f"{prefix}{key}", value))
    return found


def _rules(given: Any, section: str) -> list[Given]:
    if not isinstance(given, list):
        raise ConfigError(f"section `{section}` is not a list", code="TR-1350")
    return [_given(rule, f"{section}[{number}]") for number, rule in enumerate(given)]


def _transforms(given: Any, made: Draft) -> None:
    for number, rule in enumerate(_rules(given, "transform")):
        where = f"transform[{number}]"
        entry = {"source-table": DraftEntry(_table(rule.needed("source-table"), made), "source-table")}
        expressions = []
        for name in ("projection", "filter"):
            if (text := rule.take(name)) is not None:
                entry[name] = DraftEntry(text, name)
                expressions.append(text)
        if (keys := rule.take("primary-keys")) is not None:
            entry["primary-keys"] = DraftEntry([k.strip() for k in keys.split(",")], "primary-keys")
        converter = rule.take("converter-after-transform")
        if converter == "SOFT_DELETE":
            entry["converter-after-transform"] = DraftEntry(converter, "converter-after-transform")
        elif converter is not None:
            made.miss(f"{where}.converter-after-transform", "there is SOFT_DELETE alone")
        if (note := rule.take("description")) is not None:
            entry["description"] = DraftEntry(note, "description")
        for name in ("partition-keys", "table-options"):
            if rule.take(name) is not None:
                made.miss(f"{where}.{name}", "targets are made by settings of the sink alone")
        rule.without("table-options")
        _expressions(expressions, where, made)
        _rest(rule, made, "")
        made.transform.append(entry)


def _expressions(texts: list[str], where: str, made: Draft) -> None:
    for name in sorted({name for text in texts for name in unknown_functions(text)}):
        made.miss(f"{where}: {name}()", "it is not known to be the same in Spark SQL")
    if texts and all(note.name != "transform" for note in made.to_set):
        made.must_set(
            "transform", "expressions are Spark SQL here: `tailrace check` says whether it takes them"
        )


def _routes(given: Any, made: Draft, pipeline: Given) -> None:
    for rule in _rules(given, "route"):
        entry = {"source-table": DraftEntry(_table(rule.needed("source-table"), made), "source-table")}
        entry["sink-table"] = DraftEntry(rule.needed("sink-table"), "sink-table")
        for name in ("replace-symbol", "description"):
            if (text := rule.take(name)) is not None:
                entry[name] = DraftEntry(text, name)
        _rest(rule, made, "")
        made.route.append(entry)
    mode = (pipeline.take("route-mode") or "ALL_MATCH").upper()
    if mode != "FIRST_MATCH" and len(made.route) > 1:
        made.miss(
            "pipeline.route-mode", "a table goes to the first route that matches; there to each that does"
        )


def _table(pattern: str, made: Draft) -> str:
    """A pattern of tables as here."""
    parts = [python_pattern(part) for part in divided(pattern)]
    if made.source["type"].value == "postgresql" and len(parts) == 3:
        parts = parts[1:]
    return r"\.".join(parts)


def _sink(sink: Given, made: Draft) -> None:
    kind = sink.take("type") or ""
    sink.take("name")
    if kind == "kafka":
        _kafka(sink, made)
        return
    if kind == "iceberg":
        _iceberg(sink, made)
        return
    for name in sink.left():
        sink.take(name, is_secret=True)
    made.sink["type"] = DraftEntry("console")
    made.must_set("sink", "the target: this one only shows changes")
    if kind not in ("", "values"):
        made.miss("sink.type", f"there is no sink `{kind}`; those that are: docs/reference/pipeline.md")


def _kafka(sink: Given, made: Draft) -> None:
    section = made.sink
    section["type"] = DraftEntry("kafka", "type")
    servers = sink.needed("properties.bootstrap.servers")
    section["bootstrap-servers"] = DraftEntry(
        re.sub(r"\b[A-Z_]+://", "", servers), "properties.bootstrap.servers"
    )
    topic = sink.take("topic")
    section["topic-prefix"] = DraftEntry(topic or "cdc", "topic" if topic else "")
    made.miss(
        "sink.topic" if topic else "sink.type",
        f"topics are `{topic or 'cdc'}.database.table`, by `topic-prefix`; there "
        + ("all go to one topic" if topic else "they have no prefix"),
    )
    form = sink.take("value.format") or "debezium-json"
    if form not in ("debezium-json", "canal-json"):
        raise wrong("sink.value.format", "needed debezium-json or canal-json")
    section["value-format"] = DraftEntry(form, "value.format")
    if (sink.take("key.format") or "json") != "json":
        made.miss("sink.key.format", "keys are JSON, with the names of columns")
    if sink.flag("debezium-json.include-schema.enabled", default=False) or sink.flag(
        "sink.debezium-json.include-schema.enabled", default=False
    ):
        section["schemas-enable"] = DraftEntry(value=True, origin="sink.debezium-json.include-schema.enabled")
    strategy = sink.take("partition.strategy")
    if strategy != "hash-by-key":
        section["topic-partitions"] = DraftEntry(
            1, "partition.strategy", "all records go to partition 0 there; the key decides here"
        )
    else:
        made.need_not("sink.partition.strategy", "the partition is always chosen by the key")
    clients = client(sink.without("properties."), made, "properties.", "KAFKA_PASSWORD")
    if clients:
        section["properties"] = DraftEntry(clients)


def _iceberg(sink: Given, made: Draft) -> None:
    section = made.sink
    section["type"] = DraftEntry("iceberg", "type")
    catalog = sink.without("catalog.properties.")
    kind = catalog.take("type") or "hadoop"
    warehouse = catalog.needed("warehouse")
    section["path"] = DraftEntry(warehouse, "catalog.properties.warehouse")
    if kind in ("hive", "rest"):
        settings = {"type": DraftEntry(kind, "catalog.properties.type")}
        if (uri := catalog.take("uri")) is not None:
            origin = "catalog.properties.uri"
            held = (
                made.secret(uri, "CATALOG_URI", origin) if has_credentials(uri) else DraftEntry(uri, origin)
            )
            settings["uri"] = held
        section["catalog"] = DraftEntry(settings)
    else:
        made.miss("sink.catalog.properties.type", f"`{kind}`; the catalog is a SQLite file below `path`")
    for name in catalog.left():
        catalog.take(name, is_secret=True)
        made.miss(catalog.named(name), "write pyiceberg's property into `catalog`, secrets as references")


def _schema_changes(sink: Given, pipeline: Given, made: Draft) -> None:
    name = "schema.change.behavior"
    behavior = (pipeline.take(name) or "lenient").lower()
    if behavior not in _BEHAVIORS:
        raise wrong(f"pipeline.{name}", f"needed one of {', '.join(_BEHAVIORS)}")
    included = _kinds(sink.take("include.schema.changes"), "include.schema.changes")
    excluded = _kinds(sink.take("exclude.schema.changes"), "exclude.schema.changes") or []
    if name in made.source:  # the source sends none
        return
    made.source[name] = DraftEntry(
        behavior, f"pipeline.{name}", "lenient by default there" if behavior == "lenient" else ""
    )
    of_tables = ("truncate.table", "drop.table")
    if behavior != "exception":
        follows = {
            kind: (kind in included if included is not None else behavior != "lenient")
            and kind not in excluded
            for kind in of_tables
        }
        if not follows["truncate.table"]:
            made.source["on-truncate"] = DraftEntry("ignore", "sink.exclude.schema.changes")
        if follows["drop.table"] and behavior != "ignore":
            _follow_drops(made)
        included = None if included is None else [kind for kind in included if kind not in of_tables]
        excluded = [kind for kind in excluded if kind not in of_tables]
    if included == []:
        made.source[name] = DraftEntry(
            "ignore", "sink.include.schema.changes", "no change of a column is followed"
        )
    elif behavior != "ignore":
        if included:
            made.source["include.schema.changes"] = DraftEntry(
                ",".join(included), "sink.include.schema.changes"
            )
        if excluded:
            made.source["exclude.schema.changes"] = DraftEntry(
                ",".join(excluded), "sink.exclude.schema.changes"
            )


def _follow_drops(made: Draft) -> None:
    if made.source["starting-position"].value == "initial":
        made.source["on-drop-table"] = DraftEntry("apply", "", "targets lose the rows, and stay themselves")
    else:
        made.miss("drop.table", "targets keep the rows of a dropped table")


def _kinds(text: str | None, setting: str) -> list[str] | None:
    """The kinds of changes that a setting names, by name or by a group (`column`, `drop`, ...)."""
    if text is None:
        return None
    found: list[str] = []
    for part in text.strip("[]").split(","):
        kind = part.strip()
        kinds = [one for one in (*_CHANGES, "create.table") if kind == one or kind in one.split(".")]
        if not kinds:
            raise wrong(f"sink.{setting}", f"needed some of {', '.join(_CHANGES)}")
        found += [one for one in kinds if one != "create.table" and one not in found]
    return found


def _pipeline(pipeline: Given, made: Draft) -> None:
    made.settle("name")
    if (number := pipeline.number("parallelism")) is not None:
        made.pipeline["parallelism"] = DraftEntry(number, "parallelism", "cores of a local Spark")
    for name in ("local-time-zone", "operator.uid.prefix", "schema.operator.uid"):
        if pipeline.take(name) is not None:
            made.need_not(f"pipeline.{name}", "times are UTC, and the checkpoint is the pipeline's own")
    if (mode := pipeline.take("execution.runtime-mode")) == "BATCH":
        made.pipeline["trigger"] = DraftEntry("available-now", "execution.runtime-mode")
    elif mode is not None:
        made.need_not("pipeline.execution.runtime-mode", "a pipeline is a stream")
    _rest(pipeline, made, "pipeline")


def _rest(given: Given, made: Draft, section: str) -> None:
    for name in given.left():
        given.take(name, is_secret=True)
        made.miss(given.named(name), f"there is no such setting of {section or 'a rule'} here")
