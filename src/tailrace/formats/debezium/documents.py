"""JSON documents without what is null in them."""

from __future__ import annotations

import json
from typing import Any

from tailrace.formats.encodings.layout import dumps


class _Number(str):
    """A number, as it stands in a document."""

    __slots__ = ()


def without_nulls(text: str) -> str:
    """A document without the fields of its objects that are null or empty arrays; numbers as they stand."""
    return _written(json.loads(text, parse_int=_Number, parse_float=_Number))


def _written(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            fields = (f"{dumps(n)}:{_written(v)}" for n, v in value.items() if v is not None and v != [])
            return f"{{{','.join(fields)}}}"
        case list():
            return f"[{','.join(map(_written, value))}]"
    return dumps(value)
