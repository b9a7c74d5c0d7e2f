"""Where targets lie that are directories: below their sink's path by `model.paths`, or where they lay before.

Before there was a rule a target's name was its path. A target of this very stream that lies there stays
there, if that is inside the sink's directory.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.errors import ConfigError, SinkError, StateError
from tailrace.model.paths import MOST_BYTES, stays_inside, too_long
from tailrace.model.table import TableId
from tailrace.sinks.route import Router


def place(router: Router, table: TableId) -> str:
    """A table's target as a path below the sink's.

    Raises:
        ConfigError: file systems take no such path.
    """
    path = router.path(table)
    if not path:
        raise ConfigError(
            f"the target of {table.quoted} has no name", None, "change its route's `sink-table`"
        )
    long = too_long(path)
    if long is not None:
        raise ConfigError(
            f"the target of {table.quoted} has too long a name for a file",
            f"`{long}` has {len(long.encode())} bytes, file systems take {MOST_BYTES}",
            "route the table to a shorter name, or leave it out of `tables`",
        )
    return path


def path_in_use(path: str, name: str, is_ours: Callable[[str], bool]) -> str:
    """The path of a target below the sink's.

    Args:
        path: the one by the rule.
        name: the target's name.
        is_ours: whether a target of this stream lies at a path below the sink's.
    """
    former = name.strip("/")
    is_other = former != path and stays_inside(former) and not former.startswith("_tailrace")
    return former if is_other and is_ours(former) else path


def below(root: str, path: str) -> str:
    """`path` below the directory `root`.

    Raises:
        SinkError: it is elsewhere.
    """
    if not stays_inside(path):
        raise SinkError(f"target path `{path}` leads out of the sink's directory")
    return f"{root.rstrip('/')}/{path}"


def one_place(target: str, other: str, path: str) -> StateError:
    """That a target lies where another one of the stream does."""
    return StateError(
        f"targets `{target}` and `{other}` are one place",
        f"at {path} is `{other}`: the file system or the catalog takes both names for the same",
        f"route the table of `{target}` to another name, or leave it out of `tables`",
    )
