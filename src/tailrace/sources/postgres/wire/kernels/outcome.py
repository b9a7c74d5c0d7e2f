"""What becomes of a value that a kernel reads; the words are explained to people by `problems`."""

from __future__ import annotations

#: Read; no room for it; bytes that its type cannot have; text that is not UTF-8; the binary form of a type
#: that is read as text; a value that the column's Arrow type does not hold.
OK, NO_ROOM, MALFORMED, BAD_TEXT, NEEDS_TEXT, NOT_HELD = range(6)
