"""Every setting that an error, a hint or a document names is one that the pipeline file or the source has."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import EnumType
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import _SOURCE_ALIASES
from tailrace.config.model import PipelineSettings, RouteRule, TransformRule
from tailrace.config.notifications import NotificationSettings, SignalSettings
from tailrace.config.options import MODES, OPTIONS
from tailrace.config.outbox import OutboxSettings
from tailrace.config.sinks import SINKS
from tailrace.config.telemetry import LineageSettings, TelemetrySettings
from tailrace.config.verification import VerifySettings
from tailrace.control.oidc.settings import OidcSettings
from tailrace.enumerator.signals import TYPES
from tailrace.model.column_mask import is_mask

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", name).replace("_", "-").lower()


def keys(*classes: type) -> dict[str, set[str]]:
    """The keys of sections that are read by dataclass, and the values of those that have a list of them."""
    found: dict[str, set[str]] = {"type": set(SINKS)}
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for field in fields(cls):
            hint = hints[field.name]
            enums: list[Any] = [h for h in (hint, *typing.get_args(hint)) if isinstance(h, EnumType)]
            listed = {str(member.value) for enum in enums for member in enum}
            found.setdefault(kebab(field.name), set()).update(listed)
    return found


SECTIONS: Mapping[str, Mapping[str, set[str]]] = {
    "source": {
        **{name: set[str]() for name in _SOURCE_ALIASES},
        **{
            name: set(re.findall(r"[\w-]+", o.allowed)) if " | " in o.allowed else set()
            for o in OPTIONS
            for name in (o.name, kebab(o.name))
        },
    },
    "sink": keys(*SINKS.values()) | keys(OutboxSettings),
    "pipeline": keys(PipelineSettings) | keys(VerifySettings),
    "transform": keys(TransformRule),
    "route": keys(RouteRule),
    "notifications": keys(NotificationSettings),
    "signals": keys(SignalSettings),
    "telemetry": keys(TelemetrySettings),
    "lineage": keys(LineageSettings),
}
KNOWN = {name for section in SECTIONS.values() for name in section}
VALUES = {value for section in SECTIONS.values() for values in section.values() for value in values}
VALUES |= {value for values in MODES.values() for value in values}

#: Settings of others: of Kafka's brokers and librdkafka, of Spark and Hadoop, and of Hive.
OTHERS = re.compile(
    r"(sasl|security|ssl|transaction|message|max|spark|fs|hive)\.[\w.*-]+|message\.prefix\.\*|hash-[\w-]+"
    r"|snapshot\.select\.statement\.overrides\.\*?[\w.*-]+"
    r"|column\.(mask|truncate)\.[\w.*-]+"  # masks: their names have parts of their own
)
#: A setting of a section, with or without a value.
_QUALIFIED = re.compile(
    r"`(source|sink|pipeline|transform|route|notifications|signals|telemetry|lineage)"
    r"\.([A-Za-z][\w.-]*)(?:: ([\w-]+))?"
)
#: A name of several words between backticks, with or without a value.
_COMPOSED = re.compile(r"`([a-z]+(?:[-.][a-z*]+)+|[a-z]+(?:[A-Z][a-z]+)+)(?:: ([\w-]+))?`")
#: A name that the text calls a setting.
_CALLED = re.compile(r"\b(?:set|option|options|setting) (?:the option )?`?([a-z]+(?:[-.A-Z][A-Za-z]+)+)`?")
_CALLED_IN_BACKTICKS = re.compile(r"\b(?:set|option|options|setting) `([\w.-]+)")
#: Signals, and what stands in them.
SIGNALS = {*TYPES, "data-collections", "additional-conditions", "surrogate-key"}
#: Settings of `tailrace serve --oidc`, a file of its own.
OF_PROVIDER = {kebab(field.name) for field in fields(OidcSettings)}
#: Texts with the form of a setting that are none: patterns of names, dates, files of the system, commands.
NO_SETTING = (
    SIGNALS
    | OF_PROVIDER
    | {
        "database.table",
        "schema.table",
        "database.table.column",
        "schema.table.column",
        "tailrace-error",
        "spark-executor",  # of the image
        "spark-submit",
        "hadoop-aws",
        "tailrace.secrets",  # a group of entry points
        "delete-to-tombstone",  # Debezium's value of a setting that Tailrace has, too
        "checkpointLocation",  # Spark's, of a writer
        "committed-offset",  # Flink CDC's, as is the next one
        "postgres-cdc",
        "maxMessageSize",  # of RocketMQ's brokers
        "webhook-id",  # headers of the webhook sink
        "webhook-timestamp",
        "webhook-signature",
        "message-id",  # RabbitMQ's, as are the next ones
        "x-overflow",
        "x-single-active-consumer",
    }
)


def wrong_names(text: str) -> Iterator[str]:
    for section, name, value in _QUALIFIED.findall(text):
        known = SECTIONS[section].get(name.split(".")[0], SECTIONS[section].get(name))
        if known is None or (known and value and value not in known):
            yield f"{section}.{name}: {value}"
    for name, value in _COMPOSED.findall(text):
        if name in NO_SETTING or name in VALUES or name.split(".")[0] in SECTIONS or OTHERS.fullmatch(name):
            continue
        allowed = [section[name] for section in SECTIONS.values() if name in section]
        if not allowed or (value and all(values and value not in values for values in allowed)):
            yield f"{name}: {value}"
    for name in (*_CALLED.findall(text), *_CALLED_IN_BACKTICKS.findall(text)):
        if not (name in KNOWN or name.split(".")[0] in SECTIONS or OTHERS.fullmatch(name)):
            yield name


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module but its docstrings; `{}` stands for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values),
            )


def test_settings_that_messages_name_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / "src" / "tailrace").rglob("*.py"))
        if path.parent.name != "importing"  # it names the settings of other tools
        for line, text in texts(path)
        for name in wrong_names(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["start", "guides", "reference"])
def test_settings_that_documents_name_exist(folder: str) -> None:
    """Words with hyphens between backticks; names with dots are Debezium's, Spark's or Kafka's there."""
    wrong = []
    for page in sorted((DOCS / folder).glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if page.name.startswith("moving-from-"):  # the first column has the names of another tool
            text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
        names = re.findall(r"`([a-z]+(?:-[a-z]+)+)(?:: [^`]*)?`", text)
        wrong += [
            f"{page.relative_to(ROOT)} {name}" for name in names if name not in KNOWN | VALUES | NO_SETTING
        ]
    assert wrong == []


def test_every_key_of_a_pipeline_file_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "pipeline.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`-?([a-z-]+)[:`]", text)) | {
        f"schema-registry{suffix}" for suffix in re.findall(r"`(-[a-z]+)`", text)
    }
    expected = {name for section in ("sink", "pipeline", "transform", "route") for name in SECTIONS[section]}
    assert expected - listed == set()


@pytest.mark.parametrize(
    "text",
    [
        "set `schema.registry.url`",
        "`sink.pathh` is wrong",
        "set value.format: avro",
        "or set `value-format: debezium`",
        "see the option `pageRows`",
    ],
)
def test_wrong_names_are_found(text: str) -> None:
    assert list(wrong_names(text))


@pytest.mark.parametrize(
    "text",
    [
        "set `schema-registry-url`",
        "`sink.properties.{}` cannot be set",
        "set `transaction.timeout.ms` in `sink.properties`",
        "option `startingPosition` is wrong",
        "set startingPosition to latest",
        "set `value-format: avro`",
        "set the option slotName to another name",
    ],
)
def test_right_names_pass(text: str) -> None:
    assert not list(wrong_names(text))


#: A row of the table of Debezium's connector properties.
_PROPERTY = re.compile(r"\| `([^`]+)` \| (same|other name|needless|not there) \| (.*) ?\|")


def test_properties_of_debezium_that_are_said_to_be_there_exist() -> None:
    text = (DOCS / "reference" / "debezium.md").read_text(encoding="utf-8")
    section = text.partition("## Connector properties")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    rows = [match.groups() for line in lines if (match := _PROPERTY.fullmatch(line))]
    assert len(rows) == len(lines) > 100
    names = [name for name, *_ in rows]
    assert len(set(names)) == len(names)
    sections = SECTIONS.keys()
    settings = KNOWN | {o.name for o in OPTIONS} | sections
    for name, how, here in rows:
        has_it = name in settings or name.replace(".", "-") in SECTIONS["sink"]
        has_it = has_it or is_mask(name.replace("*length*", "1"))
        assert has_it == (how == "same"), name
        if how == "other name":
            quoted = re.findall(r"`([\w.-]+)`", here.partition(";")[0])
            assert quoted, name
            assert [o for o in quoted if o not in settings and not is_mask(o)] == [], name
