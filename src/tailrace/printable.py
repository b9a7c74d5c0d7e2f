r"""Text of others for people: names, server messages and values on a terminal, in a log, in a message.

A database lets a name hold anything, a server can say anything. Control characters move a terminal's cursor,
set its title or write its clipboard; a line break forges a line of a log; a bidirectional override shows a
text in another order than it has. They are shown as Python writes them: `\x1b`, `\n`, `\u202e`. A
backslash stays as it is, so what was escaped once is not escaped again. Pure.
"""

from __future__ import annotations

import re

#: C0, DEL and C1; marks, embeddings and overrides of direction; line and paragraph separators; what is no
#: character at all (lone surrogates, which no terminal's encoding takes) or only seems to be none.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: Characters of a server's message that are shown at most.
LONGEST_SAID = 1000


def printable(text: str) -> str:
    """`text` on one line, without a character that does something to a terminal."""
    return _UNSAFE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """As `printable`, but for the line breaks, which are ours."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str, most: int = LONGEST_SAID) -> str:
    """`text` without spaces round it, cut where it is long; to be made printable where it is shown."""
    text = text.strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
