"""The fields that are added to flat rows, or to their headers: the names of Debezium's `add.fields`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.config.secret import shown
from tailrace.errors import ConfigError

#: Name of the field that marks deleted rows.
DELETED = "__deleted"
#: Fields of the envelope itself.
_TOP = ("op", "ts_ms", "ts_us", "ts_ns")
#: Fields of the block `transaction`; without a struct, these names mean that block.
TRANSACTION_FIELDS = ("id", "total_order", "data_collection_order")
#: The rows of the envelope, whose fields are the table's columns.
ROWS = ("before", "after")
_FORM = re.compile(
    r"(?:(?P<struct>source|transaction)\.(?P<field>\w+)|(?P<row>before|after)\.(?P<column>[^.:]+)|(?P<top>\w+))"
    r"(?::(?P<name>[\w.-]+))?"
)


@dataclass(frozen=True)
class AddedField:
    """A field of the envelope that a flat row, or its headers, have.

    Args:
        struct: `source`, `transaction`, `before` or `after`; empty for fields of the envelope itself.
        field: its name there.
        name: its name in the row, or that of the header.
    """

    struct: str
    field: str
    name: str


def added_fields(given: Sequence[str], prefix: str, setting: str = "add-fields") -> tuple[AddedField, ...]:
    """The fields that a setting names.

    Args:
        given: its items, each `[STRUCT.]FIELD[:NAME]`.
        prefix: begins every name.
        setting: its name.

    Raises:
        ConfigError: an item has another form, or two have the same name.
    """
    fields: list[AddedField] = []
    for item in given:
        found = _FORM.fullmatch(item)
        if found is None:
            raise ConfigError(
                f"`sink.{setting}` is wrong",
                f"found {shown(item)}, needed [source.|transaction.|before.|after.]FIELD[:NAME]",
                f"{setting}: op, source.ts_ms:changed_at",
                code="TR-1010",
            )
        struct = found["struct"] or found["row"]
        field = found["field"] or found["column"] or found["top"]
        name = prefix + (found["name"] or (f"{struct}_{field}" if struct else field))
        if struct is None:
            struct = "" if field in _TOP else "transaction" if field in TRANSACTION_FIELDS else "source"
        if struct == "transaction" and field not in TRANSACTION_FIELDS:
            raise ConfigError(
                f"`sink.{setting}` names a field that no message has",
                f"found {shown(item)}; `transaction` has {', '.join(TRANSACTION_FIELDS)}",
                "name one of these, or remove the item",
                code="TR-1010",
            )
        if any(other.name == name for other in fields):
            raise ConfigError(
                f"two items of `sink.{setting}` give the same name",
                f"found {shown(name)} twice",
                "name one of them differently: FIELD:NAME",
                code="TR-1010",
            )
        fields.append(AddedField(struct, field, name))
    return tuple(fields)
