"""Tables in forms and addresses: their names, as these can hold them."""

from __future__ import annotations

import base64
import binascii

from tailrace.errors import ConfigError


def reference(source: str, table: str) -> str:
    """A table and its source as text of letters, digits, `-` and `_`: browsers change line ends in forms."""
    return base64.urlsafe_b64encode(f"{source}\0{table}".encode()).decode().rstrip("=")


def named(text: str) -> tuple[str, str]:
    """The source and the table that `reference` made a text of.

    Raises:
        ConfigError: it did not.
    """
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeError):
        found = ""
    source, separator, table = found.partition("\0")
    if not separator:
        raise ConfigError(
            "the table in the form is wrong", "it was not made by a page of ours", code="TR-8463"
        )
    return source, table
