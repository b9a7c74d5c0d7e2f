"""Names that registries take: Debezium's `schema.name.adjustment.mode` and `field.name...` set to `avro`.

What Avro does not allow in a name becomes `_`, a leading digit gets one in front. Two names of a record that
become one are refused: Debezium fails there too, later and with less said.

Source: debezium/debezium v3.6.1 `SchemaNameAdjuster`, `ReplacementFunction`.
"""

from __future__ import annotations

import re

from tailrace.errors import SinkError
from tailrace.formats.connect.schemas import Schema


def adjusted(schema: Schema) -> Schema:
    """`schema` with all names of schemas and fields adjusted.

    Raises:
        SinkError: two fields of a struct would have one name.
    """
    made = dict(schema)
    if "name" in made:
        made["name"] = _adjust(made["name"], "[^a-zA-Z0-9_.]")
    if "items" in made:
        made["items"] = adjusted(made["items"])
    if "fields" in made:
        fields = made["fields"] = [_field(f) for f in made["fields"]]
        originals: dict[str, str] = {}
        for before, after in zip(schema["fields"], fields, strict=True):
            other = originals.setdefault(after["field"], before["field"])
            if other != before["field"]:
                raise SinkError(
                    f"columns `{other}` and `{before['field']}` would both be called `{after['field']}`",
                    "names in Avro and Protobuf hold letters, digits and `_`",
                    "rename or leave out one of them by a transform, or write JSON",
                )
    return made


def _field(schema: Schema) -> Schema:
    return {**adjusted(schema), "field": _adjust(schema["field"], "[^a-zA-Z0-9_]")}


def _adjust(name: str, illegal: str) -> str:
    made = re.sub(illegal, "_", name)
    return f"_{made}" if made[:1].isdigit() else _first(made)


def _first(name: str) -> str:
    """A dot is no first character."""
    return f"_{name[1:]}" if name.startswith(".") else name
