"""Differences between two versions of a schema, as text: registries often reject one without a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tailrace.formats.encodings.layout import dumps

#: Most changes to list.
_MOST = 10


def changes(old: str, new: str, type_: str) -> str:
    """List the fields that were added, removed or changed, e.g. "`after.price` added (int)".

    Args:
        old: the last registered schema.
        new: the schema to register.
        type_: `AVRO` or `PROTOBUF`.
    """
    before, after = (dict(_fields(text, type_)) for text in (old, new))
    found = [f"`{name}` removed" for name in before if name not in after]
    found += [f"`{name}` added ({type_})" for name, type_ in after.items() if name not in before]
    found += [
        f"`{name}` changed from {before[name]} to {type_}"
        for name, type_ in after.items()
        if name in before and before[name] != type_
    ]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def _fields(text: str, type_: str) -> Iterator[tuple[str, str]]:
    """Paths of fields and their types."""
    if type_ == "AVRO":
        yield from _avro(json.loads(text), "")
    else:
        yield from _protobuf(text)


def _avro(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    for branch in schema if isinstance(schema, list) else [schema]:
        if isinstance(branch, dict) and branch.get("type") == "record":
            for field in branch["fields"]:
                name = f"{path}.{field['name']}" if path else field["name"]
                yield name, _type(field["type"])
                yield from _avro(field["type"], name)


def _type(schema: Any) -> str:
    """A type without its attributes."""
    if isinstance(schema, list):
        return " or ".join(map(_type, schema))
    if isinstance(schema, dict):
        logical = schema.get("logicalType")
        digits = f"({schema['precision']},{schema['scale']})" if logical == "decimal" else ""
        return f"{logical or schema['type']}{digits}"
    return str(schema)


def _protobuf(text: str) -> Iterator[tuple[str, str]]:
    """Fields by message, with type and number."""
    messages: list[str] = []
    for line in map(str.strip, text.splitlines()):
        words = line.split()
        if line.startswith("message "):
            messages.append(words[1])
        elif line == "}":
            messages = messages[:-1]
        elif messages and "=" in words:
            at = words.index("=")
            name = ".".join([*messages[1:], words[at - 1]])
            yield name, dumps(" ".join([*words[: at - 1], *words[at:]]).rstrip(";"))[1:-1]
