"""Kafka Connect's schemas as JSON values, with the attributes in the order of its JSON converter.

Source: apache/kafka `JsonConverter.asJsonSchema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]


def primitive(type_: str, field: str, *, optional: bool = False) -> Schema:
    """The schema of a field of a primitive type."""
    return {"type": type_, "optional": optional, "field": field}


def array(items: Schema, field: str, *, optional: bool = True) -> Schema:
    """The schema of a field that holds a list."""
    return {"type": "array", "items": items, "optional": optional, "field": field}


def struct(
    fields: Sequence[Schema], name: str, *, optional: bool = False, version: int | None = None
) -> Schema:
    """The schema of a struct called `name`."""
    schema: Schema = {"type": "struct", "fields": list(fields), "optional": optional, "name": name}
    return schema if version is None else {**schema, "version": version}


def semantic(type_: str, name: str, *, optional: bool) -> Schema:
    """The schema of a primitive type to which `name` gives a meaning."""
    return {"type": type_, "optional": optional, "name": name, "version": 1}
