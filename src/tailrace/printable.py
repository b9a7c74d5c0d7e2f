r"""Untrusted text made safe to show: names, server messages and values on a terminal, in a log, in a message.

A name in a database and a message of a server can hold anything. Control characters move a terminal's cursor,
set its title or write its clipboard; a line break forges a line of a log; a bidirectional override shows text
in an order that it does not have. They are shown as Python's escapes: `\x1b`, `\n`, `\u202e`. A backslash
is unchanged, so escaped text is not escaped again. Pure.
"""

from __future__ import annotations

import re

#: C0, DEL and C1; marks, embeddings and overrides of direction; line and paragraph separators; lone
#: surrogates, which no terminal's encoding can represent; invisible characters.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: Most characters shown of a server's message.
LONGEST_SAID = 1000


def printable(text: str) -> str:
    """`text` on one line, without characters that control a terminal."""
    return _UNSAFE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """As `printable`, but keeps line breaks, which are ours."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str, most: int = LONGEST_SAID) -> str:
    """`text` stripped, and cut if it is long; make it printable where it is shown."""
    text = text.strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
