"""The paths of targets that are directories: below their sink's path, as `model.paths` defines.

Earlier versions used the target's name as its path. A target of this very stream at such a path stays there,
if the path is inside the sink's directory.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.errors import ConfigError, SinkError, StateError
from tailrace.model.paths import MOST_BYTES, stays_inside, too_long
from tailrace.model.table import TableId
from tailrace.sinks.route import Router


def target_path(router: Router, table: TableId) -> str:
    """The path of a table's target, relative to the sink's.

    Raises:
        ConfigError: file systems do not allow such a path.
    """
    path = router.path(table)
    if not path:
        raise ConfigError(
            f"the target of {table.quoted} has no name",
            None,
            "change its route's `sink-table`",
            code="TR-1507",
        )
    long = too_long(path)
    if long is not None:
        raise ConfigError(
            f"the target of {table.quoted} has too long a name for a file",
            f"`{long}` has {len(long.encode())} bytes, file systems take {MOST_BYTES}",
            "route the table to a shorter name, or leave it out of `tables`",
            code="TR-1507",
        )
    return path


def path_in_use(path: str, name: str, is_ours: Callable[[str], bool]) -> str:
    """The path of a target, relative to the sink's: an earlier version's, if the stream has a target there.

    Args:
        path: the path by today's rule.
        name: the target's name.
        is_ours: whether a target of this stream exists at a path relative to the sink's.
    """
    former = name.strip("/")
    is_other = former != path and stays_inside(former) and not former.startswith("_tailrace")
    return former if is_other and is_ours(former) else path


def below(root: str, path: str) -> str:
    """`path` below the directory `root`.

    Raises:
        SinkError: the path leads out of it.
    """
    if not stays_inside(path):
        raise SinkError(f"target path `{path}` leads out of the sink's directory", code="TR-1508")
    return f"{root.rstrip('/')}/{path}"


def same_path_error(target: str, other: str, path: str) -> StateError:
    """The error for two targets of a stream at one path."""
    return StateError(
        f"targets `{target}` and `{other}` are at one path",
        f"`{path}` is `{other}`: the file system or the catalog treats both names as equal",
        f"route the table of `{target}` to another name, or leave it out of `tables`",
        code="TR-6103",
    )
