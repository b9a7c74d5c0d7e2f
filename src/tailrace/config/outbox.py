"""The setting `outbox` of a Kafka sink: the options of Debezium's transform EventRouter, in kebab-case.

Source: Debezium documentation, "Outbox Event Router"; debezium/debezium (`EventRouterConfigDefinition`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from tailrace.config.java_patterns import Replacement
from tailrace.config.secret import shown
from tailrace.errors import ConfigError


class InvalidOperation(StrEnum):
    """What becomes of an update of a row of an outbox: Debezium's `table.op.invalid.behavior`."""

    WARN = "warn"
    ERROR = "error"
    FATAL = "fatal"


class NullFields(StrEnum):
    """What becomes of fields of an expanded payload that are null: `table.json.payload.null.behavior`."""

    #: They are left out, as empty arrays are.
    IGNORE = "ignore"
    #: They are written.
    OPTIONAL_BYTES = "optional_bytes"


class MissingColumn(StrEnum):
    """What an additional column that the table does not have is: `table.field.additional.missing`."""

    ERROR = "error"
    IGNORE = "ignore"


class ConnectConverter(StrEnum):
    """How keys and values become bytes: Connect's converters StringConverter and JsonConverter."""

    STRING = "string"
    JSON = "json"


@dataclass(frozen=True)
class Placement:
    """An additional column of an event.

    Args:
        column: the column.
        where: a header; or the value, which is then an object; or the number of the partition.
        name: the name of the header or of the value's field.
    """

    column: str
    where: Literal["header", "envelope", "partition"]
    name: str


@dataclass(frozen=True)
class OutboxSettings:
    """Tables whose inserted rows are messages, and how these are made of their columns.

    Args:
        tables: regular expressions over `database.table`, matched against the whole name.
        table_field_event_id: the column of the header `id`.
        table_field_event_key: the column of the message key.
        table_field_event_payload: the column of the value.
        table_field_event_timestamp: the column of the message's timestamp; default: when it is written.
        table_fields_additional_placement: further columns, each `COLUMN:header[:NAME]`,
            `COLUMN:envelope[:NAME]` or `COLUMN:partition`.
        table_field_additional_missing: what such a column is that the table does not have.
        table_expand_json_payload: whether text that is a JSON object or array is written as that.
        table_json_payload_null_behavior: what becomes of their fields that are null.
        table_op_invalid_behavior: what becomes of an update.
        route_by_field: the column that decides the topic.
        route_topic_regex: what its value must match for `route_topic_replacement` to count.
        route_topic_replacement: the topic's name.
        route_tombstone_on_empty_payload: whether a message has no value if the payload is empty.
        key_converter: how keys become bytes.
        value_converter: how values become bytes; default: JSON if they are expanded or objects.

    Raises:
        ConfigError: a value is not allowed.
    """

    tables: tuple[str, ...]
    table_field_event_id: str = "id"
    table_field_event_key: str = "aggregateid"
    table_field_event_payload: str = "payload"
    table_field_event_timestamp: str | None = None
    table_fields_additional_placement: tuple[str, ...] = ()
    table_field_additional_missing: MissingColumn = MissingColumn.ERROR
    table_expand_json_payload: bool = False
    table_json_payload_null_behavior: NullFields = NullFields.OPTIONAL_BYTES
    table_op_invalid_behavior: InvalidOperation = InvalidOperation.WARN
    route_by_field: str = "aggregatetype"
    route_topic_regex: str = "(?<routedByValue>.*)"
    route_topic_replacement: str = "outbox.event.${routedByValue}"
    route_tombstone_on_empty_payload: bool = False
    key_converter: ConnectConverter = ConnectConverter.STRING
    value_converter: ConnectConverter | None = None

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError(
                "no table is named at `sink.outbox.tables`",
                "each is a regular expression over `database.table`",
                r"tables: ['shop\.outbox']",
                code="TR-1006",
            )
        for pattern in self.tables:
            _compiled(pattern, "tables")
        self._routing  # noqa: B018 - checked
        names = [placement.name for placement in self.placements if placement.where == "envelope"]
        headers = [placement.name for placement in self.placements if placement.where == "header"]
        twice = [n for n in names if names.count(n) > 1 or n == "payload"]
        twice += [n for n in headers if headers.count(n) > 1 or n == "id"]
        if twice:
            raise ConfigError(
                "a name is taken at `sink.outbox.table-fields-additional-placement`",
                f"found {shown(twice[0])} twice; the header `id` and the field `payload` are there already",
                "name one differently: COLUMN:header:NAME",
                code="TR-1010",
            )
        if sum(placement.where == "partition" for placement in self.placements) > 1:
            raise ConfigError(
                "several columns are the partition at `sink.outbox.table-fields-additional-placement`",
                "a message has one partition",
                "name one column",
                code="TR-1010",
            )
        if self.table_json_payload_null_behavior is NullFields.IGNORE and not self.table_expand_json_payload:
            raise ConfigError(
                "`sink.outbox.table-json-payload-null-behavior` has no meaning here",
                "payloads are texts without `table-expand-json-payload`",
                "remove the setting",
                code="TR-1011",
            )
        if self.value_converter is ConnectConverter.STRING and (
            self.table_expand_json_payload or self.is_enveloped
        ):
            raise ConfigError(
                "only `json` is possible at `sink.outbox.value-converter`",
                "values are objects with `table-expand-json-payload` and with columns placed in `envelope`",
                "remove the setting",
                code="TR-1010",
            )

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The additional columns."""
        return tuple(_placement(text) for text in self.table_fields_additional_placement)

    @property
    def partition_column(self) -> str | None:
        """The column of the number of the partition."""
        return next((p.column for p in self.placements if p.where == "partition"), None)

    @property
    def is_enveloped(self) -> bool:
        """Whether values are objects with the payload and further columns."""
        return any(placement.where == "envelope" for placement in self.placements)

    @property
    def has_json_values(self) -> bool:
        """Whether values are JSON."""
        if self.value_converter is None:
            return self.table_expand_json_payload or self.is_enveloped
        return self.value_converter is ConnectConverter.JSON

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are needed."""
        is_needed = self.table_field_additional_missing is MissingColumn.ERROR
        named = [
            self.table_field_event_id,
            self.table_field_event_key,
            self.table_field_event_payload,
            self.route_by_field,
            *(placement.column for placement in self.placements if is_needed),
        ]
        if self.table_field_event_timestamp is not None:
            named.append(self.table_field_event_timestamp)
        return tuple(dict.fromkeys(named))

    def topic(self, value: str) -> str:
        """The topic of events with `value` in the column `route_by_field`, as by Connect's RegexRouter."""
        found = self._routing.of(value)
        return value if found is None else found

    @property
    def _routing(self) -> Replacement:
        settings = ("sink.outbox.route-topic-regex", "sink.outbox.route-topic-replacement")
        return Replacement(self.route_topic_regex, self.route_topic_replacement, settings)


def matches(patterns: Sequence[str], name: str) -> bool:
    """Whether one of the patterns matches the whole name of a table."""
    return any(re.fullmatch(pattern, name, re.DOTALL) for pattern in patterns)


def _compiled(pattern: str, name: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"no regular expression at `sink.outbox.{name}`", f"{shown(pattern)}: {error}", code="TR-1010"
        ) from None


def _placement(text: str) -> Placement:
    column, _, rest = text.partition(":")
    where, _, name = rest.partition(":")
    match where:
        case "header" | "envelope" if column:
            return Placement(column, where, name or column)
        case "partition" if column and not name:
            return Placement(column, where, column)
        case _:
            raise ConfigError(
                "an item is wrong at `sink.outbox.table-fields-additional-placement`",
                f"found {shown(text)}; needed COLUMN:header[:NAME], COLUMN:envelope[:NAME], COLUMN:partition",
                code="TR-1010",
            )
