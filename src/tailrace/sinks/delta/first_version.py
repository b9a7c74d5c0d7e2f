"""The first version of a table: its directory before, and its checksum file after.

A table that is created with its first rows has their files before it has its first commit:

    <table>/_delta_log/.tailrace-files.tmp    the names of those files, a line each
    <table>/<name>                            a file
    <table>/_delta_log/<version 0>            the commit, after which the note goes

Without the note, nobody could tell them from files of somebody else, in whose directory no table is made.

A version's checksum file has the table's files, from which Delta derives those of the next version. It finds
those of the first version by a Spark job, 0.1 CPU s; they are in the commit.
Source: Delta transaction log protocol, "Version Checksum File".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import StateError
from tailrace.spark.checkpoint import Directory

_LOG = "_delta_log"
_NOTE = ".tailrace-files.tmp"


def require_empty(path: str) -> None:
    """Refuse a directory for a new table that holds anything, as CREATE TABLE does: VACUUM would delete it.

    The remains of a table whose process was killed while it created the table are deleted. Delta writes a
    table's first commit under a temporary name, and would treat what is left of it as a table.

    Args:
        path: the directory.

    Raises:
        StateError: there are files of something else.
    """
    table = Directory(path)
    if _LOG in table.names() and _is_unmade(f"{path}/{_LOG}"):
        for name in (Directory(f"{path}/{_LOG}").read(_NOTE) or "").splitlines():
            table.remove(name.rpartition("/")[2])
        table.remove_directory(_LOG)
    found = table.names()
    if found:
        raise StateError(
            f"a table cannot be created at `{path}`",
            f"the directory holds files, but no Delta table: {', '.join(found[:3])}",
            "use another sink path, or move the files away",
            code="TR-6101",
        )


@contextmanager
def first_files(path: str, names: Iterable[str]) -> Iterator[None]:
    """Note the files that are put into a table's directory before its first commit, until that is made.

    Args:
        path: the directory.
        names: the files' names.
    """
    log = Directory(f"{path}/{_LOG}")
    log.write(_NOTE, "".join(f"{name}\n" for name in names))
    yield
    log.remove(_NOTE)


def complete_first_checksum(path: str) -> bool:
    """Add the table's files to the checksum file of its first version.

    Args:
        path: the table's directory, a local one; the first version is its only one.

    Returns:
        Whether they were not there.
    """
    log = Path(path, _LOG)
    file = log / f"{0:020}.crc"
    try:
        checksum = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:  # the process was killed after its commit
        return False
    actions = map(json.loads, (log / f"{0:020}.json").read_text(encoding="utf-8").splitlines())
    files = [action["add"] | {"dataChange": False} for action in actions if "add" in action]
    if "allFiles" in checksum or len(files) != checksum["numFiles"]:
        return False
    new = log / f".{file.name}.tmp"
    new.write_text(json.dumps(checksum | {"allFiles": files}), encoding="utf-8")
    new.replace(file)
    return True


def _is_unmade(log: str) -> bool:
    """Whether a log holds nothing but what a process leaves that was killed while it created the table."""
    entries = Directory(log)
    return all(
        (name.startswith(".") and name.endswith((".tmp", ".crc"))) or entries.is_empty_directory(name)
        for name in entries.names()
    )
