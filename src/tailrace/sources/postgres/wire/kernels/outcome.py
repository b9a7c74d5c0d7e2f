"""Outcomes of reading a value; `problems` has their error messages."""

from __future__ import annotations

#: Read; no room for it; bytes that are not valid for its type; text that is not UTF-8; the binary form of a
#: type that is read as text; a value that the column's Arrow type does not hold.
OK, NO_ROOM, MALFORMED, BAD_TEXT, NEEDS_TEXT, NOT_HELD = range(6)
