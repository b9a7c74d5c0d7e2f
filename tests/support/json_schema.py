"""As much of JSON Schema as our own schemas use; a keyword that is not known is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_IGNORED = {"$schema", "title", "description", "$defs"}


def problems(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with `value`, each with its path."""
    return list(_problems(value, schema, schema if root is None else root, "$"))


def _problems(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[str]:
    for keyword, wanted in schema.items():
        match keyword:
            case "$ref":
                yield from _problems(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, path)
            case "type":
                names = [wanted] if isinstance(wanted, str) else wanted
                if not any(_is(value, name) for name in names):
                    yield f"{path}: {value!r} is not {' or '.join(names)}"
            case "const":
                if value != wanted:
                    yield f"{path}: {value!r} is not {wanted!r}"
            case "enum":
                if value not in wanted:
                    yield f"{path}: {value!r} is none of {wanted}"
            case "pattern":
                if isinstance(value, str) and not re.search(wanted, value):
                    yield f"{path}: {value!r} does not match {wanted}"
            case "required":
                if isinstance(value, dict):
                    yield from (f"{path}.{name} is missing" for name in wanted if name not in value)
            case "properties":
                if isinstance(value, dict):
                    for name in wanted.keys() & value.keys():
                        yield from _problems(value[name], wanted[name], root, f"{path}.{name}")
            case "additionalProperties":
                if isinstance(value, dict):
                    for name in value.keys() - schema.get("properties", {}).keys():
                        if wanted is False:
                            yield f"{path}.{name} is not known"
                        else:
                            yield from _problems(value[name], wanted, root, f"{path}.{name}")
            case "items":
                if isinstance(value, list):
                    for number, item in enumerate(value):
                        yield from _problems(item, wanted, root, f"{path}[{number}]")
            case _ if keyword not in _IGNORED:
                raise ValueError(keyword)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])
