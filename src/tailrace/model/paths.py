r"""File names made of names: one rule for all sinks, which can be undone. Pure.

A name of a database can hold anything: `../../x` leads out of a directory, `a:b` is a URI to Hadoop, `a*` a
pattern to Spark, `_x` a hidden file to all readers of data lakes. Such characters become `%` and two hex
digits for each byte of their UTF-8, as in Hive's partition directories:

    shop.orders      shop.orders             letters of any script, digits, `_ - . $ @` and so on stay
    shop.a/b         shop.a%2Fb
    shop.100%        shop.100%25
    _x.t             %5Fx.t                  a first dot or underscore hides a file
    ..               %2E%2E

    always           / \ % : * ? [ ] { } < > | " # = ^, control characters, marks of direction,
                     line separators, lone surrogates
    at the start     . _ and space
    at the end       . and space, which some file systems drop

Two names never have one file name, and no name has one that begins with a dot or an underscore: what
Tailrace and Delta keep beside the targets (`_tailrace`, `_delta_log`) cannot be met.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

#: Most bytes of a file name on the usual file systems.
MOST_BYTES = 255

_ALWAYS = (
    '/\\\\%:*?\\[\\]{}<>|"#=^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb'
    "\ud800-\udfff"
)
_ESCAPED = re.compile(f"[{_ALWAYS}]|^[._ ]|[. ]$")


def file_name(name: str) -> str:
    """The name of a file or directory that stands for `name`."""
    return _ESCAPED.sub(lambda found: _percent(found[0]), name)


def name_of_file(file: str) -> str:
    """The name that `file_name` made `file` of."""
    return unquote_to_bytes(file.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def relative_path(names: Iterable[str]) -> str:
    """A path of several names, each a directory in the one before; empty ones are left out."""
    return "/".join(file_name(name) for name in names if name)


def stays_inside(path: str) -> bool:
    """Whether a relative path that was made without this rule leads to a place below its start."""
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def too_long(path: str) -> str | None:
    """The first name in a path that has more than MOST_BYTES bytes, None if there is none."""
    parts = (part for part in path.split("/") if len(part.encode("utf-8", "surrogatepass")) > MOST_BYTES)
    return next(parts, None)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
