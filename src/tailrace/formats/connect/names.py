"""Adjustment of names for registries: Debezium's `schema.name.adjustment.mode` and `field.name...` = `avro`.

Characters that Avro does not allow become `_`, and a leading digit gets a `_` in front. Two fields of a
record that would get the same name are an error: Debezium also fails there, later and with a less specific
message.

Source: debezium/debezium v3.6.1 `SchemaNameAdjuster`, `ReplacementFunction`.
"""

from __future__ import annotations

import re

from tailrace.errors import SinkError
from tailrace.formats.connect.builders import Schema


def adjusted(schema: Schema) -> Schema:
    """Adjust all names of schemas and fields in `schema`.

    Raises:
        SinkError: two fields of a struct would have the same name.
    """
    result = dict(schema)
    if "name" in result:
        result["name"] = _adjust(result["name"], "[^a-zA-Z0-9_.]")
    if "items" in result:
        result["items"] = adjusted(result["items"])
    if "fields" in result:
        fields = result["fields"] = [_field(f) for f in result["fields"]]
        originals: dict[str, str] = {}
        for before, after in zip(schema["fields"], fields, strict=True):
            other = originals.setdefault(after["field"], before["field"])
            if other != before["field"]:
                raise SinkError(
                    f"columns `{other}` and `{before['field']}` would both be called `{after['field']}`",
                    "names in Avro and Protobuf consist of letters, digits and `_`",
                    "rename or drop one of them with a transform, or write JSON",
                    code="TR-7603",
                )
    return result


def _field(schema: Schema) -> Schema:
    return {**adjusted(schema), "field": _adjust(schema["field"], "[^a-zA-Z0-9_]")}


def _adjust(name: str, illegal: str) -> str:
    legal = re.sub(illegal, "_", name)
    if legal[:1].isdigit():
        return f"_{legal}"
    return f"_{legal[1:]}" if legal.startswith(".") else legal
